"""What a frame holds, as columns: unpacked within bounds, and believed in nothing.

A frame may come from anywhere. Its sizes are counted before memory is taken for them, and
what does not fit is a `FrameError`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgpack
import zstandard

from dask_strata.store.frames import CONST, DELTA, DICT, PLAIN, SPARSE
from dask_strata.store.limits import (
    CELL_BYTES,
    FRAME_BYTES,
    FRAME_LISTS,
    FRAME_ROWS,
    TIME_NS,
    Budget,
    TooMuchError,
)


class FrameError(ValueError):
    """A payload whose checksum is right but whose content is not of this format."""


class LargeFrameError(FrameError):
    """A payload that would take more memory than what comes from there may."""


#: Bytes that a column takes where the same texts are there again before they are counted.
_FEW_BYTES = 1 << 20


def unpack(payload: bytes, budget: Budget | None = None) -> Any:
    """Return what a payload holds.

    Parameters
    ----------
    payload : bytes
        Of a frame whose checksum is right.
    budget : Budget, optional
        Of the memory that it may take.

    Raises
    ------
    FrameError
        It is not compressed msgpack, or unreasonably large.
    """
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= FRAME_BYTES:
            raise TooMuchError(f"a frame claims to hold {size} bytes")  # noqa: TRY301  told below
        if budget is not None:
            budget.spend(size)
        raw = zstandard.ZstdDecompressor().decompress(payload)
        return _unpack(raw)
    except TooMuchError as error:
        raise LargeFrameError(str(error)) from None
    except (
        zstandard.ZstdError,
        msgpack.UnpackException,
        ValueError,
        TypeError,  # a list as a key of a mapping
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise FrameError(f"{type(error).__name__}: {error}") from error


def _unpack(raw: bytes) -> Any:
    lists = 0

    def counted(value: Any) -> Any:
        nonlocal lists
        lists += 1
        if lists > FRAME_LISTS:
            raise TooMuchError(f"a frame has more than {FRAME_LISTS:,} lists")
        return value

    def refused(code: int, _: bytes) -> Any:
        raise ValueError(f"an extension of msgpack, {code}")

    limits = {
        "max_buffer_size": FRAME_BYTES,
        "max_array_len": FRAME_ROWS,
        "max_map_len": FRAME_ROWS,
        "max_ext_len": 0,
    }
    # Lists get their memory by the length that they claim: first see that all of it is there.
    whole = msgpack.Unpacker(max_buffer_size=FRAME_BYTES)
    whole.feed(raw)
    whole.skip()
    if whole.tell() != len(raw):
        raise ValueError("there is more behind its end")
    # A list takes a byte at least, so that a small frame cannot have too many.
    hook = counted if len(raw) > FRAME_LISTS else None
    unpacker = msgpack.Unpacker(
        strict_map_key=False, list_hook=hook, object_hook=hook, ext_hook=refused, **limits
    )
    unpacker.feed(raw)
    return unpacker.unpack()


def decode(
    body: Any,
    layout: Mapping[str, Sequence[str]],
    budget: Budget | None = None,
) -> Iterator[tuple[str, int, int, dict[str, list[Any]]]]:
    """Yield table, first seq, number of rows and columns of each batch of a frame.

    Parameters
    ----------
    body : list
        As `unpack` returned it.
    layout : mapping of table name to column names
        From the segment's header.
    budget : Budget, optional
        Of the memory that the rows may take.

    Raises
    ------
    FrameError
        The content is not of this format.
    """
    tables = list(layout)
    budget = budget or Budget()
    try:
        seq, batches = body
        _check_rows(seq, [n for _, n, _ in batches])
        for number, n, encoded in batches:
            table = tables[number]
            names = layout[table]
            budget.spend(n * (len(names) + 2) * CELL_BYTES)
            columns = {
                name: _decode_column(column, n, budget)
                for name, column in zip(names, encoded, strict=True)
                if column is not None
            }
            yield table, seq, n, columns
            seq += n
    except FrameError:
        raise
    except TooMuchError as error:
        raise LargeFrameError(str(error)) from None
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        OverflowError,
        AttributeError,
        MemoryError,
    ) as error:
        raise FrameError(f"{type(error).__name__}: {error}") from error


def _check_rows(seq: object, counts: Sequence[object]) -> None:
    numbers = [n for n in counts if type(n) is int and 0 < n <= FRAME_ROWS]
    if type(seq) is not int or not 0 <= seq < TIME_NS or len(numbers) != len(counts):
        raise FrameError("its rows are not counted by numbers of rows")
    if sum(numbers) > FRAME_ROWS:
        raise FrameError(f"it has more than {FRAME_ROWS:,} rows")


def _decode_column(encoded: Any, n: int, budget: Budget) -> list[Any]:
    how = encoded[0]
    if how == CONST:
        _spend_texts(encoded[1:2], [0] * n, budget)
        return [encoded[1]] * n
    if how == PLAIN:
        column = encoded[1]
    elif how == DELTA:
        _, first, differences = encoded
        if not {type(first), *map(type, differences)} <= {int}:
            raise FrameError("a difference is no number")
        column = list(accumulate(differences, initial=first))
    elif how == DICT:
        _, values, raw = encoded
        positions = array("B" if len(values) <= 1 << 8 else "H" if len(values) <= 1 << 16 else "I")
        positions.frombytes(raw)
        if sys.byteorder == "big":
            positions.byteswap()
        _spend_texts(values, positions, budget)
        column = [values[i] for i in positions]
    elif how == SPARSE:
        column = [None] * n
        for row, value in zip(encoded[1], encoded[2], strict=True):
            column[row] = value
    else:
        raise FrameError(f"unknown column encoding {how!r}")
    if not isinstance(column, list) or len(column) != n:
        raise FrameError("a column has not as many values as its table has rows")
    return column


def _spend_texts(values: Sequence[Any], positions: Sequence[int], budget: Budget) -> None:
    """Take values into account that a frame has once and a table at many positions."""
    kinds = set(map(type, values))
    if kinds & {list, dict}:
        raise FrameError("a list is there once for many rows")
    texts = kinds <= {str, bytes} and bool(kinds)
    longest = max(map(len if texts else _length, values), default=0)
    if longest * len(positions) > _FEW_BYTES:
        lengths = [_length(v) for v in values]
        budget.spend(sum(map(lengths.__getitem__, positions)))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 0

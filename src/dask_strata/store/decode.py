"""Decoding payloads of frames into columns, within limits on memory.

A frame may have been made by anyone. Its sizes are checked before memory is allocated for
them; a payload that exceeds the limits or does not follow the format raises `FrameError`.
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
    LimitExceededError,
)


class FrameError(ValueError):
    """The content of a payload does not follow the format, although its checksum matches."""


class LargeFrameError(FrameError):
    """A payload would take more memory than the limits allow."""


#: Repeated texts of a column are counted one by one only if they may take more than this, in bytes.
_UNCOUNTED_BYTES = 1 << 20


def unpack(payload: bytes, budget: Budget | None = None) -> Any:
    """Decompress and parse a payload.

    Parameters
    ----------
    payload : bytes
        Payload of a frame whose checksum matches.
    budget : Budget, optional
        Memory that the result may take.

    Returns
    -------
    dict or list
        The header of a segment, or the body of another frame, which `decode` takes.

    Raises
    ------
    FrameError
        The payload is not compressed msgpack, or exceeds a limit.

    Examples
    --------
    >>> unpack(zstandard.compress(msgpack.packb([0, []])))
    [0, []]
    """
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= FRAME_BYTES:
            raise LimitExceededError(f"a frame claims to have {size:,} bytes")  # noqa: TRY301  see below
        if budget is not None:
            budget.spend(size)
        raw = zstandard.ZstdDecompressor().decompress(payload)
        return _unpack(raw)
    except LimitExceededError as error:
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
            raise LimitExceededError(f"a frame has more than {FRAME_LISTS:,} lists")
        return value

    def refused(code: int, _: bytes) -> Any:
        raise ValueError(f"msgpack extension {code} is not allowed")

    limits = {
        "max_buffer_size": FRAME_BYTES,
        "max_array_len": FRAME_ROWS,
        "max_map_len": FRAME_ROWS,
        "max_ext_len": 0,
    }
    # msgpack allocates a list by its claimed length: first check that all values are present.
    checker = msgpack.Unpacker(max_buffer_size=FRAME_BYTES)
    checker.feed(raw)
    checker.skip()
    if checker.tell() != len(raw):
        raise ValueError("there are bytes after its end")
    # A list takes at least one byte, so that a small frame cannot have too many.
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
    """Yield the batches of a frame.

    Parameters
    ----------
    body : list
        The frame, as returned by `unpack`.
    layout : mapping of str to sequence of str
        Columns of each table, from the segment's header.
    budget : Budget, optional
        Memory that the rows may take.

    Yields
    ------
    tuple
        Name of the table, sequence number of the first row, number of rows, and the columns: a
        list of values per name. A column that is null in each row is left out.

    Raises
    ------
    FrameError
        The content does not follow the format, or exceeds a limit.

    Examples
    --------
    >>> layout = {"job": ["name", "value"]}
    >>> list(decode([5, [[0, 2, [[PLAIN, ["a", "b"]], [CONST, "x"]]]]], layout))
    [('job', 5, 2, {'name': ['a', 'b'], 'value': ['x', 'x']})]
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
    except LimitExceededError as error:
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
        raise FrameError("its numbers of rows are not valid")
    if sum(numbers) > FRAME_ROWS:
        raise FrameError(f"it has more than {FRAME_ROWS:,} rows")


def _decode_column(encoded: Any, n: int, budget: Budget) -> list[Any]:
    encoding = encoded[0]
    if encoding == CONST:
        _spend_texts(encoded[1:2], [0] * n, budget)
        return [encoded[1]] * n
    if encoding == PLAIN:
        column = encoded[1]
    elif encoding == DELTA:
        _, first, differences = encoded
        if not {type(first), *map(type, differences)} <= {int}:
            raise FrameError("a difference is not an integer")
        column = list(accumulate(differences, initial=first))
    elif encoding == DICT:
        _, values, raw = encoded
        positions = array("B" if len(values) <= 1 << 8 else "H" if len(values) <= 1 << 16 else "I")
        positions.frombytes(raw)
        if sys.byteorder == "big":
            positions.byteswap()
        _spend_texts(values, positions, budget)
        column = [values[i] for i in positions]
    elif encoding == SPARSE:
        column = [None] * n
        for row, value in zip(encoded[1], encoded[2], strict=True):
            column[row] = value
    else:
        raise FrameError(f"unknown column encoding {encoding!r}")
    if not isinstance(column, list) or len(column) != n:
        raise FrameError("a column and its table differ in their number of rows")
    return column


def _spend_texts(values: Sequence[Any], positions: Sequence[int], budget: Budget) -> None:
    """Subtract values from the budget that a frame has once and a table in many rows."""
    kinds = set(map(type, values))
    if kinds & {list, dict}:
        raise FrameError("several rows share one list")
    texts = kinds <= {str, bytes} and bool(kinds)
    longest = max(map(len if texts else _length, values), default=0)
    if longest * len(positions) > _UNCOUNTED_BYTES:
        lengths = [_length(v) for v in values]
        budget.spend(sum(map(lengths.__getitem__, positions)))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes)) else 0

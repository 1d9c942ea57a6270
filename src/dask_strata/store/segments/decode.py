"""Decoding payloads of frames into columns, within limits on memory.

A frame may have been made by anyone. Its sizes are checked before memory is allocated for
them; a payload that exceeds the limits or does not follow the format raises `FrameError`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack
import zstandard

from dask_strata.store.limits import (
    CELL_BYTES,
    FRAME_BYTES,
    FRAME_LISTS,
    FRAME_ROWS,
    TIME_NS,
    Budget,
    LimitExceededError,
)
from dask_strata.store.segments.errors import FrameError, LargeFrameError
from dask_strata.store.segments.values import Checked, check_column

#: Smaller payloads are parsed without a first pass.
_SMALL_BYTES = 8 << 10

_local = threading.local()


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
        return _unpack(_decompressor().decompress(payload))
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


def _decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor: making one takes longer than a small frame."""
    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made


def _refused(code: int, _: bytes) -> Any:
    raise ValueError(f"msgpack extension {code} is not allowed")


def _unpack(raw: bytes) -> Any:
    if len(raw) <= _SMALL_BYTES:
        # msgpack allocates a list by its claimed length. No claim can be longer than the payload,
        # and msgpack limits the depth of lists, so that all claims together stay small.
        return msgpack.unpackb(raw, strict_map_key=False, ext_hook=_refused, max_ext_len=0)
    lists = 0

    def counted(value: Any) -> Any:
        nonlocal lists
        lists += 1
        if lists > FRAME_LISTS:
            raise LimitExceededError(f"a frame has more than {FRAME_LISTS:,} lists")
        return value

    limits = {
        "max_buffer_size": FRAME_BYTES,
        "max_array_len": FRAME_ROWS,
        "max_map_len": FRAME_ROWS,
        "max_ext_len": 0,
    }
    # First check that all values are present: each claim may be a million here.
    checker = msgpack.Unpacker(max_buffer_size=FRAME_BYTES)
    checker.feed(raw)
    checker.skip()
    if checker.tell() != len(raw):
        raise ValueError("there are bytes after its end")
    # A list takes at least one byte, so that a small frame cannot have too many.
    hook = counted if len(raw) > FRAME_LISTS else None
    unpacker = msgpack.Unpacker(
        strict_map_key=False, list_hook=hook, object_hook=hook, ext_hook=_refused, **limits
    )
    unpacker.feed(raw)
    return unpacker.unpack()


def decode(
    body: Any,
    layout: Mapping[str, Sequence[str]],
    budget: Budget | None = None,
) -> Iterator[tuple[str, int, int, dict[str, Checked]]]:
    """Yield the batches of a frame, with their columns checked.

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
        Name of the table, sequence number of the first row, number of rows, and the checked
        columns by name; see `dask_strata.store.segments.values`. A column that is null in each
        row is left out.

    Raises
    ------
    FrameError
        The content does not follow the format, or exceeds a limit.

    Examples
    --------
    >>> layout = {"job": ["name", "value"]}
    >>> list(decode([5, [[0, 2, [[1, ["a", "b"]], [0, "x"]]]]], layout))
    [('job', 5, 2, {'name': (1, ['a', 'b']), 'value': (0, 'x')})]
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
            columns: dict[str, Checked] = {
                name: checked
                for name, column in zip(names, encoded, strict=True)
                if column is not None and (checked := check_column(column, n, budget)) is not None
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

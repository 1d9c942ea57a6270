"""Checking encoded columns, which may come from anyone, and their values as Python objects.

A checked column is a tuple in one of these forms, whose sizes and positions are valid:

==========================================  ==================================================
``(CONST, v)``, ``(PLAIN, [v, …])``         as encoded
``(NUMBERS, code, b)``                      without byte planes
``(STEPS, first, code, b)``                 without byte planes; no sum exceeds 64 bits
``(TEXTS, t, lengths, positions)``          both as ``uint32``; each text is valid UTF-8
``(SOME, bits, present, column)``           with the number of rows that have a value
``(INTERVALS, counts, all, column, …)``    counts as ``uint32``, and their sum
==========================================  ==================================================
"""

from __future__ import annotations

import struct
from itertools import accumulate, compress, islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_strata.store.limits import CELL_BYTES, FRAME_ROWS, Budget
from dask_strata.store.segments.earlier import (
    UNCOUNTED_BYTES,
    check_constant,
    list_values,
    spend_repeated,
)
from dask_strata.store.segments.encode import (
    BYTE,
    CODES,
    CONST,
    DELTA,
    DICT,
    FLOAT,
    INT64,
    INTERVAL_KINDS,
    INTERVALS,
    NUMBERS,
    PLAIN,
    PLANED,
    SOME,
    SPARSE,
    STEPS,
    STEPS_LIMIT,
    TEXTS,
    UINT32,
    WIDTHS,
)
from dask_strata.store.segments.errors import FrameError

#: A checked column; None is null in each row.
Checked = tuple[Any, ...] | None

_Sizes = bytes | npt.NDArray[np.uint32]

_UINT32 = np.dtype("<u4")

#: Bytes of UTF-8 that continue a character.
_CONTINUING = range(0x80, 0xC0)

#: The numbers from 0 on: the positions of texts if each row has a text of its own.
_COUNTING = memoryview(np.arange(FRAME_ROWS, dtype=_UINT32).tobytes())

_BYTES = bytes(range(256))

#: From this many bytes on, NumPy finds the largest one sooner than Python.
_FEW = 400


def check_column(encoded: Any, n: int, budget: Budget, outer: tuple[int, ...] = ()) -> Checked:
    r"""Return an encoded column in its checked form.

    Parameters
    ----------
    encoded : list or None
        The column; see `dask_strata.store.segments.encode`.
    n : int
        Number of rows.
    budget : Budget
        Memory that the column may take beyond its bytes and one cell a row.
    outer : tuple of int
        Encodings that this column is a part of, which must not occur in it again.

    Raises
    ------
    FrameError
        The column does not follow the format. Other content of wrong types raises TypeError or
        ValueError.
    LimitExceededError
        It would take too much memory.

    Examples
    --------
    >>> check_column([TEXTS, b"ab", 1, None], 2, Budget())[1]
    b'ab'
    >>> values_of(check_column([NUMBERS, BYTE, b"\x07\x08"], 2, Budget()), 2)
    [7, 8]
    """
    if encoded is None:
        return None
    encoding = encoded[0]
    if encoding in outer:
        raise FrameError("a column is nested in one of the same encoding")
    if encoding == CONST:
        _, value = encoded
        check_constant(value, n, budget)
        return CONST, value
    if encoding == TEXTS:
        return _checked_texts(encoded, n, budget)
    if encoding == NUMBERS:
        _, code, packed = encoded
        return NUMBERS, *_checked_numbers(code, packed, n)
    if encoding == STEPS:
        return _checked_steps(encoded, n)
    if encoding == SOME:
        return _checked_some(encoded, n, budget, outer)
    if encoding in (PLAIN, DELTA, DICT, SPARSE):
        return _checked_sparse(encoded, n) or (PLAIN, list_values(encoded, n, budget))
    if encoding == INTERVALS:
        return _checked_intervals(encoded, n, budget)
    raise FrameError(f"unknown column encoding {encoding!r}")


def _checked_sparse(encoded: Any, n: int) -> Checked:
    """Return a column of `SPARSE` as one of `SOME`; None if its rows do not ascend."""
    if encoded[0] != SPARSE:
        return None
    _, rows, values = encoded
    ascending = bool(rows) and set(map(type, rows)) == {int} and rows == sorted(set(rows))
    if not ascending or not 0 <= rows[0] <= rows[-1] < n or len(rows) != len(values):
        return None
    flags = np.zeros(n, np.uint8)
    flags[rows] = 1
    bits = np.packbits(flags, bitorder="little").tobytes()
    return SOME, bits, len(rows), (PLAIN, list(values))


def _checked_numbers(code: Any, packed: Any, n: int) -> tuple[int, bytes]:
    """Return the code and the bytes of `n` numbers, without planes."""
    if type(code) is not int or type(packed) is not bytes or not 0 <= code & ~PLANED < len(CODES):
        raise FrameError("a column of numbers is malformed")
    width = WIDTHS[code & ~PLANED]
    if len(packed) != n * width:
        raise FrameError("a column and its table differ in their number of rows")
    if code < PLANED:
        return code, packed
    numbers = bytearray(len(packed))
    for i in range(width):
        numbers[i::width] = packed[i * n : (i + 1) * n]
    return code - PLANED, bytes(numbers)


def _checked_sizes(sizes: Any, n: int) -> tuple[_Sizes, bytes]:
    """Return `n` unsigned numbers as a sequence, and as the bytes of ``uint32``."""
    if type(sizes) is int:
        same = sizes.to_bytes(4, "little") * n
        few = n < _FEW and sizes < 1 << 8
        return same[:1] * n if few else np.frombuffer(same, _UINT32), same
    code, packed = (BYTE, sizes) if type(sizes) is bytes else sizes
    code, packed = _checked_numbers(code, packed, n)
    if not BYTE <= code <= UINT32:
        raise FrameError("a size or a position is not an unsigned number")
    if code == BYTE and n < _FEW:
        # Each byte is a character below 256, and that a number of four bytes.
        return packed, packed.decode("latin-1").encode("utf-32-le")
    width = WIDTHS[code]
    wide = bytearray(4 * n)
    for i in range(width):
        wide[i::4] = packed[i::width]
    return np.frombuffer(wide, _UINT32), bytes(wide)


def _count(sizes: Any, total: int) -> int:
    """Return the number of sizes that add up to a total."""
    if type(sizes) is int:
        return total // sizes if sizes > 0 else 0
    code, packed = (BYTE, sizes) if type(sizes) is bytes else sizes
    return len(packed) // WIDTHS[code & ~PLANED]


def _checked_steps(encoded: Any, n: int) -> Checked:
    _, first, code, packed = encoded
    code, packed = _checked_numbers(code, packed, n - 1)
    if type(first) is not int or not 0 <= first < STEPS_LIMIT or code == FLOAT:
        raise FrameError("a column of differences is malformed")
    # The sum of a million narrower numbers does not reach the limit.
    if code == INT64 and sum(map(abs, unpacked(code, packed))) >= STEPS_LIMIT:
        raise FrameError("a sum of differences exceeds 64 bits")
    return STEPS, first, code, packed


def _checked_texts(encoded: Any, n: int, budget: Budget) -> Checked:
    _, joined, sizes, packed_positions = encoded
    if type(joined) is not bytes:
        raise FrameError("a column of texts is malformed")
    distinct = n if packed_positions is None else _count(sizes, len(joined))
    if not 0 < distinct <= n:
        raise FrameError("a column has more texts than rows")
    lengths, wide_lengths = _checked_sizes(sizes, distinct)
    if _total(lengths) != len(joined):
        raise FrameError("the lengths of texts do not match their bytes")
    if not joined.isascii():
        joined.decode()
        starts = islice(accumulate(lengths, initial=0), distinct)
        if any(joined[start] in _CONTINUING for start in starts if start < len(joined)):
            raise FrameError("a text starts within a character")
    if packed_positions is None:
        return TEXTS, joined, wide_lengths, _COUNTING[: 4 * n]
    positions, wide_positions = _checked_sizes(packed_positions, n)
    if not _all_below(distinct, positions):
        raise FrameError("the position of a text is out of range")
    if len(joined) * n > UNCOUNTED_BYTES and _largest(lengths) * n > UNCOUNTED_BYTES:
        spend_repeated(repeated_bytes(wide_lengths, wide_positions), budget)
    return TEXTS, joined, wide_lengths, wide_positions


def _checked_some(encoded: Any, n: int, budget: Budget, outer: tuple[int, ...]) -> Checked:
    _, bits, column = encoded
    number = int.from_bytes(bits, "little")
    if type(bits) is not bytes or len(bits) != (n + 7) // 8 or number >> n:
        raise FrameError("the bits of a column and its table differ in their number of rows")
    present = number.bit_count()
    if not present:
        return None
    checked = check_column(column, present, budget, (*outer, SOME))
    return None if checked is None else (SOME, bits, present, checked)


def _checked_intervals(encoded: Any, n: int, budget: Budget) -> Checked:
    _, sizes, *columns = encoded
    counts, wide_counts = _checked_sizes(sizes, n)
    total = _total(counts)
    if total > FRAME_ROWS or len(columns) != len(INTERVAL_KINDS):
        raise FrameError("a column of intervals is malformed")
    budget.spend(total * len(columns) * CELL_BYTES)
    inner = (INTERVALS,)
    fields = [check_column(c, total, budget, inner) if total else None for c in columns]
    return INTERVALS, wide_counts, total, *fields


def _total(sizes: _Sizes) -> int:
    return int(sizes.sum()) if isinstance(sizes, np.ndarray) else sum(sizes)


def _all_below(limit: int, sizes: _Sizes) -> bool:
    if isinstance(sizes, bytes):
        return not sizes.translate(None, _BYTES[:limit])  # without those below, none is left
    return int(sizes.max()) < limit


def _largest(sizes: _Sizes) -> int:
    return int(sizes.max()) if isinstance(sizes, np.ndarray) else max(sizes)


def repeated_bytes(lengths: bytes, positions: bytes) -> int:
    r"""Return the bytes of the texts of all rows.

    Parameters
    ----------
    lengths, positions : bytes
        Parts of a checked column of texts.

    Examples
    --------
    >>> repeated_bytes(b"\x05\0\0\0", bytes(8))
    10
    """
    sizes = np.frombuffer(lengths, _UINT32)
    return int(sizes[np.frombuffer(positions, _UINT32)].sum(dtype=np.int64))


def unpacked(code: int, packed: bytes) -> tuple[Any, ...]:
    r"""Return numbers as Python objects.

    >>> unpacked(BYTE, b"\x07\x08")
    (7, 8)
    """
    return struct.unpack(f"<{len(packed) // WIDTHS[code]}{CODES[code]}", packed)


def values_of(column: Checked, n: int) -> list[Any]:
    r"""Return the values of a checked column as Python objects.

    Parameters
    ----------
    column : tuple or None
        The column, as returned by `check_column`. Booleans of the encoding `NUMBERS` are 0 and 1.
    n : int
        Number of rows.

    Examples
    --------
    >>> values_of((SOME, b"\x02", 1, (CONST, "x")), 3)
    [None, 'x', None]
    """
    if column is None:
        return [None] * n
    encoding = column[0]
    if encoding == CONST:
        return [column[1]] * n
    if encoding == PLAIN:
        return list(column[1])
    if encoding == NUMBERS:
        return list(unpacked(column[1], column[2]))
    if encoding == STEPS:
        return list(accumulate(unpacked(column[2], column[3]), initial=column[1]))
    if encoding == TEXTS:
        ends = list(accumulate(unpacked(UINT32, column[2]), initial=0))
        texts = [column[1][i:j].decode() for i, j in pairwise(ends)]
        return [texts[i] for i in unpacked(UINT32, column[3])]
    if encoding == SOME:
        _, bits, present, some = column
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=n, bitorder="little")
        values: list[Any] = [None] * n
        for row, value in zip(compress(range(n), flags), values_of(some, present), strict=True):
            values[row] = value
        return values
    _, counts, total, *columns = column
    intervals = map(list, zip(*(values_of(c, total) for c in columns), strict=True))
    return [list(islice(intervals, k)) for k in unpacked(UINT32, counts)]

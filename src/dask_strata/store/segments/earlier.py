"""Columns whose values are msgpack, one by one: those of format 1, and values of odd types."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dask_strata.store.limits import COLUMN_BYTES, Budget, LimitExceededError
from dask_strata.store.segments.encode import DELTA, DICT, PLAIN, SPARSE, text_size
from dask_strata.store.segments.errors import FrameError

_NUMBERS = {int, float, bool}

#: Repeated texts of a column are counted one by one only if they may take more than this, in bytes.
UNCOUNTED_BYTES = 1 << 20


def list_values(encoded: Any, n: int, budget: Budget) -> list[Any]:
    r"""Return the values of a column whose encoding has a Python object a value.

    Parameters
    ----------
    encoded : list
        ``[PLAIN, [v, …]]``, or an encoding of format 1: ``[DELTA, first, [differences]]``,
        ``[DICT, [distinct values], positions as bytes]``, or ``[SPARSE, [rows], [values]]``.
    n : int
        Number of rows.
    budget : Budget
        Memory that repeated texts may take.

    Raises
    ------
    FrameError
        The column does not follow the format.
    LimitExceededError
        Its texts would take too much memory.

    Examples
    --------
    >>> list_values([DICT, ["a", "b"], b"\x00\x01\x00"], 3, Budget())
    ['a', 'b', 'a']
    """
    encoding = encoded[0]
    if encoding == PLAIN:
        _, column = encoded
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
        if len(positions) != n:
            raise FrameError("a column and its table differ in their number of rows")
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


def spend_repeated(text_bytes: int, budget: Budget) -> None:
    """Subtract texts from the budget that a frame has once and a table in many rows.

    Parameters
    ----------
    text_bytes : int
        Bytes of the texts of all rows of one column.
    budget : Budget
        Memory that the texts may take.

    Raises
    ------
    LimitExceededError
        They would take too much.
    """
    if text_bytes > COLUMN_BYTES:
        raise LimitExceededError(f"the texts of one column take {text_bytes:,} bytes")
    budget.spend(text_bytes)


def check_constant(value: Any, n: int, budget: Budget) -> None:
    """Raise an error if `n` rows cannot have the same value; subtract its text from the budget."""
    if type(value) in _NUMBERS:
        return
    if isinstance(value, (list, dict)):
        raise FrameError("several rows share one list")
    if _length(value) * n > UNCOUNTED_BYTES:
        spend_repeated(_length(value) * n, budget)


def _spend_texts(values: Sequence[Any], positions: Sequence[int], budget: Budget) -> None:
    if set(map(type, values)) & {list, dict}:
        raise FrameError("several rows share one list")
    lengths = list(map(_length, values))
    if max(lengths, default=0) * len(positions) > UNCOUNTED_BYTES:
        spend_repeated(sum(map(lengths.__getitem__, positions)), budget)


def _length(value: Any) -> int:
    if isinstance(value, str):
        return text_size(value)
    return len(value) if isinstance(value, bytes) else 0

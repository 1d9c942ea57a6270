"""A column of intervals on its way from a source to a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any


class Intervals(Sequence[list[tuple[Any, ...]]]):
    """Lists of intervals, one list for each row, kept by field.

    Lists of lists take longer to make and to encode.

    Parameters
    ----------
    sizes : list of int
        Number of intervals of each row.
    fields : sequence of list
        The four fields of all intervals: actions, starts, durations and sources.

    Examples
    --------
    >>> rows = Intervals([1, 2], [["transfer", "load", "compute"], [5, 6, 7], [1] * 3, ["w"] * 3])
    >>> rows[1]
    [('load', 6, 1, 'w'), ('compute', 7, 1, 'w')]
    """

    def __init__(self, sizes: list[int], fields: Sequence[list[Any]]) -> None:
        self.sizes, self.fields = sizes, fields

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[tuple[Any, ...]]]:
        flat = zip(*self.fields, strict=True)
        return (list(islice(flat, size)) for size in self.sizes)

    def __getitem__(self, i: Any) -> Any:
        return list(self)[i]

"""Which numbers of rows have been seen: few intervals, as messages arrive in order mostly."""

from __future__ import annotations

from bisect import bisect_right


class Seen:
    """A set of integers that grows.

    Attributes
    ----------
    n : int
        Number of integers in it.

    Examples
    --------
    >>> seen = Seen()
    >>> [seen.add(i) for i in (0, 1, 5, 1, 4, 0)]
    [True, True, True, False, True, False]
    >>> seen.n, seen.first, seen.gaps
    (4, 0, 2)
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.n = 0

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        starts, ends = self._starts, self._ends
        if not ends or number > ends[-1]:
            starts.append(number)
            ends.append(number + 1)
        elif number == ends[-1]:
            ends[-1] += 1
        else:
            at = bisect_right(starts, number) - 1
            if at >= 0 and number < ends[at]:
                return False
            self._insert(at, number)
        self.n += 1
        return True

    def _insert(self, at: int, number: int) -> None:
        """Add a new number after the interval at a position."""
        starts, ends = self._starts, self._ends
        joins_before = at >= 0 and ends[at] == number
        joins_after = at + 1 < len(starts) and starts[at + 1] == number + 1
        if joins_before and joins_after:
            ends[at] = ends.pop(at + 1)
            del starts[at + 1]
        elif joins_before:
            ends[at] += 1
        elif joins_after:
            starts[at + 1] = number
        else:
            starts.insert(at + 1, number)
            ends.insert(at + 1, number + 1)

    @property
    def first(self) -> int:
        """The smallest number; 0 if there is none."""
        return self._starts[0] if self._starts else 0

    @property
    def gaps(self) -> int:
        """How many numbers are missing between the smallest and the largest."""
        return self._ends[-1] - self._starts[0] - self.n if self._starts else 0

"""Sums and largest values of intervals in even bins of time, for one or many subjects."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dask_strata.analysis.series.columns import Array, Ints

Floats = npt.NDArray[np.float64]


#: Intervals whose bins are visited at a time.
_AT_ONCE = 10_000


#: Longest time of all bins, in ns: damaged records have any times.
_LONGEST = 2**62


class Bins:
    """Even bins of time.

    Parameters
    ----------
    origin : int
        First moment, in ns since the epoch.
    span : int
        Length of all bins together, in ns.
    n : int
        Number of bins.
    """

    def __init__(self, origin: int, span: int, n: int) -> None:
        self.origin, self.n = origin, n
        self.step = max(-(-min(span, _LONGEST) // n), 1)

    def clipped(self, a: Array, b: Array) -> tuple[Ints, Ints]:
        """Return the starts and ends of intervals within the bins, in ns since the origin."""
        last = self.step * self.n
        first = np.clip(a.astype(np.int64) - self.origin, 0, last)
        return first, np.maximum(np.clip(b.astype(np.int64) - self.origin, 0, last), first)


class Means:
    """Means over time of amounts that intervals have, by subject and bin.

    An amount is spread evenly over its interval. Time that no interval covers is unknown.

    Parameters
    ----------
    n : int
        Number of subjects.
    bins : Bins
        The bins.
    """

    def __init__(self, n: int, bins: Bins) -> None:
        self._shape, self._bins = (n, bins.n), bins
        size = n * (bins.n + 1)
        # Parts of bins, and the rate that begins with a bin and lasts.
        self._amount, self._rate = np.zeros(size), np.zeros(size)
        self._time, self._open = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def add(self, subject: Array, a: Array, b: Array, amount: Array) -> None:
        """Add intervals.

        Parameters
        ----------
        subject : array of int
            Index of the subject; those below 0 are left out.
        a, b : array of int
            Starts and ends in ns since the epoch; empty intervals are left out.
        amount : array of float
            Their amounts; intervals whose amount is not a number are left out.
        """
        kept = (subject >= 0) & (b > a) & ~np.isnan(amount)
        subject, a, b, amount = subject[kept].astype(np.int64), a[kept], b[kept], amount[kept]
        rate = amount / (b - a)
        first, last = self._bins.clipped(a, b)
        step, width = self._bins.step, self._bins.n + 1
        for moment, sign in ((first, 1), (last, -1)):
            place = moment // step
            at = subject * width + place
            rest = (place + 1) * step - moment
            np.add.at(self._amount, at, sign * rate * rest)
            np.add.at(self._time, at, sign * rest)
            later = place + 1 < width
            np.add.at(self._rate, at[later] + 1, sign * rate[later])
            np.add.at(self._open, at[later] + 1, sign)

    def _sums(self, parts: Array, lasting: Array) -> Array:
        n = self._shape[0]
        steps = np.cumsum(lasting.reshape(n, -1), axis=1) * self._bins.step
        sums: Array = (parts.reshape(n, -1) + steps)[:, :-1]
        return sums

    def covered(self) -> Ints:
        """Return the time that intervals cover, in ns; overlaps count for each interval."""
        return self._sums(self._time, self._open)

    def amounts(self) -> Floats:
        """Return the amounts in each bin; 0 where no interval is."""
        found: Floats = self._sums(self._amount, self._rate)
        found[self.covered() == 0] = 0  # not the rounding errors of the sums
        return found

    def means(self) -> Floats:
        """Return amounts by second of the covered time; not a number where none is."""
        covered = self.covered()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(covered > 0, self.amounts() / covered * 1e9, np.nan)


class Peaks:
    """Largest values of intervals, by subject and bin; see `Means`.

    Intervals of a subject that overlap cost time, as each bin of each is visited.
    """

    def __init__(self, n: int, bins: Bins) -> None:
        self._bins = bins
        self._values = np.full((n, bins.n), -np.inf)

    def add(self, subject: Array, a: Array, b: Array, value: Array) -> None:
        """Add intervals with a value each."""
        kept = (subject >= 0) & (b > a) & ~np.isnan(value)
        subject, a, b, value = subject[kept], a[kept], b[kept], value[kept]
        for begin in range(0, len(a), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            self._add(subject[part], a[part], b[part], value[part])

    def _add(self, subject: Array, a: Array, b: Array, value: Array) -> None:
        first, last = self._bins.clipped(a, b)
        low = first // self._bins.step
        n = np.maximum(-(-last // self._bins.step) - low, 0)
        ends = np.cumsum(n)
        each = np.repeat(np.arange(len(n)), n)
        bin_ = np.arange(len(each)) - np.repeat(ends - n, n) + low[each]
        np.maximum.at(self._values, (subject[each], bin_), value[each])

    def values(self) -> Floats:
        """Return the largest values; not a number where no interval is."""
        return np.where(np.isneginf(self._values), np.nan, self._values)

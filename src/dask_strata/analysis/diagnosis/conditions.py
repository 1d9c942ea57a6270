"""Intervals of a condition by worker, such as blocked event loops."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dask_strata.analysis.critical_path.data import merged
from dask_strata.analysis.series.columns import Ints


class Conditions:
    """Intervals in which workers had a condition.

    Parameters
    ----------
    intervals : iterable of (str, int, int)
        Address of the worker, start and stop in ns; intervals may overlap.
    """

    def __init__(self, intervals: Iterable[tuple[str, int, int]]) -> None:
        by_worker: dict[str, list[tuple[int, int]]] = {}
        for worker, start, stop in intervals:
            if stop > start:
                by_worker.setdefault(worker, []).append((start, stop))
        pairs = {worker: np.array(times, np.int64) for worker, times in by_worker.items()}
        self._by_worker = {w: merged(times[:, 0], times[:, 1]) for w, times in pairs.items()}

    def seconds(self, start: int, stop: int, workers: Iterable[str | None]) -> float:
        """Return how long one or more of some workers had the condition between two moments.

        Parameters
        ----------
        start, stop : int
            The moments, in ns since the epoch.
        workers : iterable of str
            Addresses of the workers.
        """
        found = [
            _within(start, stop, *self._by_worker[w])
            for w in workers
            if w is not None and w in self._by_worker
        ]
        if len(found) > 1:
            found = [merged(*(np.concatenate(times) for times in zip(*found, strict=True)))]
        return sum(int((stops - starts).sum()) for starts, stops in found) / 1e9


def _within(start: int, stop: int, starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """Return the parts of disjoint intervals, which are in order, between two moments."""
    low = int(np.searchsorted(stops, start, side="right"))
    high = max(int(np.searchsorted(starts, stop, side="left")), low)
    return np.maximum(starts[low:high], start), np.minimum(stops[low:high], stop)

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
        found = [self._by_worker[w] for w in workers if w is not None and w in self._by_worker]
        if len(found) > 1:
            found = [merged(*(np.concatenate(times) for times in zip(*found, strict=True)))]
        return sum(_overlap(start, stop, *times) for times in found) / 1e9


def _overlap(start: int, stop: int, starts: Ints, stops: Ints) -> int:
    low = int(np.searchsorted(stops, start, side="right"))
    high = int(np.searchsorted(starts, stop, side="left"))
    if high <= low:
        return 0
    a, b = np.maximum(starts[low:high], start), np.minimum(stops[low:high], stop)
    return int((b - a).sum())

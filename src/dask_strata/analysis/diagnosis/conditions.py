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
    by_worker : dict
        Starts and stops in ns by the address of the worker.
    """

    def __init__(self, by_worker: dict[str, tuple[Ints, Ints]]) -> None:
        self._by_worker = {worker: merged(*times) for worker, times in by_worker.items()}
        starts = [np.empty(0, np.int64), *(a for a, _ in self._by_worker.values())]
        stops = [np.empty(0, np.int64), *(b for _, b in self._by_worker.values())]
        self._any = merged(np.concatenate(starts), np.concatenate(stops))

    def seconds(self, start: int, stop: int, workers: Iterable[str | None] | None) -> float:
        """Return how long one of some workers had the condition between two moments.

        Parameters
        ----------
        start, stop : int
            The moments, in ns since the epoch.
        workers : iterable of str, optional
            Addresses of the workers; all if None.
        """
        found = [self._any]
        if workers is not None:
            found = [self._by_worker[w] for w in workers if w in self._by_worker]
        return sum(_overlap(start, stop, *times) for times in found) / 1e9


def _overlap(start: int, stop: int, starts: Ints, stops: Ints) -> int:
    low = int(np.searchsorted(stops, start, side="right"))
    high = int(np.searchsorted(starts, stop, side="left"))
    if high <= low:
        return 0
    a, b = np.maximum(starts[low:high], start), np.minimum(stops[low:high], stop)
    return int((b - a).sum())

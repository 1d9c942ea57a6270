"""Processes and tracks of a trace, and slices that share a track without overlap."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from dask_strata.export.perfetto.trace import TraceFile

#: Most tracks for slices of one thread that overlap. Viewers are slow with thousands of tracks.
MOST_LANES = 100

#: Of a slice without a known end, no other one follows on its track.
_NEVER = 1 << 63


class Lanes:
    """Tracks for the slices of one thread: the first one, and more for slices that overlap.

    Parameters
    ----------
    tracks : Tracks
        The tracks of the trace.
    pid : int
        The process that contains them.
    name : str
        Name of the first track.
    """

    def __init__(self, tracks: Tracks, pid: int, name: str) -> None:
        self._tracks, self._pid, self._name = tracks, pid, name
        self._first = tracks.thread(pid, name)
        self._first_end = -_NEVER
        #: Ends and tracks of the others.
        self._others: list[tuple[int, int]] = []
        self._crowded: int | None = None
        #: Slices that are not on the first track.
        self.displaced = 0

    def place(self, start: int, stop: int | None) -> int | None:
        """Return a track that is free from a time on; None if there are too many.

        The slices are given in the order in which they start.
        """
        end = _NEVER if stop is None else stop
        if self._first_end <= start:
            self._first_end = end
            return self._first
        if self._others and self._others[0][0] <= start:
            track = heappop(self._others)[1]
        elif len(self._others) + 1 < MOST_LANES:
            track = self._tracks.thread(self._pid, f"{self._name} ({len(self._others) + 2})")
        else:
            return None
        self.displaced += 1
        heappush(self._others, (end, track))
        return track

    def crowded(self) -> int:
        """Return the track of slices for which there is no other."""
        if self._crowded is None:
            self._crowded = self._tracks.thread(self._pid, f"{self._name} (more)")
        return self._crowded


class Tracks:
    """The processes and tracks of a trace, which are declared before they are used.

    Processes of Dask may share a process of the system, and processes of several hosts may have the
    same number: numbers in the trace are its own.

    Parameters
    ----------
    trace : TraceFile
        The trace.
    workers : dict of str to tuple
        Name of each worker, and a label, by address.
    """

    def __init__(self, trace: TraceFile, workers: dict[str, tuple[str | None, str | None]]) -> None:
        self._trace = trace
        self._workers = workers
        self._last = 0
        self._processes: dict[Any, int] = {}
        self._lanes: dict[Any, Lanes] = {}
        self._counters: dict[tuple[int, str], int] = {}
        self._threads: dict[int, int] = {}
        self._single: dict[tuple[int, str], int] = {}

    def _number(self) -> int:
        self._last += 1
        return self._last

    def thread(self, pid: int, name: str) -> int:
        """Declare a track, and return its number."""
        track = self._number()
        self._trace.thread(track, pid, name)
        return track

    def single(self, pid: int, name: str) -> int:
        """Return the one track with a name in a process."""
        track = self._single.get((pid, name))
        if track is None:
            track = self._single[pid, name] = self.thread(pid, name)
        return track

    def process(self, name: str, label: str | None = None) -> int:
        """Return the number of a process by its name."""
        return self._process(("process", name), name, label)

    def worker(self, address: str | None) -> int:
        """Return the number of a worker's process."""
        pid = self._processes.get(address)
        if pid is not None:
            return pid
        if address is None:
            return self._process(None, "unknown worker", None)
        name, label = self._workers.get(address, (None, None))
        shown = f"worker {address}" if name in {None, address} else f"worker {name} {address}"
        return self._process(address, shown, label)

    def _process(self, key: Any, name: str, label: str | None) -> int:
        pid = self._processes.get(key)
        if pid is None:
            pid = self._processes[key] = self._number()
            self._trace.process(pid, name, label)
        return pid

    def lanes(self, pid: int, name: str) -> Lanes:
        """Return the tracks with a name in a process."""
        found = self._lanes.get((pid, name))
        if found is None:
            found = self._lanes[pid, name] = Lanes(self, pid, name)
        return found

    def lanes_of_thread(self, address: str | None, thread: int) -> Lanes:
        """Return the tracks of a worker's thread, which are numbered in their order."""
        pid = self.worker(address)
        found = self._lanes.get((pid, thread))
        if found is None:
            number = self._threads[pid] = self._threads.get(pid, 0) + 1
            found = Lanes(self, pid, f"thread {number}")
            self._lanes[pid, thread] = found
        return found

    def counter(self, pid: int, name: str, unit: str) -> int:
        """Return the track of a counter in a process."""
        track = self._counters.get((pid, name))
        if track is None:
            track = self._counters[pid, name] = self._number()
            self._trace.counter(track, pid, name, unit)
        return track

    @property
    def displaced(self) -> int:
        """Number of slices that are on a further track because they overlap others."""
        return sum(lanes.displaced for lanes in self._lanes.values())

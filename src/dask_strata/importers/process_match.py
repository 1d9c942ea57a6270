"""Which process of Dask's a log is of: by pid and host, by time, by threads."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from dask_strata.importers.dask_side import DaskProcess, DaskSide
from dask_strata.schema.values import DASK_ROLES, MATCH_TOLERANCE_NS

_NAME = re.compile(r"_id\d+-(\d+)_")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True)
class LogFacts:
    """What a log says of the process it is of. Times are nanoseconds since the epoch."""

    file: str
    pid: int | None
    hosts: AbstractSet[str]
    start: int
    stop: int
    nprocs: int = 1
    threads: AbstractSet[int] = frozenset()


@dataclass(frozen=True)
class ProcessMatch:
    """What a log is tied to, and by what.

    Attributes
    ----------
    process : DaskProcess or None
        The process, if the record has a row of it.
    worker : str or None
        Address of the worker that it is.
    by : tuple of str
        Of pid, host, time, threads those that agree.
    """

    process: DaskProcess | None
    worker: str | None
    by: tuple[str, ...]


def pid_of(file: str, jobid: int) -> int | None:
    """Return the pid by a log's name; its job id if it was renamed, which is the pid without one.

    >>> pid_of("user_prog_id4711-815_4-18-57457-1234_1.darshan", 4711), pid_of("a.darshan", 42)
    (815, 42)
    """
    found = _NAME.search(file)
    if found:
        return int(found[1])
    # Where a batch system gave the id, no process of the run is likely to have it.
    return jobid if not re.search(r"_id\d+_", file) and 0 < jobid < 1 << 22 else None


def tie(log: LogFacts, side: DaskSide) -> ProcessMatch | None:
    """Return what a log is tied to; null if it is of no process of the run."""
    if log.nprocs > 1:
        return None  # one log of many processes
    return _by_pid(log, side) or _by_threads(log, side)


def happened_meanwhile(log: LogFacts, side: DaskSide) -> bool:
    """Return whether a log's process was there at some time of the run."""
    return side.start is None or side.stop is None or _overlap(log, side.start, side.stop) > 0


def _by_pid(log: LogFacts, side: DaskSide) -> ProcessMatch | None:
    there = [p for p in side.processes if p.pid == log.pid and _same_host(log, p)]
    if log.pid is None or not there:
        return None
    by = ["pid", *(["host"] if any(_known_host(log, p) for p in there) else [])]
    timely = [p for p in there if _overlap(log, p.start or side.start, p.stop or side.stop) > 0]
    shared = [p for p in there if log.threads & _threads(side, p.worker)]
    if timely:
        by.append("time")
    chosen = [p for p in timely if p in shared] or timely or shared
    if not chosen:
        return None
    if any(p in shared for p in chosen):
        by.append("threads")
    chosen.sort(key=lambda p: (DASK_ROLES.index(p.role), -_overlap(log, p.start, p.stop)))
    return ProcessMatch(chosen[0], chosen[0].worker, tuple(by))


def _by_threads(log: LogFacts, side: DaskSide) -> ProcessMatch | None:
    """ProcessMatch to the worker that shares most threads, where no pid says otherwise."""
    known = {p.address: p for p in side.processes if p.worker}
    shared = {}
    for worker, runs in side.runs.items():
        process = known.get(worker)
        if process is not None and process.pid is not None and log.pid is not None:
            continue
        mine = np.isin(runs.thread, [t for t in log.threads if t])
        if not mine.any() or (process is not None and not _same_host(log, process)):
            continue
        start, stop = int(runs.start[mine].min()), int(runs.stop[mine].max())
        if _overlap(log, start, stop) > 0:
            shared[worker] = len(set(runs.thread[mine].tolist()))
    best = sorted(shared, key=lambda w: -shared[w])
    if not best or (len(best) > 1 and shared[best[0]] == shared[best[1]]):
        return None
    return ProcessMatch(known.get(best[0]), best[0], ("threads", "time"))


def _threads(side: DaskSide, worker: str | None) -> set[int]:
    runs = side.runs.get(worker or "")
    return set() if runs is None else set(runs.thread.tolist()) - {0}


def _overlap(log: LogFacts, start: int | None, stop: int | None) -> int:
    first = log.start if start is None else max(log.start, start)
    last = log.stop if stop is None else min(log.stop, stop)
    return last - first + MATCH_TOLERANCE_NS


def _known_host(log: LogFacts, process: DaskProcess) -> bool:
    return bool(log.hosts and process.host and not _ADDRESS.fullmatch(process.host))


def _same_host(log: LogFacts, process: DaskProcess) -> bool:
    if not _known_host(log, process):
        return True  # nothing says otherwise
    return _short(process.host or "") in {_short(host) for host in log.hosts}


def _short(host: str) -> str:
    return host.partition(".")[0].lower()

"""Match a log to the Dask process that wrote it: by pid and host, by time, by threads."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from dask_strata.importers.dask_processes import DaskProcess, RecordedProcesses
from dask_strata.schema.values import DASK_ROLES, MATCH_TOLERANCE_NS

_NAME = re.compile(r"_id\d+-(\d+)_")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")


@dataclass(frozen=True)
class LogFacts:
    """The facts in a log about the process that wrote it.

    Attributes
    ----------
    file : str
        Name of the log.
    pid : int or None
        Process id, if the name or the job id contains it.
    hosts : set of str
        Hosts that the log names.
    start, stop : int
        Nanoseconds since the epoch, on the log's clock.
    nprocs : int
        Number of processes in the log.
    threads : set of int
        Identities of the threads that the log names.
    """

    file: str
    pid: int | None
    hosts: AbstractSet[str]
    start: int
    stop: int
    nprocs: int = 1
    threads: AbstractSet[int] = frozenset()


@dataclass(frozen=True)
class ProcessMatch:
    """The process that a log was matched to, and the evidence.

    Attributes
    ----------
    process : DaskProcess or None
        The process; None if the run has no row of it, only executions of its worker.
    worker : str or None
        Address of the worker, if the process is one.
    by : tuple of str
        The evidence that agrees, out of pid, host, time and threads.
    certainty : float
        1 for pid or threads; less for the times of operations alone.
    """

    process: DaskProcess | None
    worker: str | None
    by: tuple[str, ...]
    certainty: float = 1.0


def pid_of(file: str, jobid: int) -> int | None:
    """Return the process id from a log's name, or from its job id if the log was renamed.

    Parameters
    ----------
    file : str
        Name of the log. Darshan writes ``_id<job id>-<pid>_`` into it.
    jobid : int
        The job id in the log. Without a batch system it is the process id.

    Examples
    --------
    >>> pid_of("user_prog_id4711-815_4-18-57457-1234_1.darshan", 4711), pid_of("a.darshan", 42)
    (815, 42)
    """
    found = _NAME.search(file)
    if found:
        return int(found[1])
    # An id from a batch system is hardly ever equal to the pid of one of the run's processes.
    return jobid if not re.search(r"_id\d+_", file) and 0 < jobid < 1 << 22 else None


def match_process(log: LogFacts, recorded: RecordedProcesses) -> ProcessMatch | None:
    """Return the process of the run that wrote a log, or None.

    Parameters
    ----------
    log : LogFacts
        The facts in the log.
    recorded : RecordedProcesses
        The processes of the run.
    """
    if log.nprocs > 1:
        return None  # an MPI job writes one log for all its processes
    return _by_pid(log, recorded) or _by_threads(log, recorded)


def comparable(log: LogFacts, process: DaskProcess | None) -> bool:
    """Return whether neither pids nor hosts contradict that a log is of a worker's process.

    Parameters
    ----------
    log : LogFacts
        The facts in the log.
    process : DaskProcess or None
        The process, if the run has a row of it.
    """
    if process is None:
        return True
    return (process.pid is None or log.pid is None) and _same_host(log, process)


def overlaps_run(log: LogFacts, recorded: RecordedProcesses) -> bool:
    """Return whether a log's process existed at some time of the run; True if that is unknown."""
    if recorded.start is None or recorded.stop is None:
        return True
    return _overlap(log, recorded.start, recorded.stop) > 0


def _by_pid(log: LogFacts, recorded: RecordedProcesses) -> ProcessMatch | None:
    candidates = [p for p in recorded.processes if p.pid == log.pid and _same_host(log, p)]
    if log.pid is None or not candidates:
        return None
    by = ["pid", *(["host"] if any(hosts_comparable(log, p) for p in candidates) else [])]
    in_time = [
        p
        for p in candidates
        if _overlap(log, p.start or recorded.start, p.stop or recorded.stop) > 0
    ]
    sharing = [p for p in candidates if log.threads & _threads(recorded, p.worker)]
    if in_time:
        by.append("time")
    chosen = [p for p in in_time if p in sharing] or in_time or sharing
    if not chosen:
        return None
    if any(p in sharing for p in chosen):
        by.append("threads")
    chosen.sort(key=lambda p: (DASK_ROLES.index(p.role), -_overlap(log, p.start, p.stop)))
    return ProcessMatch(chosen[0], chosen[0].worker, tuple(by))


def _by_threads(log: LogFacts, recorded: RecordedProcesses) -> ProcessMatch | None:
    """Return the worker that shares most threads, among those whose pid cannot be compared."""
    processes = {p.address: p for p in recorded.processes if p.worker}
    n_shared = {}
    for worker, executions in recorded.executions.items():
        process = processes.get(worker)
        if process is not None and process.pid is not None and log.pid is not None:
            continue
        in_log = np.isin(executions.thread, [t for t in log.threads if t])
        if not in_log.any() or (process is not None and not _same_host(log, process)):
            continue
        start, stop = int(executions.start[in_log].min()), int(executions.stop[in_log].max())
        if _overlap(log, start, stop) > 0:
            n_shared[worker] = len(set(executions.thread[in_log].tolist()))
    best = sorted(n_shared, key=lambda w: -n_shared[w])
    if not best or (len(best) > 1 and n_shared[best[0]] == n_shared[best[1]]):
        return None
    return ProcessMatch(processes.get(best[0]), best[0], ("threads", "time"))


def _threads(recorded: RecordedProcesses, worker: str | None) -> set[int]:
    executions = recorded.executions.get(worker or "")
    return set() if executions is None else set(executions.thread.tolist()) - {0}


def _overlap(log: LogFacts, start: int | None, stop: int | None) -> int:
    """Return the nanoseconds that a log and an interval have in common, plus the tolerance."""
    first = log.start if start is None else max(log.start, start)
    last = log.stop if stop is None else min(log.stop, stop)
    return last - first + MATCH_TOLERANCE_NS


def hosts_comparable(log: LogFacts, process: DaskProcess | None) -> bool:
    """Return whether both hosts are known, and the process's is a name: logs have names.

    Parameters
    ----------
    log : LogFacts
        The facts in the log.
    process : DaskProcess or None
        The process, if the run has a row of it.
    """
    host = process.host if process is not None else None
    return bool(log.hosts and host and not _ADDRESS.fullmatch(host))


def _same_host(log: LogFacts, process: DaskProcess) -> bool:
    """Return whether no host name contradicts that a log is of a process."""
    if not hosts_comparable(log, process):
        return True
    return _short(process.host or "") in {_short(host) for host in log.hosts}


def _short(host: str) -> str:
    return host.partition(".")[0].lower()

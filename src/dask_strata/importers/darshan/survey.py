"""Read the facts of a Darshan log that match it to a process and that fit its clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dask_strata.importers.darshan.clock_fit import Sample
from dask_strata.importers.darshan.dxt import Operations, Trace
from dask_strata.importers.darshan.log import DXT, DarshanLog, LogError, open_log
from dask_strata.importers.process_match import LogFacts, pid_of

#: Operations sampled from the first pieces of a log to fit its clock. Later pieces get fewer, so
#: that a whole log yields a small multiple of this number.
_SAMPLE = 4000

#: The id of a log is this many characters of its SHA-256.
ID_CHARACTERS = 16


@dataclass
class Survey:
    """The facts that one pass over a log collects.

    Attributes
    ----------
    path : Path
        The log.
    sha256 : str
        Digest of its bytes.
    log : DarshanLog
        Its header and job.
    names : dict of int to str
        Names of its files by record id.
    traces : list of str
        Its trace modules.
    hosts : set of str
        Hosts that the traces name.
    threads : set of int
        Threads that the traces name; 0 stands for unknown.
    first : tuple of float and int
        Start of the first operation, in seconds since the process began, and its thread.
    times : list of tuple of array
        Sampled operations of each piece: middle in seconds since the process began, and thread.
    segments : int
        Number of operations.
    operation_bytes : int or None
        Bytes of one operation in the log, which identify the layout.
    last : float
        End of the last operation, in seconds since the process began.
    problems : list of str
        Parts that could not be read, each with the reason.
    """

    path: Path
    sha256: str
    log: DarshanLog
    names: dict[int, str]
    traces: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    first: tuple[float, int] = (math.inf, 0)
    times: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]] = field(default_factory=list)
    segments: int = 0
    operation_bytes: int | None = None
    last: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Id of the log in tables."""
        return self.sha256[:ID_CHARACTERS]

    @property
    def facts(self) -> LogFacts:
        """The facts that match the log to a process."""
        return LogFacts(
            self.path.name,
            pid_of(self.path.name, self.log.jobid),
            self.hosts,
            self.log.start,
            max(self.log.stop, self.log.start + int(self.last * 1e9)),
            self.log.nprocs,
            frozenset(self.threads - {0}),
        )

    @property
    def sample(self) -> Sample:
        """The sampled operations, with times in nanoseconds since the epoch."""
        if not self.times:
            return Sample(np.zeros(0, np.int64), np.zeros(0, np.int64))
        seconds, threads = (np.concatenate(column) for column in zip(*self.times, strict=True))
        return Sample(self.log.start + (seconds * 1e9).astype(np.int64), threads)

    @property
    def sample_of_tasks(self) -> Sample:
        """The sampled operations without those of the first thread, the event loop's.

        They are all operations, if the log has no other thread.
        """
        sample = self.sample
        others = sample.thread != self.first[1]
        return Sample(sample.time[others], sample.thread[others]) if others.any() else sample


def survey(path: Path, sha256: str) -> Survey:
    """Survey a log.

    Parameters
    ----------
    path : Path
        The log.
    sha256 : str
        Digest of its bytes.

    Raises
    ------
    LogError
        No part of the log can be read.
    OSError
        The file cannot be read.
    """
    log = open_log(path)
    found = Survey(path, sha256, log, log.read_names())
    for module, region in log.modules.items():
        if log.cut(region):
            found.problems.append(f"{module} is cut")
    for module in DXT:
        if module in log.modules:
            found.traces.append(module)
            trace = Trace(log, module, found.names)
            try:
                for operations in trace:
                    _add_operations(found, operations)
            except LogError as error:
                problem = f"{module} {error}"
                if problem not in found.problems:  # a cut module is a problem already
                    found.problems.append(problem)
            if trace.dropped:
                found.problems.append(_dropped(module, trace.dropped))
            found.hosts |= trace.hosts
            if trace.layout is not None:
                found.operation_bytes = trace.layout.size
    return found


def _dropped(module: str, n: int) -> str:
    operations = "1 operation" if n == 1 else f"{n:,} operations"
    return f"{module}: {operations} with impossible numbers {'is' if n == 1 else 'are'} left out"


def _add_operations(found: Survey, operations: Operations) -> None:
    n = len(operations)
    if not n:
        return
    found.segments += n
    first = int(operations.start.argmin())
    began = (float(operations.start[first]), int(operations.thread[first]))
    found.first = min(found.first, began)
    found.threads |= set(np.unique(operations.thread).tolist())
    found.last = max(found.last, float(operations.stop.max()))
    # Sample every piece, so that the sample spans the log from beginning to end.
    step = max(1, n // max(1, _SAMPLE >> (len(found.times) // 2)))
    middle = (operations.start + operations.stop) / 2
    found.times.append((middle[::step], operations.thread[::step]))

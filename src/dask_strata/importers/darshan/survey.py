"""A first look at a log of Darshan's: what it says of the process that it is of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dask_strata.importers.darshan.clock_fit import Sample
from dask_strata.importers.darshan.dxt import Operations, Trace
from dask_strata.importers.darshan.log import DXT, DarshanLog, LogError, open_log
from dask_strata.importers.process_match import LogFacts, pid_of

#: Operations of each log that its clock is compared by, at most some times as many.
_SAMPLE = 4000

#: So much of the SHA-256 of a log is its id.
ID_CHARACTERS = 16


@dataclass
class Survey:
    """What a first look at a log found."""

    path: Path
    sha256: str
    log: DarshanLog
    names: dict[int, str]
    traces: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    #: When the first operation began, and in which thread.
    first: tuple[float, int] = (math.inf, 0)
    times: list[tuple[Any, Any]] = field(default_factory=list)
    segments: int = 0
    operation_bytes: int | None = None
    last: float = 0.0
    troubles: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Id of the log in tables."""
        return self.sha256[:ID_CHARACTERS]

    @property
    def facts(self) -> LogFacts:
        """What ties it to a process."""
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
        """Some of its operations."""
        if not self.times:
            return Sample(np.zeros(0, np.int64), np.zeros(0, np.int64))
        seconds, threads = (np.concatenate(column) for column in zip(*self.times, strict=True))
        return Sample(self.log.start + (seconds * 1e9).astype(np.int64), threads)


def survey(path: Path, sha256: str) -> Survey:
    """Look at a log. Raises LogError if nothing of it can be read, OSError."""
    log = open_log(path)
    found = Survey(path, sha256, log, log.read_names())
    for module, region in log.modules.items():
        if log.cut(region):
            found.troubles.append(f"{module} is cut")
    for module in DXT:
        if module in log.modules:
            found.traces.append(module)
            trace = Trace(log, module, found.names)
            try:
                for operations in trace:
                    _look_at(found, operations)
            except LogError as error:
                found.troubles.append(f"{module} {error}")
            if trace.dropped:
                found.troubles.append(_left_out(module, trace.dropped))
            found.hosts |= trace.hosts
            if trace.layout is not None:
                found.operation_bytes = trace.layout.size
    return found


def _left_out(module: str, n: int) -> str:
    what = "1 operation" if n == 1 else f"{n:,} operations"
    return f"{module}: {what} with impossible numbers {'is' if n == 1 else 'are'} left out"


def _look_at(found: Survey, operations: Operations) -> None:
    n = len(operations)
    if not n:
        return
    found.segments += n
    first = int(operations.start.argmin())
    began = (float(operations.start[first]), int(operations.thread[first]))
    found.first = min(found.first, began)
    found.threads |= set(np.unique(operations.thread).tolist())
    found.last = max(found.last, float(operations.stop.max()))
    # A few of each piece, so that a long log is known from its beginning to its end.
    every = max(1, n // max(1, _SAMPLE >> (len(found.times) // 2)))
    middle = (operations.start + operations.stop) / 2
    found.times.append((middle[::every], operations.thread[::every]))

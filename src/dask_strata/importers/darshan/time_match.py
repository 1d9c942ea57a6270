"""Match logs to workers by the times of their operations, where neither has a pid nor threads.

Tasks read and write while they run. The operations of a worker's log are therefore within the
executions of that worker, and only by chance within those of another one. A log is matched if its
operations fit one worker far better than any other, and far better than by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dask_strata.importers.darshan.clock_fit import Sample, Shift, estimate_shift
from dask_strata.importers.dask_processes import Executions, RecordedProcesses
from dask_strata.importers.process_match import (
    LogFacts,
    ProcessMatch,
    comparable,
    hosts_comparable,
)

#: Fewer operations between the first and the last execution of a worker match no worker.
_FEWEST = 50

#: Least share of these operations that must be within its executions.
_LEAST_FIT = 0.95

#: Least certainty, see `match_by_time`.
_LEAST_CERTAINTY = 0.6

#: Shifts in seconds that no clock has, at which operations are within executions by chance only.
_BY_CHANCE = (-61.0, -29.0, -13.0, -7.0, 7.0, 13.0, 29.0, 61.0)

#: Operations of a log that are compared with each worker, and workers that are compared exactly.
_SAMPLE = 500
_CLOSEST = 3

#: More pairs of a log and a worker are not compared, as that would take minutes.
_MOST_PAIRS = 250_000


def match_by_time(
    logs: Mapping[str, tuple[LogFacts, Sample]],
    taken: Iterable[str | None],
    recorded: RecordedProcesses,
) -> tuple[dict[str, tuple[ProcessMatch, Shift]], dict[str, str]]:
    """Return matches and clock shifts, and why other logs could not be compared, by id of the log.

    The certainty of a match is 1 less the share of operations outside the worker's executions,
    divided by the share outside those of the next best worker, or by chance.

    Parameters
    ----------
    logs : mapping of str to tuple
        Facts and sampled operations of the unmatched logs, by id.
    taken : iterable of str
        Workers that have a log.
    recorded : RecordedProcesses
        The processes of the run.
    """
    processes = {p.address: p for p in recorded.processes if p.worker}
    workers = {w: _Worker(e) for w, e in recorded.executions.items() if w not in set(taken)}
    logs = {id_: log for id_, log in logs.items() if log[0].nprocs == 1 and len(log[1].time)}
    if not workers:
        return {}, {}
    if len(workers) * len(logs) > _MOST_PAIRS:
        return {}, dict.fromkeys(logs, f"more than {_MOST_PAIRS:,} pairs of a log and a worker")
    found, others = {}, {}
    for id_, (facts, sample) in logs.items():
        candidates = {
            name: worker
            for name, worker in workers.items()
            if comparable(facts, processes.get(name))
        }
        best = _best(sample, candidates)
        if best is not None:
            name, shift, certainty = best
            process = processes.get(name)
            by = ("host", "time") if hosts_comparable(facts, process) else ("time",)
            found[id_] = ProcessMatch(process, name, by, certainty), shift
        elif not any(len(w.within(sample).time) >= _FEWEST for w in candidates.values()):
            others[id_] = f"fewer than {_FEWEST} operations while a worker ran tasks"
    n_logs = Counter(match.worker for match, _ in found.values())
    others |= {
        id_: "several logs fit the same worker"
        for id_, (match, _) in found.items()
        if n_logs[match.worker] > 1
    }
    return {id_: each for id_, each in found.items() if id_ not in others}, others


class _Worker:
    """The executions of a worker, and the moments at which at least one runs."""

    def __init__(self, executions: Executions) -> None:
        # A log's threads are no evidence here.
        self.executions = replace(executions, thread=np.zeros(len(executions), np.int64))
        order = np.argsort(executions.start, kind="stable")
        self.start = executions.start[order]
        self.stop = np.maximum.accumulate(executions.stop[order])

    def within(self, sample: Sample) -> Sample:
        """Return the operations between the first and the last execution."""
        kept = (sample.time >= self.start[0]) & (sample.time <= self.stop[-1])
        return Sample(sample.time[kept], np.zeros(int(kept.sum()), np.int64))

    def fit(self, times: npt.NDArray[np.int64], seconds: float = 0.0) -> float:
        """Return the share of times that are within executions after a shift."""
        shifted = times + int(seconds * 1e9)
        execution = np.searchsorted(self.start, shifted, side="right") - 1
        return float(np.mean((execution >= 0) & (shifted <= self.stop[execution])))


def _best(sample: Sample, workers: Mapping[str, _Worker]) -> tuple[str, Shift, float] | None:
    """Return the worker whose executions contain the operations, the shift, and the certainty."""
    inside = {name: worker.within(sample) for name, worker in workers.items()}
    inside = {name: part for name, part in inside.items() if len(part.time) >= _FEWEST}
    coarse = sorted(
        inside,
        key=lambda name: (
            -workers[name].fit(inside[name].time[:: -(-len(inside[name].time) // _SAMPLE)])
        ),
    )
    fits = []
    for name in coarse[:_CLOSEST]:
        shift = estimate_shift(inside[name], workers[name].executions)
        if shift is not None:
            fits.append((name, shift))
    if not fits:
        return None
    fits.sort(key=lambda fit: -fit[1].fit)
    name, shift = fits[0]
    others = [other.fit for _, other in fits[1:]]
    others += [workers[name].fit(inside[name].time, shift.seconds + s) for s in _BY_CHANCE]
    misfit = max(1 - shift.fit, 1 / len(inside[name].time))
    next_misfit = 1 - max(others)
    certainty = 1 - misfit / next_misfit if next_misfit > misfit else 0.0
    if shift.fit < _LEAST_FIT or certainty < _LEAST_CERTAINTY:
        return None
    return name, shift, certainty

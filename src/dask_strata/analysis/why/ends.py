"""Workers that ended: which, how, and by whose act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.why.acts import act_of, planned_words
from dask_strata.analysis.why.advice import advice_for
from dask_strata.analysis.worker_ends import phrase_of
from dask_strata.errors import UnknownWorkerError

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most names of workers in an error.
_NAMES = 10

_ENDS = """
    with batch as (
        select job, any_value(system) as system, any_value(time_limit_seconds) as time_limit_seconds
        from jobs group by job
    )
    select w.*, j.job, j.job_state, b.system, b.time_limit_seconds, p.exit_reason
    from worker_ends w
    left join _job_ends j on j.worker = w.worker and j.stop = w.stop
    left join batch b on b.job = j.job
    left join processes p on p.process = w.process
    order by case w.ended when 'unexpected' then 0 when 'planned' then 2 else 1 end,
             w.stop, w.worker
"""


@dataclass(frozen=True)
class WorkerEnd:
    """A worker that ended: a row of ``worker_ends``, with its batch job and words.

    Attributes
    ----------
    worker, name, process, host : str or None
        Address, name, process in ``processes``, and host.
    pid, exit_status : int or None
        Process id, and the status that the process exited with.
    start, stop, exited, killed : datetime or None
        When it connected and was removed, and when its nanny noticed its exit and killed it.
    ended : str or None
        ``unexpected`` or ``planned``; None if that is not on record.
    cause, signal, evidence, reason, stimulus_id : str or None
        As in ``worker_ends``, likewise `nanny_pid` and the memory.
    exit_reason : str or None
        Why the record of the process ended; None if the process was killed.
    system, job, job_state : str or None
        The batch job whose end explains that of the worker.
    time_limit_seconds : float or None
        Limit on the wall time of this job.
    phrase : str
        How it ended, with a verb.
    act : str
        Whose act it was, as far as that is known.
    advice : str or None
        What to do about it; None if it was planned.
    """

    worker: str
    name: str | None
    process: str | None
    host: str | None
    pid: int | None
    start: datetime | None
    stop: datetime
    ended: str | None
    cause: str | None
    signal: str | None
    exit_status: int | None
    exited: datetime | None
    killed: datetime | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    evidence: str | None
    nanny_pid: int | None
    reason: str | None
    stimulus_id: str | None
    exit_reason: str | None
    system: str | None
    job: str | None
    job_state: str | None
    time_limit_seconds: float | None
    phrase: str
    act: str
    advice: str | None

    @property
    def label(self) -> str:
        """Its name, or else its address."""
        return self.name or self.worker

    @property
    def planned(self) -> bool:
        """Whether Dask, the cluster object or the end of the whole cluster explains it."""
        return self.ended == "planned"


def worker_ends_of(run: Run) -> tuple[WorkerEnd, ...]:
    """Return all workers that ended: unexpected ends first, planned ones last, each by time.

    Parameters
    ----------
    run : Run
        The run.
    """
    names = {field.name for field in fields(WorkerEnd)}
    found = []
    for row in run.rows(_ENDS):
        values = {name: value for name, value in row.items() if name in names}
        how = planned_words(row["reason"]) if row["ended"] == "planned" else phrase_of(row)
        advice = None if row["ended"] == "planned" else advice_for(row)
        found.append(WorkerEnd(**values, phrase=how, act=act_of(row), advice=advice))
    return tuple(found)


def ends_named(run: Run, ends: Sequence[WorkerEnd], worker: str) -> tuple[WorkerEnd, ...]:
    """Return the ends of one worker.

    Parameters
    ----------
    run : Run
        The run.
    ends : sequence of WorkerEnd
        All workers that ended.
    worker : str
        Its name, address, process in ``processes``, or process id.

    Raises
    ------
    UnknownWorkerError
        No worker of this name ended.
    """
    for of in (_name, _address, _process, _pid):
        if found := tuple(end for end in ends if of(end) == worker):
            return found
    raise UnknownWorkerError(_unknown(run, ends, worker), hint=_known(ends))


def _name(end: WorkerEnd) -> str | None:
    return end.name


def _address(end: WorkerEnd) -> str | None:
    return end.worker


def _process(end: WorkerEnd) -> str | None:
    return end.process


def _pid(end: WorkerEnd) -> str | None:
    return None if end.pid is None else str(end.pid)


def _unknown(run: Run, ends: Sequence[WorkerEnd], worker: str) -> str:
    alive = run.rows(
        "select 1 from _worker_connections where removed is null "
        "and ? in (name, worker, process, cast(pid as varchar)) limit 1",
        worker,
    )
    if alive:
        return f"Worker {worker} was not removed: it was there until the recording ended."
    return f"No worker {worker} ended in this run" + (", nor any other." if not ends else ".")


def _known(ends: Sequence[WorkerEnd]) -> str | None:
    names = list(dict.fromkeys(end.label for end in ends))
    if not names:
        return None
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return f"Workers that ended: {', '.join(names[:_NAMES])}{more}"


def planned_counts(ends: Sequence[WorkerEnd]) -> list[tuple[str, int]]:
    """Return how many workers ended as planned, by how, the most first."""
    return Counter(end.phrase for end in ends if end.planned).most_common()

"""The attempts that were on a worker as it ended, and the user's lines that they ran."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.why.ends import WorkerEnd

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most attempts that are described.
_MOST = 5

#: States of a worker in which a task waits for a thread, for data or for a resource.
_WAITING = ("waiting", "ready", "constrained", "fetch", "flight", "missing")

#: Attempts that ended with the worker: those that ran first, then those of which no state on the
#: worker is on record, then those that waited there.
_ENDED = """
    with states as (
        select _key, arg_max(finish_state, seq) as state from worker_transitions
        where process = ? group by _key
    )
    select a.key, a.key_type, a.prefix, a.attempt, a.start, a.outcome, a._key,
           case when a.compute_seconds is not null then 'running'
                when s.state in ('executing', 'long-running') then 'running'
                when list_contains(?, s.state) then 'waiting' else 'unknown' end as state,
           a.compute_seconds as seconds
    from attempts a left join states s on s._key = a._key
    left join _scheduler_attempts t on t.number = a.attempt
    left join _steals_of_attempts m on m.number = a.attempt
    where a.worker = ? and a.stimulus_id = ?
      -- The removal also ends attempts on other workers, whose input is lost.
      and coalesce(m.worker, t.first_worker, a.worker) = a.worker
    order by case state when 'running' then 0 when 'unknown' then 1 else 2 end,
             a.compute_seconds desc nulls last, a.start, a.key
"""

_SAMPLED = """
    select file, line, "function", calls, waiting, last from task_samples
    where process = ? and _key = ? and line is not null order by last desc limit 1
"""

_SUBMITTED = """
    select c.file, c.line, c."function", c.code
    from graph_tasks g join submissions s on s.submission = g.submission
    join graph_tasks f on f.submission = s.submission and f.requested
    join client_submissions c on c.client = s.client
     and c.first_key = f.key and c.first_key_type = f.key_type
    where g._key = ? and c.line is not null
    order by abs(epoch_ns(c.time) - epoch_ns(s.time)) limit 1
"""

_CODE = """
    select s.code from graph_tasks g join submissions s on s.submission = g.submission
    where g._key = ? and s.code is not null order by s.time desc limit 1
"""


@dataclass(frozen=True)
class CodeLine:
    """A line of the user's code.

    Attributes
    ----------
    kind : str
        ``sampled``: the attempt's thread was there; ``submitted``: it submitted the task.
    file, function, text : str or None
        File and function that contain the line, and what it calls or the line itself.
    line : int or None
        Its number.
    time : datetime or None
        Of a sampled line, when the thread was last seen there.
    """

    kind: str
    file: str | None
    line: int | None
    function: str | None
    text: str | None
    time: datetime | None = None


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that was on a worker as it ended.

    Attributes
    ----------
    key, key_type : str
        The task.
    prefix : str or None
        Dask's prefix of the key.
    attempt : int
        Its number in ``attempts``.
    start : datetime or None
        When it was assigned to the worker.
    state : str
        ``running``, ``waiting`` (for a thread, data or a resource) or ``unknown``: no row of the
        worker shows which.
    seconds : float or None
        Time in the task's function until then.
    outcome : str
        As in ``attempts``: lost (it was assigned to another worker), erred (Dask gave it up), …
    lines : tuple of CodeLine
        The user's lines.
    """

    key: str
    key_type: str
    prefix: str | None
    attempt: int
    start: datetime | None
    state: str
    seconds: float | None
    outcome: str
    lines: tuple[CodeLine, ...]


@dataclass(frozen=True)
class EndedAttempts:
    """All attempts that were on a worker as it ended.

    Attributes
    ----------
    running, unknown, waiting : int
        How many there were in each state.
    first : tuple of EndedAttempt
        The first of them: running ones, the longest first.
    last_row : datetime or None
        Of a worker that could not write its last rows, when it wrote the last one that is on
        record: the states are those of that moment.
    """

    running: int
    unknown: int
    waiting: int
    first: tuple[EndedAttempt, ...]
    last_row: datetime | None


def ended_attempts(run: Run, end: WorkerEnd) -> EndedAttempts:
    """Return the attempts that were on a worker as it ended.

    Parameters
    ----------
    run : Run
        The run.
    end : WorkerEnd
        The worker.
    """
    rows = run.rows(_ENDED, end.process, list(_WAITING), end.worker, end.stimulus_id)
    counts = {state: sum(row["state"] == state for row in rows) for state in _STATES}
    first = tuple(_attempt(run, end, row) for row in rows[:_MOST])
    return EndedAttempts(**counts, first=first, last_row=_last_row(run, end))


_STATES = ("running", "unknown", "waiting")


def _last_row(run: Run, end: WorkerEnd) -> datetime | None:
    """Return when a process that was cut off wrote its last row."""
    if end.process is None or end.exit_reason is not None:
        return None
    [row] = run.rows(
        "select max(time) as time from (select time from worker_transitions where process = ? "
        "union all select time from overheads where process = ?)",
        end.process,
        end.process,
    )
    return None if row["time"] is None else min(row["time"], end.stop)


def _attempt(run: Run, end: WorkerEnd, row: dict[str, Any]) -> EndedAttempt:
    key_id = row.pop("_key")
    return EndedAttempt(**row, lines=_lines(run, end, key_id))


def _lines(run: Run, end: WorkerEnd, key_id: int) -> tuple[CodeLine, ...]:
    sampled = [
        CodeLine(
            "sampled",
            row["file"],
            row["line"],
            row["function"],
            f"calls {row['calls']}" if row["calls"] else row["waiting"],
            row["last"],
        )
        for row in run.rows(_SAMPLED, end.process, key_id)
    ]
    submitted = [
        CodeLine("submitted", row["file"], row["line"], row["function"], row["code"])
        for row in run.rows(_SUBMITTED, key_id)
    ] or [CodeLine("submitted", None, None, None, row["code"]) for row in run.rows(_CODE, key_id)]
    return (*sampled, *submitted)

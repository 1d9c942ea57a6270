"""How workers ended while tasks were on them, in words: see the table ``worker_ends``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import count, size

if TYPE_CHECKING:
    from dask_strata.run import Run, Task

#: The signal that asks a process to end; others are faults or kills.
_ASKED = "SIGTERM"

_BY_NANNY = "killed by the nanny"

#: Causes with one phrase.
_FIXED = {
    "oom killer": "was killed by the kernel's OOM killer",
    "nanny lost": "was lost with its nanny (killed, or their host stopped)",
    "no heartbeat": "sent no heartbeat for too long",
    "connection lost": "lost the connection (no end of the process on record explains it)",
}

#: Ends of batch jobs that explain those of their workers.
_JOB_ENDS = {
    "TIMEOUT": "time limit of the batch job",
    "DEADLINE": "deadline of the batch job",
    "OUT_OF_MEMORY": "the batch job ran out of memory",
    "CANCELLED": "the batch job was cancelled",
    "PREEMPTED": "the batch job was preempted",
    "NODE_FAIL": "the node of the batch job failed",
}

#: Most names of workers in a sentence.
_NAMES = 4


@dataclass(frozen=True)
class WorkerEnds:
    """Workers that ended alike while tasks were assigned to them.

    Attributes
    ----------
    phrase : str
        How they ended, with a verb: "died of SIGSEGV".
    cause : str or None
        As in ``worker_ends``, likewise `signal` and `exit_status`.
    signal : str or None
    exit_status : int or None
    n_workers, n_tasks, n_attempts : int
        Workers, and tasks and attempts that were assigned to them at that time.
    ran : bool
        Whether the record shows each of these attempts executing.
    names : tuple of str
        Names of the workers.
    first, last : datetime or None
        When the scheduler removed the first and the last of them.
    """

    phrase: str
    cause: str | None
    signal: str | None
    exit_status: int | None
    n_workers: int
    n_tasks: int
    n_attempts: int
    ran: bool
    names: tuple[str, ...]
    first: datetime | None
    last: datetime | None

    @property
    def sentence(self) -> str:
        """What happened, how often, and to which workers."""
        tasks = "the task" if self.n_tasks == 1 else f"{self.n_tasks:,} of these tasks"
        verb = "was" if self.n_tasks == 1 else "were"
        them = "it" if self.n_workers == 1 else "them"
        when = f"running {tasks}" if self.ran else f"{tasks} {verb} assigned to {them}"
        names = ", ".join(self.names[:_NAMES])
        if (rest := len(self.names) - _NAMES) > 0:
            names += f" and {rest:,} more"
        text = f"{count(self.n_workers, 'worker')} {self.phrase} while {when}"
        return f"{text}: {names}" if names else text


#: Rows of ``worker_ends``, with the state of the batch job whose end explains that of the worker.
EXPLAINED = """
    select w.*, j.job_state from worker_ends w
    left join _job_ends j on j.worker = w.worker and j.stop = w.stop
"""

#: `of` selects attempts, and `by` is what one row stands for.
_GROUPS = """
    select w.cause, w.signal, w.exit_status,
           case when w.cause = 'closed' then w.reason end as reason, j.job_state,
           max(w.memory_bytes) as memory_bytes, max(w.memory_limit_bytes) as memory_limit_bytes,
           count(distinct (w.worker, w.stop)) as n_workers, count(distinct a._key) as n_tasks,
           count(*) as n_attempts, bool_and(a.compute_seconds is not null) as ran,
           list(distinct coalesce(w.name, w.worker) order by coalesce(w.name, w.worker)) as names,
           min(w.stop) as first, max(w.stop) as last
    from attempts a join worker_ends w on w.worker = a.worker and w.stimulus_id = a.stimulus_id
    left join _job_ends j on j.worker = w.worker and j.stop = w.stop
    where a._key in (select unnest(?)) and w.ended is distinct from 'planned'
    group by 1, 2, 3, 4, 5 order by n_workers desc, first
"""


def worker_ends(run: Run, keys: Collection[int]) -> tuple[WorkerEnds, ...]:
    """Return how workers ended unexpectedly while tasks were assigned to them, the most first.

    Parameters
    ----------
    run : Run
        The run.
    keys : collection of int
        Numbers of the tasks' keys, see `dask_strata.run.key_ids`.
    """
    found = []
    for row in run.rows(_GROUPS, list(keys)):
        values = {name: row[name] for name in WorkerEnds.__annotations__ if name in row}
        found.append(WorkerEnds(phrase_of(row), **{**values, "names": tuple(row["names"])}))
    return tuple(found)


def phrase_of(end: dict[str, Any]) -> str:
    """Return how a worker ended, with a verb and without the worker.

    Parameters
    ----------
    end : dict
        The columns ``cause``, ``signal``, ``exit_status``, ``memory_bytes``,
        ``memory_limit_bytes`` and ``reason`` of ``worker_ends``, and if a batch job's end explains
        it, its ``job_state``.

    Examples
    --------
    >>> end = dict.fromkeys(("signal", "exit_status", "memory_bytes", "memory_limit_bytes"))
    >>> phrase_of(end | {"cause": "signal", "signal": "SIGSEGV"})
    'died of SIGSEGV'
    >>> phrase_of(end | {"cause": "exit", "exit_status": 3})
    'exited with status 3'
    >>> phrase_of(end | {"cause": "oom killer", "signal": "SIGKILL"})
    "was killed by the kernel's OOM killer"
    >>> phrase_of({"cause": "memory limit", "memory_bytes": 5 * 2**29, "memory_limit_bytes": 2**31})
    'used too much memory (2.5 GiB of 2 GiB, killed by the nanny)'
    >>> phrase_of(end | {"cause": "signal", "signal": "SIGTERM", "job_state": "TIMEOUT"})
    'was ended by SIGTERM (time limit of the batch job)'
    """
    explained = _JOB_ENDS.get(end.get("job_state") or "")
    if end["cause"] == "signal" and end["signal"] == _ASKED:
        why = explained or "sent by a batch system, preemption or a user"
        return f"was ended by {_ASKED} ({why})"
    return _process_end(end) + (f" ({explained})" if explained else "")


def _process_end(end: dict[str, Any]) -> str:
    match end["cause"]:
        case "signal":
            return f"died of {end['signal']}"
        case "exit":
            return f"exited with status {end['exit_status']}"
        case "memory limit":
            used, limit = end["memory_bytes"], end["memory_limit_bytes"]
            memory = "" if used is None else size(used)
            memory += "" if not memory or limit is None else f" of {size(limit)}"
            return f"used too much memory ({', '.join(filter(None, (memory, _BY_NANNY)))})"
        case "closed":
            return f"closed ({end['reason']})"
    return _FIXED.get(end["cause"], "ended (the cause is not on record)")


def words_of(end: dict[str, Any]) -> str:
    """Return how a worker ended, with its name, process, and the time of its removal.

    Parameters
    ----------
    end : dict
        A row of ``worker_ends``.
    """
    name = end["name"] or end["worker"]
    pid = "" if end["pid"] is None else f", pid {end['pid']}"
    host = f" on {end['host']}" if end["host"] else ""
    when = f", removed at {end['stop']:%H:%M:%S.%f}"
    return f"worker {name}{pid}{host} {phrase_of(end)}{when}"


_OF_TASK = """
    with of_key as (
        select attempt, worker, stimulus_id, row_number() over (order by attempt) as nth,
               count(*) over () as n_attempts
        from attempts where key = ? and key_type = ?
    )
    select a.attempt, a.nth, a.n_attempts, w.*, j.job_state from of_key a
    join worker_ends w on w.worker = a.worker and w.stimulus_id = a.stimulus_id
    left join _job_ends j on j.worker = w.worker and j.stop = w.stop
    order by a.attempt
"""


def ends_of(task: Task) -> list[dict[str, Any]]:
    """Return the rows of ``worker_ends`` that ended attempts at a task.

    Each also has the ``attempt``, its position ``nth`` among those at the task, and their number
    ``n_attempts``.

    Parameters
    ----------
    task : Task
        The task.
    """
    return task.run.rows(_OF_TASK, task.key, task.key_type)

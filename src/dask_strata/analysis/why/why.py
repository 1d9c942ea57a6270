"""Why workers ended: a list of all of them, and a post-mortem of those that matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.why.attempts import EndedAttempts, ended_attempts
from dask_strata.analysis.why.ends import WorkerEnd, ends_named, worker_ends_of
from dask_strata.analysis.why.logs import Logs, logs_of
from dask_strata.analysis.why.lost import Lost, lost_with
from dask_strata.analysis.why.memory import Memory, memory_of

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most unexpected ends that all have a post-mortem; of more, only the first has one.
_FEW = 2


@dataclass(frozen=True)
class PostMortem:
    """What is on record about the end of one worker.

    Attributes
    ----------
    end : WorkerEnd
        The worker, how it ended and by whose act.
    memory : Memory
        Its last samples of memory, and its limits.
    attempts : EndedAttempts
        The attempts that were on it.
    logs : Logs or None
        The last entries of its log; None if the run has no logs.
    lost : Lost
        Results that were lost with it, and what was computed again for them.
    """

    end: WorkerEnd
    memory: Memory
    attempts: EndedAttempts
    logs: Logs | None
    lost: Lost


@dataclass(frozen=True)
class Why:
    """Workers that ended, and why.

    Attributes
    ----------
    ends : tuple of WorkerEnd
        All workers that ended, or the ends of one worker: unexpected ones first.
    post_mortems : tuple of PostMortem
        Those of the first of them.
    worker : str or None
        The worker that was asked for.
    """

    ends: tuple[WorkerEnd, ...]
    post_mortems: tuple[PostMortem, ...]
    worker: str | None = None

    @property
    def unexpected(self) -> tuple[WorkerEnd, ...]:
        """The ends that are not planned."""
        return tuple(end for end in self.ends if not end.planned)


def why(run: Run, worker: str | int | None = None) -> Why:
    """Return why workers ended.

    Parameters
    ----------
    run : Run
        The run.
    worker : str or int, optional
        Name, address, process or process id of one worker; by default all workers that ended.

    Returns
    -------
    Why
        Without `worker`, the post-mortem of each unexpected end if there are few, else of the
        first one.

    Raises
    ------
    UnknownWorkerError
        No such worker ended.
    """
    ends = worker_ends_of(run)
    if worker is not None:
        ends = ends_named(run, ends, str(worker))
        chosen = ends
    else:
        chosen = tuple(end for end in ends if not end.planned)
    if len(chosen) > _FEW:
        chosen = chosen[:1]
    return Why(
        ends,
        tuple(_post_mortem(run, end) for end in chosen),
        None if worker is None else str(worker),
    )


def _post_mortem(run: Run, end: WorkerEnd) -> PostMortem:
    return PostMortem(
        end,
        memory_of(run, end),
        ended_attempts(run, end),
        logs_of(run, end),
        lost_with(run, end),
    )

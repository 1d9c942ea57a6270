"""One finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Found:
    """A task or worker that does not move.

    Attributes
    ----------
    kind : str
        A value of the column ``stuck.kind``.
    since : float
        Since when, in seconds since the epoch.
    task : distributed.scheduler.TaskState or None
        The task.
    worker : distributed.scheduler.WorkerState or None
        The worker.
    typical : float or None
        Typical duration of the prefix in seconds.
    n_finished : int or None
        Finished executions of the prefix.
    reason : str or None
        The dependency or restriction that it waits for.
    n_others : int or None
        Further tasks that wait for the same.
    stack : str or None
        The frames of the task's thread, outermost first.
    ended : bool
        Whether the worker's answer shows that the task has ended meanwhile.
    """

    kind: str
    since: float
    task: Any = None
    worker: Any = None
    typical: float | None = None
    n_finished: int | None = None
    reason: str | None = None
    n_others: int | None = None
    stack: str | None = None
    ended: bool = False

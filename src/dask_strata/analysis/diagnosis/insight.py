"""An insight: one diagnosis of a run, with its cause, evidence, cost and cure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Interval:
    """A part of the run that an insight is about.

    Attributes
    ----------
    start, stop : int
        Its times, in ns since the epoch on the scheduler's clock.
    worker : str or None
        Address of the worker; None if it is about the scheduler or the client.
    thread : int or None
        Thread of the worker.
    key : str or None
        The task that held what was waited for.
    """

    start: int
    stop: int
    worker: str | None = None
    thread: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Insight:
    """One diagnosis.

    Attributes
    ----------
    cause : str
        Name of the cause, as in the documentation: lock, spill, tiny-tasks, ….
    text : str
        The cause in one sentence.
    seconds : float or None
        What the run would be shorter without it; None if that is unknown. Each second of the
        makespan counts for one insight only.
    evidence : str
        The numbers that it is based on.
    advice : str
        What to do, with the call or setting to change.
    command : str
        Arguments of ``dask-strata`` that show more, with RUN for the run's folder.
    grave : bool
        Whether it is a fault whatever it cost; faults are listed first.
    docs : str
        Page of the documentation; empty for rules of others.
    intervals : tuple of Interval
        Where it is on the timeline, the longest first, at most 20.
    """

    cause: str
    text: str
    seconds: float | None
    evidence: str = ""
    advice: str = ""
    command: str = "show RUN"
    grave: bool = False
    docs: str = ""
    intervals: tuple[Interval, ...] = field(default=())

"""The interface between an engine and the parts that it records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dask_strata.store.segments.frames import Batch


class Source:
    """A source of rows in one recorded process.

    A subclass overrides the methods that it needs; the others do nothing. The engine counts an
    exception and records it in ``losses``; the exception affects neither other sources nor Dask.
    One in `after_last_row` is only logged, as the record is complete by then.

    Notes
    -----
    `sample`, `finish`, `after_last_row` and `end_reason` are called on the recorder's thread;
    `facts` and `detach` on the thread that starts or ends the recording. `rows` and `slow_rows` are
    called on any thread that flushes, under a lock, and `has_more` on such a thread without it.

    Attributes
    ----------
    cpu_seconds : float
        CPU time so far of the source's own thread, if it has one.
    read_bytes : int
        Bytes that the source itself has read from files, on threads that are not the recorder's.
    """

    cpu_seconds = 0.0
    read_bytes = 0

    def rows(self) -> Iterable[Batch]:
        """Return the rows since the last call. Called at each flush."""
        return ()

    def slow_rows(self) -> Iterable[Batch]:
        """Return a part of the rows that take long to compute. They form a separate frame."""
        return ()

    def has_more(self) -> bool:
        """Return whether `slow_rows` has kept rows for a later flush."""
        return False

    def sample(self) -> None:
        """Sample the present state. Called at each sample interval."""

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return actions that gather static facts; each runs once, on the background thread."""
        return ()

    def detach(self) -> None:
        """Restore Dask's objects. Called on the thread that ends the recording."""

    def finish(self) -> None:
        """Add the last rows."""

    def after_last_row(self) -> None:
        """Do slow work after the last row was written; the exit of the process may interrupt it."""

    def end_reason(self) -> str | None:
        """Return why the recording must end now, or None to continue."""
        return None

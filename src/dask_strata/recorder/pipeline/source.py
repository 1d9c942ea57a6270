"""The interface between an engine and what it records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dask_strata.store.frames import Batch


class Source:
    """A part of what one process records.

    A subclass overrides the methods that it needs; the others do nothing. The engine calls all
    of them on the recorder's thread, except `detach`. An exception in one of them is counted and
    recorded in ``losses``; it reaches neither the other sources nor Dask.
    """

    def rows(self) -> Iterable[Batch]:
        """Return the rows since the last call; called at each flush."""
        return ()

    def slow_rows(self) -> Iterable[Batch]:
        """Return rows that take long to make, a part at a time; they get a frame of their own."""
        return ()

    def has_more(self) -> bool:
        """Return whether `slow_rows` holds back rows for a later flush."""
        return False

    def sample(self) -> None:
        """Take a sample of the present state; called at each sample interval."""

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return actions that gather static facts; each runs once, on the background thread."""
        return ()

    def detach(self) -> None:
        """Give Dask's objects back what was theirs; on the thread that ends the recording."""

    def finish(self) -> None:
        """Add the last rows."""

    def after_last_row(self) -> None:
        """Do what may take long at the end: a process that exits may interrupt it."""

    def end_reason(self) -> str | None:
        """Return why the recording must end now; None to go on."""
        return None

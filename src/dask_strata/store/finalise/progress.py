"""Progress of long work that reading may start. The command line shows it; libraries are silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

#: Makes a context in which work is done, from the work's title. Its value is called with each step.
Shown = Callable[[str], AbstractContextManager[Callable[[str], None]]]


@contextmanager
def silent(title: str) -> Iterator[Callable[[str], None]]:  # noqa: ARG001
    """Show nothing."""
    yield lambda _: None


_shown: list[Shown] = [silent]


def show_with(shown: Shown) -> None:
    """Show the progress of all work in this process from now on."""
    _shown[0] = shown


def showing(title: str) -> AbstractContextManager[Callable[[str], None]]:
    """Return a context that shows the progress of a piece of work.

    Examples
    --------
    >>> with showing("read") as step:
    ...     step("tasks")
    """
    return _shown[0](title)

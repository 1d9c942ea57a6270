"""Progress of long work on standard error, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of reading while the block lasts.

    Parameters
    ----------
    name : str
        Name of the input.

    Yields
    ------
    callable
        Function to call with the bytes that were read and the bytes in total.
    """
    from rich.progress import DownloadColumn, TimeRemainingColumn

    with _bar(name, DownloadColumn(), TimeRemainingColumn()) as show:
        yield show


@contextmanager
def working(name: str) -> Iterator[Callable[[str], None]]:
    """Show the present step of long work while the block lasts.

    Parameters
    ----------
    name : str
        Name of the work.

    Yields
    ------
    callable
        Function to call with the present step.
    """
    if not sys.stderr.isatty():
        yield lambda _step: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from dask_strata.report.words import visible

    columns = (
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(name), total=None)
        yield lambda step: bar.update(task, description=visible(f"{name}: {step}"))


@contextmanager
def rows_of(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show the number of rows that were read while the block lasts.

    Parameters
    ----------
    name : str
        Name of the work.

    Yields
    ------
    callable
        Function to call with the rows that were read, and the rows in all or None.
    """
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

    with _bar(name, MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn()) as show:
        yield show


@contextmanager
def _bar(name: str, *columns: Any) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar with further columns, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from dask_strata.report.words import visible

    shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns)
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

"""The first screen of a run that is being recorded, on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.summary import Summary
from dask_strata.report.summary import headline, print_summary

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from dask_strata.run import Run

#: Time between two looks for new rows.
_EVERY_SECONDS = 1.0


class _Screen:
    """The first screen as a renderable, for Rich's live display."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.capture() as taken:
            print_summary(self._summary, console)
        yield Text.from_ansi(taken.get().rstrip("\n"))


def follow(run: Run, out: Console) -> None:
    """Show the first screen of a run until its recording ends, and update it with new rows.

    Without a terminal, print one line for each update and the first screen at the end.

    Parameters
    ----------
    run : Run
        The run.
    out : Console
        The console.
    """
    summary = summary_of(run)
    if not out.is_terminal:
        while summary.state == "recording":
            out.print(headline(summary), soft_wrap=True)
            summary = _next(run)
        print_summary(summary, out)
        return
    with Live(_Screen(summary), console=out, auto_refresh=False) as live:
        while summary.state == "recording":
            summary = _next(run)
            live.update(_Screen(summary), refresh=True)


def _next(run: Run) -> Summary:
    """Return the next summary, after new rows or the end of the recording."""
    while not run.refresh() and run.state == "recording":
        time.sleep(_EVERY_SECONDS)
    summary = summary_of(run)
    if summary.state == "recording":
        return summary
    # The recording may have ended while this was computed: a part of it may lack the last rows.
    run.refresh()
    return summary_of(run)

"""The first screen of a run that is being recorded, on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.text import Text

from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.overview.stuck import Stuck, stuck_of
from dask_strata.analysis.summary import Summary
from dask_strata.report.summary import headline, print_summary
from dask_strata.report.terminal.stuck import situation, stuck_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from dask_strata.run import Run

#: Time between two looks for new rows.
_EVERY_SECONDS = 1.0


class _Screen:
    """The first screen as a renderable, for Rich's live display."""

    def __init__(self, summary: Summary, stuck: Stuck | None) -> None:
        self._summary, self._stuck = summary, stuck

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.capture() as taken:
            print_summary(self._summary, console, self._stuck)
        yield Text.from_ansi(taken.get().rstrip("\n"))


def follow(run: Run, out: Console) -> None:
    """Show the first screen of a run until its recording ends, and update it with new rows.

    Without a terminal, print one line for each update, one when other tasks or workers are stuck
    than before, and the first screen at the end.

    Parameters
    ----------
    run : Run
        The run.
    out : Console
        The console.
    """
    summary = summary_of(run)
    stuck = stuck_of(run, summary.outcome)
    if not out.is_terminal:
        before: frozenset[tuple[Any, ...]] = frozenset()
        while summary.state == "recording":
            out.print(headline(summary), soft_wrap=True)
            if situation(stuck) != before:
                out.print(stuck_line(stuck), soft_wrap=True, markup=False, highlight=False)
                before = situation(stuck)
            summary = _next(run)
            stuck = stuck_of(run, summary.outcome)
        print_summary(summary, out, stuck)
        return
    with Live(_Screen(summary, stuck), console=out, auto_refresh=False) as live:
        while summary.state == "recording":
            summary = _next(run)
            live.update(_Screen(summary, stuck_of(run, summary.outcome)), refresh=True)


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

"""Stuck tasks and workers, on a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from dask_strata.report.words import visible

if TYPE_CHECKING:
    from rich.console import Console

    from dask_strata.analysis.overview.stuck import Stuck


def print_stuck(stuck: Stuck | None, out: Console, width: int) -> None:
    """Print the stuck tasks and workers, if there are any.

    Parameters
    ----------
    stuck : Stuck or None
        The stuck tasks and workers.
    out : Console
        The console.
    width : int
        Width of the wrapped lines.
    """
    if stuck is None:
        return
    out.print(Text(heading(stuck), style="bold red"))
    for line in stuck.lines():
        out.print(Padding(Text(visible(line)), (0, 0, 0, 2)), width=width)


def heading(stuck: Stuck) -> str:
    """Return the heading of the findings: when that was."""
    if stuck.present:
        return f"Stuck now (checked at {stuck.time:%H:%M:%S} UTC)"
    return f"Stuck when it ended (checked at {stuck.time:%H:%M:%S} UTC)"


def stuck_line(stuck: Stuck | None) -> str:
    """Return the stuck tasks and workers in one line, for a log.

    Parameters
    ----------
    stuck : Stuck or None
        The stuck tasks and workers.
    """
    if stuck is None:
        return "nothing is stuck any more"
    return f"stuck now: {' · '.join(visible(line) for line in stuck.lines())}"


def situation(stuck: Stuck | None) -> frozenset[tuple[Any, ...]]:
    """Return the findings without their durations, to compare two checks."""
    if stuck is None:
        return frozenset()
    return frozenset((row["kind"], row["key"], row["worker"]) for row in stuck.findings)


def stuck_json(stuck: Stuck | None) -> dict[str, Any] | None:
    """Return the stuck tasks and workers for JSON; None without any.

    Parameters
    ----------
    stuck : Stuck or None
        The stuck tasks and workers.
    """
    if stuck is None:
        return None
    return {"time": stuck.time, "present": stuck.present, "findings": list(stuck.findings)}

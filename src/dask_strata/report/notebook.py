"""Runs, tables and answers as HTML in a notebook, without scripts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.critical_path import walk
from dask_strata.analysis.diagnosis import Insight
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.timeline.timeline import OUTCOMES, Timeline, timeline
from dask_strata.report.page import colors
from dask_strata.report.page.page import outcome
from dask_strata.report.page.templates import environment
from dask_strata.report.words import duration, visible
from dask_strata.run.table_view import microseconds

if TYPE_CHECKING:
    from dask_strata.run import Run
    from dask_strata.run.table_view import TableView

#: Width and height of a row of the small timeline in its own units, and its most rows and bars.
_WIDTH, _ROW = 900, 9
_MOST_ROWS, _MOST_BARS = 48, 4_000

#: Most rows of a table, and characters of a cell.
_ROWS, _CELL = 10, 120


@dataclass(frozen=True)
class Bar:
    """A bar of the small timeline, in its own units."""

    x: float
    y: int
    width: float
    color: str
    title: str


def run_html(run: Run) -> str:
    """Return the summary of a run as HTML: outcome, numbers, insights and a small timeline.

    Parameters
    ----------
    run : Run
        The run. A run with many threads or attempts has no timeline.
    """
    summary = summary_of(run)
    drawn = timeline(run, edges=False)
    return (
        environment()
        .get_template("run.html.j2")
        .render(
            s=summary,
            outcome=outcome(summary),
            bars=_bars(drawn),
            width=_WIDTH,
            height=_ROW * len(drawn.rows),
            row=_ROW,
        )
    )


def table_html(table: TableView) -> str:
    """Return the first rows of a table, and the number of the others, as HTML.

    Parameters
    ----------
    table : TableView
        The table.
    """
    rows = microseconds(table.to_arrow().slice(0, _ROWS)).to_pylist()
    return (
        environment()
        .get_template("table.html.j2")
        .render(
            title=repr(table)[1:-1],
            names=table.schema.names,
            rows=[[_cell(value) for value in row.values()] for row in rows],
            left=len(table) - len(rows),
        )
    )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    text = visible(value.isoformat() if hasattr(value, "isoformat") else str(value))
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _bars(drawn: Timeline) -> tuple[Bar, ...]:
    """Return the bars of the small timeline; none if there are too many rows or bars.

    If several bars of a row start within the same unit of width, only the longest is drawn.
    """
    bars = drawn.bars
    if not len(bars) or len(drawn.rows) > _MOST_ROWS or not drawn.span:
        return ()
    scale = _WIDTH / drawn.span
    cell = bars.row * (_WIDTH + 1) + (bars.start * scale).astype(np.int64)
    order = np.lexsort((bars.start - bars.stop, cell))
    kept = order[np.unique(cell[order], return_index=True)[1]]
    if len(kept) > _MOST_BARS:
        return ()
    palette = [colors.color_of(prefix) for prefix in drawn.prefixes]
    erred = OUTCOMES.index("erred")
    return tuple(
        Bar(
            round(float(bars.start[i]) * scale, 2),
            int(bars.row[i]) * _ROW,
            round(max(float(bars.stop[i] - bars.start[i]) * scale, 0.5), 2),
            colors.ERRED if bars.outcome[i] == erred else palette[bars.prefix[i]],
            drawn.prefixes[bars.prefix[i]],
        )
        for i in kept.tolist()
    )


class Insights(tuple[Insight, ...]):
    """Insights of a run: a tuple that prints as a list.

    Examples
    --------
    >>> print(Insights([Insight("lock", "a lock lets one task run at a time", 4.13)]))
    1  a lock lets one task run at a time (4.13 s)
    """

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "Nothing stands out."
        return "\n".join(line for n, insight in enumerate(self, 1) for line in _lines(n, insight))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return environment().get_template("insights.html.j2").render(insights=self)


def _lines(n: int, insight: Insight) -> list[str]:
    cost = f" ({duration(insight.seconds)})" if insight.seconds else ""
    more = [f"   {visible(text)}" for text in (insight.evidence, insight.advice) if text]
    return [f"{n}  {visible(insight.text)}{cost}", *more]


class CriticalPath(walk.CriticalPath):
    """The critical path of a run, with a display for notebooks."""

    def __str__(self) -> str:
        seconds = sorted(self.seconds.items(), key=lambda item: -item[1])
        lines = [f"{duration(s):>10}  {cause}" for cause, s in seconds]
        return "\n".join([f"{duration(self.makespan_seconds):>10}  makespan", *lines])

    def _repr_html_(self) -> str:
        return environment().get_template("path.html.j2").render(path=self)


def path_of(run: Run) -> CriticalPath:
    """Return the critical path of a run with its displays.

    Parameters
    ----------
    run : Run
        The run.
    """
    path = walk.critical_path(run)
    return CriticalPath(**{field.name: getattr(path, field.name) for field in fields(path)})

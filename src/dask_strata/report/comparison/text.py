"""A comparison on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from dask_strata.analysis.compare.compare import Comparison, Contrast
from dask_strata.analysis.compare.gate import EXCEEDED, HOLDS, Judgement
from dask_strata.analysis.compare.sentences import spoiled_line
from dask_strata.analysis.compare.variability import Variability
from dask_strata.report.comparison.lines import (
    COLUMNS,
    SPREAD_COLUMNS,
    SPREADS,
    cells,
    first_rows,
    graph_lines,
    group_title,
    judgement_line,
    not_seen_line,
    slowest_line,
    spread_rows,
    variability_lines,
)
from dask_strata.report.terminal.text_table import print_texts
from dask_strata.report.words import visible

if TYPE_CHECKING:
    from rich.console import Console

_VERDICT_STYLES = {"more": "bold red", "less": "bold green", "outside the spread": "yellow"}


def print_text(found: Comparison, judged: Sequence[Judgement], out: Console) -> None:
    """Print a comparison.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    out : Console
        The console.
    """
    groups = ", ".join(group_title(group) for group in found.groups)
    out.print(Text(visible(groups), style="bold"), soft_wrap=True)
    style = "" if found.fairness.is_fair else "yellow"
    out.print(Text(visible(found.fair), style=style))
    for line in (*map(spoiled_line, found.fairness.spoiled), *graph_lines(found.fairness)):
        out.print(Text(visible(line), style="yellow"))
    for contrast in found.contrasts:
        out.print()
        _print_contrast(contrast, out)
    for each, group in zip(
        found.variability, (g for g in found.groups if len(g.runs) > 1), strict=True
    ):
        out.print()
        _print_variability(each, len(group.runs), out, whole=not found.contrasts)
    for judgement in judged:
        style = {HOLDS: "green", EXCEEDED: "bold red"}.get(judgement.status, "yellow")
        out.print(Text(visible(judgement_line(found, judgement)), style=style))


def _print_contrast(contrast: Contrast, out: Console) -> None:
    out.print(Text(visible(contrast.sentence), style="bold"))
    first, second = (visible(group.name) for group in (contrast.first, contrast.second))
    names = [COLUMNS[0], first, second, *COLUMNS[3:]]
    columns = {name: 0 < i < len(names) - 1 for i, name in enumerate(names)}
    rows: list[list[str | Text]] = []
    for effect in first_rows(contrast):
        *texts, verdict = [visible(text) for text in cells(effect)]
        rows.append([*texts, Text(verdict, _VERDICT_STYLES.get(effect.verdict, ""))])
    print_texts(columns, rows, out, (COLUMNS[0], first, second, "verdict"))
    if line := not_seen_line(contrast):
        out.print(Text(visible(line)))


def _print_variability(found: Variability, n: int, out: Console, *, whole: bool) -> None:
    first, *rest = variability_lines(found, n)
    out.print(Text.assemble((visible(found.group), "bold"), f"  {first}"))
    for line in rest:
        out.print(Text(visible(f"  {line}")))
    if not whole:
        return
    columns = {name: i > 0 for i, name in enumerate(SPREAD_COLUMNS)}
    rows = [[visible(cell) for cell in row] for row in spread_rows(found, SPREADS)]
    print_texts(columns, rows, out, ("measure", "median", "middle half"))
    if line := slowest_line(found):
        out.print(Text(visible(line)))

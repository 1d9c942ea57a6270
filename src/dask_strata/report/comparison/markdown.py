"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dask_strata.analysis.compare.compare import Comparison
from dask_strata.analysis.compare.gate import EXCEEDED, HOLDS, Judgement
from dask_strata.analysis.compare.sentences import spoiled_line
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
from dask_strata.report.words import visible

#: Characters that Markdown and HTML read as markup.
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>~$&@])")

_MARKS = {HOLDS: "✅", EXCEEDED: "❌"}


def comparison_markdown(found: Comparison, judged: Sequence[Judgement]) -> str:
    """Return a comparison as Markdown.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    """
    lines = [_text(found.fair), ""]
    notes = (*map(spoiled_line, found.fairness.spoiled), *graph_lines(found.fairness))
    lines += [f"- {_text(line)}" for line in notes]
    lines += [""] if notes else []
    for contrast in found.contrasts:
        lines += [f"**{_text(contrast.sentence)}**", ""]
    for judgement in judged:
        mark = _MARKS.get(judgement.status, "❔")
        lines.append(f"- {mark} {_text(judgement_line(found, judgement))}")
    for contrast in found.contrasts:
        names = [COLUMNS[0], *map(group_title, (contrast.first, contrast.second)), *COLUMNS[3:]]
        lines += ["", _row(names), "|---|" + "---:|" * (len(names) - 2) + "---|"]
        lines += [_row(cells(effect)) for effect in first_rows(contrast)]
        lines += ["", _text(line)] if (line := not_seen_line(contrast)) else []
    for each in found.variability:
        n = next(len(group.runs) for group in found.groups if group.name == each.group)
        first, *rest = variability_lines(each, n)
        lines += ["", f"{_text(each.group)}: {_text('; '.join([first, *rest]))}"]
        if not found.contrasts:
            lines += ["", _row(SPREAD_COLUMNS), "|---|" + "---:|" * (len(SPREAD_COLUMNS) - 1)]
            lines += [_row(row) for row in spread_rows(each, SPREADS)]
            lines += ["", _text(slowest_line(each))]
    return "\n".join(lines)


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, texts))} |"


def _text(text: str) -> str:
    r"""Return a text with its markup escaped; names in backticks are code.

    >>> _text("a|b <i> `x_y`")
    'a\\|b \\<i\\> `x_y`'
    """
    parts = re.split(r"(`[^`]*`)", visible(text))
    # A table's cell ends at a bar in code, too.
    return "".join(
        part.replace("|", r"\|") if i % 2 else _MARKUP.sub(r"\\\1", part)
        for i, part in enumerate(parts)
    )

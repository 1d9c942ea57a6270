"""A comparison as one HTML file that needs no network, and as a part of the server's page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask_strata.analysis.compare.compare import Comparison
from dask_strata.analysis.compare.effects import MEASURES, VERDICTS
from dask_strata.analysis.compare.gate import Judgement
from dask_strata.analysis.compare.lanes import Lanes, lanes_of
from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.compare.sentences import amount, doing, parts_sentence, spoiled_line
from dask_strata.analysis.compare.variability import Spread, spreads_of
from dask_strata.errors import StrataError
from dask_strata.report.comparison.lines import (
    COLUMNS,
    STATUS,
    cells,
    first_rows,
    graph_lines,
    group_title,
    judgement_line,
    label,
    not_seen_line,
    variability_lines,
)
from dask_strata.report.page.colors import colors_apart
from dask_strata.report.page.templates import asset, environment
from dask_strata.run import open_run

#: Most rows of the split, and most measures that are drawn.
_PARTS = 12
_STRIPS = 24

#: Largest start of an axis, by its end.
_NARROWEST = 0.8


@dataclass(frozen=True)
class Strip:
    """The values of one measure, drawn as a dot a run and a line a group.

    Attributes
    ----------
    label : str
        The measure.
    least, most : float
        Ends of the axis: the largest value of all groups, and the least, or less where values are
        so near to each other that noise would look large.
    unit : str
        Unit of the values.
    groups : tuple of (name, tuple of (run, value), Spread or None)
        The values of each group.
    """

    label: str
    least: float
    most: float
    unit: str
    groups: tuple[tuple[str, tuple[tuple[str, float | None], ...], Spread | None], ...]

    def place(self, amount: float) -> float:
        """Return the place of a value on the axis, 0 to 1."""
        length = self.most - self.least
        # Of the smallest floating-point numbers, 80 % is the number itself.
        return (amount - self.least) / length if length else 1.0


@dataclass(frozen=True)
class Pair:
    """Two runs whose workers are drawn on one time axis.

    Attributes
    ----------
    title : str
        Which runs these are.
    drawn : tuple of Lanes
        The runs.
    missing : tuple of str
        Runs that cannot be drawn, and why.
    """

    title: str
    drawn: tuple[Lanes, ...]
    missing: tuple[str, ...]

    @property
    def span_seconds(self) -> float:
        """The longer span."""
        return max((lanes.span_seconds for lanes in self.drawn), default=0.0)


def comparison_page(found: Comparison, judged: Sequence[Judgement] = ()) -> str:
    """Return the page of a comparison as HTML.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judged : sequence of Judgement
        Limits that were checked.
    """
    style = asset("page.css") + asset("comparison.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = environment().get_template("comparison.html.j2")
    return template.render(**_answers(found, judged), style=style, style_hash=digest)


def comparison_part(found: Comparison) -> str:
    """Return the content of the page, for the server's page; its texts are escaped.

    Parameters
    ----------
    found : Comparison
        The comparison.
    """
    return environment().get_template("comparison_body.html.j2").render(**_answers(found, ()))


def _answers(found: Comparison, judged: Sequence[Judgement]) -> dict[str, Any]:
    by_name = {group.name: group for group in found.groups}
    return {
        "found": found,
        "judged": judged,
        "status": STATUS,
        "columns": COLUMNS,
        "cells": cells,
        "first_rows": first_rows,
        "graph_lines": list(graph_lines(found.fairness)),
        "variability_lines": lambda each: list(
            variability_lines(each, len(by_name[each.group].runs))
        ),
        "verdicts": VERDICTS,
        "parts_sentence": parts_sentence,
        "not_seen_line": not_seen_line,
        "judgement_line": lambda judgement: judgement_line(found, judgement),
        "group_title": group_title,
        "spoiled_line": spoiled_line,
        "doing": doing,
        "value": amount,
        "most_parts": _PARTS,
        "strips": list(_strips(found.groups)) if found.variability else [],
        "pairs": list(_pairs(found)),
        "colors_of": colors_apart,
    }


def _strips(groups: Sequence[Group]) -> Iterator[Strip]:
    """Yield the measures that are drawn: makespan, start-up, causes and the longest prefixes."""
    by_group = [{(s.measure, s.name): s for s in spreads_of(group)} for group in groups]
    known = {key: spread for spreads in reversed(by_group) for key, spread in spreads.items()}
    order = list(MEASURES)
    keys = sorted(known, key=lambda k: (order.index(k[0]), -known[k].median))
    for key in [k for k in keys if k[0] != "transfer"][:_STRIPS]:
        rows = []
        for group, spreads in zip(groups, by_group, strict=True):
            spread = spreads.get(key)
            values = spread.values if spread is not None else (None,) * len(group.runs)
            names = [run.name for run in group.runs]
            rows.append(
                (
                    group.name,
                    tuple(zip(names, values, strict=True)),
                    spread,
                )
            )
        found = [spreads[key] for spreads in by_group if key in spreads]
        most = max(s.most for s in found)
        least = min(_NARROWEST * most, *(s.least for s in found))
        yield Strip(label(known[key]), least, most, known[key].unit, tuple(rows))


def _pairs(found: Comparison) -> Iterator[Pair]:
    """Yield runs that are drawn side by side."""
    runs = {run.name: run for group in found.groups for run in group.runs}
    if found.contrasts:
        for contrast in found.contrasts:
            title = f"{contrast.first.name} and {contrast.second.name}: runs of median makespan"
            yield _side_by_side(title, [contrast.first.middle[0], contrast.second.middle[0]])
    else:
        for each in found.variability:
            title = f"{each.group}: the fastest and the slowest run"
            yield _side_by_side(title, [runs[each.fastest], runs[each.slowest]])


def _side_by_side(title: str, runs: Sequence[ComparedRun]) -> Pair:
    drawn, missing = [], []
    for run in runs:
        try:
            lanes = lanes_of(open_run(run.summary.path))
        except StrataError as error:  # the folder may be gone: the values were read before
            missing.append(f"{run.name}: {error.message}")
            continue
        if lanes is None:
            missing.append(f"{run.name}: no execution has a start and an end on record.")
        else:
            drawn.append(replace(lanes, run=run.name))
    return Pair(title, tuple(drawn), tuple(missing))

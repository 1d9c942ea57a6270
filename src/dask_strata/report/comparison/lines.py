"""The rows of a comparison that are shown first, as texts: for the terminal, Markdown and pages."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dask_strata.analysis.compare.compare import Comparison, Contrast
from dask_strata.analysis.compare.effects import OF_SPANS, Effect
from dask_strata.analysis.compare.fairness import Fairness
from dask_strata.analysis.compare.gate import EXCEEDED, HOLDS, UNCLEAR, Judgement
from dask_strata.analysis.compare.runs import Group
from dask_strata.analysis.compare.sentences import amount, parts_sentence, prefixes_not_seen
from dask_strata.analysis.compare.variability import Spread, Variability
from dask_strata.report.words import count, duration, number, percent

#: Most rows of causes, prefixes and insights among the first rows.
_MOST = {
    "start-up": 1,
    "critical path": 5,
    "insight": 3,
    "worker-seconds": 3,
    "compute": 5,
    "transfer": 2,
    "span compute": 3,
    "span wall": 3,
}

#: Least difference of a cause, by the makespan, to be among the first rows.
_LEAST = 0.02

#: Least share of the variance that is shown.
_LEAST_EXPLAINED = 0.1

#: What a limit's status means.
STATUS = {HOLDS: "holds", EXCEEDED: "exceeded", UNCLEAR: "unclear"}

#: Most rows of the spread of one group.
SPREADS = 12

#: Names of the columns of spreads.
SPREAD_COLUMNS = ("measure", "least", "median", "most", "middle half")

#: Names of the columns of the first rows, and whether they have numbers.
COLUMNS = ("measure", "", "", "difference", "ratio", "interval", "verdict")


def first_rows(contrast: Contrast) -> Iterator[Effect]:
    """Yield the effects that are shown first: makespan, then the largest of each kind.

    The compute of a prefix is followed by that of one task, unless it is the same.

    Parameters
    ----------
    contrast : Contrast
        The groups and their effects.
    """
    makespan = max((value for value in contrast.effects[0].medians if value), default=0.0)
    per_tasks = {e.name: e for e in contrast.effects if e.measure == "compute per task"}
    yield contrast.effects[0]
    for measure, most in _MOST.items():
        rows = [
            effect
            for effect in contrast.effects
            if effect.measure == measure
            and effect.verdict != "equal"
            and abs(effect.difference or 0.0) >= _LEAST * makespan
        ]
        # What is more than noise comes before what only looks large.
        rows.sort(key=lambda e: (not e.is_real, -abs(e.difference or 0.0)))
        for effect in rows[:most]:
            yield effect
            per_task = per_tasks.get(effect.name) if measure == "compute" else None
            if per_task is not None and per_task.difference:
                yield per_task


def label(effect: Effect | Spread) -> str:
    """Return the name of a measure.

    Parameters
    ----------
    effect : Effect or Spread
        The measure.
    """
    if effect.measure in ("critical path", "worker-seconds", "insight"):
        return f"{_SHORT.get(effect.measure, effect.measure)}: {effect.name}"
    if effect.measure in OF_SPANS:
        return f"span {effect.name}: {effect.measure.removeprefix('span ')}"
    return f"{effect.name} {effect.measure}".strip()


_SHORT = {"critical path": "path", "worker-seconds": "threads"}


def cells(effect: Effect) -> tuple[str, ...]:
    """Return the cells of an effect, see `COLUMNS`.

    Parameters
    ----------
    effect : Effect
        The effect.
    """
    interval = "–"
    if effect.low is not None and effect.high is not None:
        interval = f"{effect.low:.2f}–{effect.high:.2f}"
    difference = amount(effect.difference, effect.unit)
    sign = "+" if (effect.difference or 0.0) > 0 else ""
    return (
        label(effect),
        amount(effect.medians[0], effect.unit),
        amount(effect.medians[1], effect.unit),
        f"{sign}{difference}",
        ratio(effect.ratio),
        interval,
        effect.verdict,
    )


def ratio(found: float | None) -> str:
    """Return a ratio with its sign; a dash if there is none."""
    if found is None or not math.isfinite(found):
        return "–"
    return f"{found:.2f}×" if found < 100 else f"{number(found)}×"  # noqa: PLR2004


def group_title(group: Group) -> str:
    """Return the name of a group with its run, or with the number of its runs.

    Parameters
    ----------
    group : Group
        The group.
    """
    run = group.runs[0].name
    return f"{group.name} ({run if len(group.runs) == 1 else count(len(group.runs), 'run')})"


def judgement_line(found: Comparison, judgement: Judgement) -> str:
    """Return a limit, whether it holds, and why; of which groups, if there are more than two.

    Parameters
    ----------
    found : Comparison
        The comparison.
    judgement : Judgement
        The limit.
    """
    groups = f" ({judgement.second} against {judgement.first})" if found.contrasts[1:] else ""
    status = STATUS[judgement.status]
    return f"{judgement.limit.text}{groups}: {status}. {judgement.evidence}"


def not_seen_line(contrast: Contrast) -> str:
    """Return which changes of prefixes a comparison does not find; empty if there is none.

    Parameters
    ----------
    contrast : Contrast
        The groups and their effects.
    """
    return prefixes_not_seen(contrast.first, contrast.second, contrast.effects)


def graph_lines(fairness: Fairness) -> Iterator[str]:
    """Yield how the graphs differ.

    Parameters
    ----------
    fairness : Fairness
        What differs.
    """
    kinds: dict[str, list[str]] = {}
    for each in fairness.prefixes:
        tasks = " → ".join("–" if span is None else _span(*span) for span in each.tasks)
        kinds.setdefault(each.change, []).append(f"`{each.prefix}` ({tasks})")
    texts = {
        "appears": "new prefixes",
        "vanishes": "prefixes that are gone",
        "number of tasks": "numbers of tasks that differ",
    }
    for kind, prefixes in kinds.items():
        more = f", and {len(prefixes) - 4} more" if len(prefixes) > 4 else ""  # noqa: PLR2004
        yield f"{texts[kind]}: {', '.join(prefixes[:4])}{more}"


def _span(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def spread_rows(found: Variability, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the first spreads of a group, see `SPREAD_COLUMNS`.

    Parameters
    ----------
    found : Variability
        The spread of the group.
    most : int
        Number of rows.
    """
    for spread in found.spreads[:most]:
        half = "–" if spread.relative is None else f"± {percent(spread.relative / 2)}"
        amounts = (spread.least, spread.median, spread.most)
        yield (label(spread), *(amount(each, spread.unit) for each in amounts), half)


def slowest_line(found: Variability) -> str:
    """Return why the slowest run of a group is slower than the fastest; empty if it is not.

    Parameters
    ----------
    found : Variability
        The spread of the group.
    """
    seconds = found.split.difference_seconds
    if not seconds:
        return ""
    parts = parts_sentence(found.split)
    return (
        f"slowest {found.slowest} takes {duration(seconds)} longer than fastest "
        f"{found.fastest}{': ' + parts if parts else ''}"
    )


def variability_lines(found: Variability, n: int) -> Iterator[str]:
    """Yield how much the runs of a group differ, and what explains it.

    Parameters
    ----------
    found : Variability
        The spread of the group.
    n : int
        Number of its runs.
    """
    makespan = next(s for s in found.spreads if s.measure == "makespan")
    yield (
        f"{count(n, 'run')}, makespan {duration(makespan.least)} to {duration(makespan.most)}, "
        f"median {duration(makespan.median)}"
    )
    schedule = found.schedule
    if schedule.placement is not None or schedule.order is not None:
        where = "–" if schedule.placement is None else f"{schedule.placement:.2f}"
        order = "–" if schedule.order is None else f"{schedule.order:.2f}"
        yield f"placement alike {where}, order alike {order} (1: the same in each run, 0: chance)"
    explained = [
        f"{percent(each.share)} of {_of(each.prefix)} by {each.by}"
        for each in found.explained
        if each.share >= _LEAST_EXPLAINED
    ]
    if explained:
        yield f"variance explained: {', '.join(explained[:4])}"


def _of(prefix: str) -> str:
    return f"`{prefix}`" if prefix else "the makespan"

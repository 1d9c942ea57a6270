"""Comparison of two runs: their summaries, prefixes, settings and packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.overview.stored import compared
from dask_strata.analysis.summary import Summary

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most rows of each part of a comparison.
_MOST = 100

#: Value of a cause that a run has, at an unknown cost.
NAMED = "named"


@dataclass(frozen=True)
class Pair:
    """A named value in each of two runs; None in a run that does not have it."""

    name: str
    values: tuple[Any, Any]


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs.

    Attributes
    ----------
    summaries : pair of Summary
        The summary of each run.
    insights : tuple of Pair
        Seconds of the makespan that each cause of an insight cost, most seconds first; None if the
        run has no such insight, and `NAMED` if it has one whose cost is unknown.
    path : tuple of Pair
        Seconds of the critical path by cause, likewise.
    tasks, compute : tuple of Pair
        Number of tasks, and seconds in their functions, by prefix, most seconds first.
    settings, packages : tuple of Pair
        Settings of the scheduler, and versions of packages, that differ.
    """

    summaries: tuple[Summary, Summary]
    insights: tuple[Pair, ...]
    path: tuple[Pair, ...]
    tasks: tuple[Pair, ...]
    compute: tuple[Pair, ...]
    settings: tuple[Pair, ...]
    packages: tuple[Pair, ...]


def compare_runs(first: Run, second: Run) -> Comparison:
    """Compare two runs.

    Parameters
    ----------
    first, second : Run
        The runs.
    """
    (summary, one), (other_summary, other) = compared(first), compared(second)
    names = sorted(
        {**one.compute, **other.compute},
        key=lambda name: -((one.compute.get(name) or 0) + (other.compute.get(name) or 0)),
    )

    def pairs(values: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[Pair, ...]:
        return tuple(Pair(name, (values.get(name), others.get(name))) for name in names[:_MOST])

    return Comparison(
        (summary, other_summary),
        _costs(_by_cause(summary), _by_cause(other_summary)),
        _costs(summary.path_seconds, other_summary.path_seconds),
        pairs(one.tasks, other.tasks),
        pairs(one.compute, other.compute),
        _different(one.settings, other.settings),
        _different(one.packages, other.packages),
    )


def _by_cause(summary: Summary) -> dict[str, float | str]:
    costs: dict[str, list[float]] = {}
    for insight in summary.insights:
        known = [] if insight.seconds is None else [insight.seconds]
        costs.setdefault(insight.cause, []).extend(known)
    return {cause: sum(seconds) if seconds else NAMED for cause, seconds in costs.items()}


def _costs(first: Mapping[str, float | str], second: Mapping[str, float | str]) -> tuple[Pair, ...]:
    def most(name: str) -> float:
        costs = first.get(name), second.get(name)
        return max((each for each in costs if isinstance(each, float)), default=0.0)

    names = sorted({*first, *second}, key=lambda name: (-most(name), name))
    return tuple(Pair(name, (first.get(name), second.get(name))) for name in names[:_MOST])


def _different(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Pair, ...]:
    names = sorted(n for n in {*first, *second} if first.get(n) != second.get(n))
    return tuple(Pair(name, (first.get(name), second.get(name))) for name in names[:_MOST])

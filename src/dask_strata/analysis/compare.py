"""Comparison of two runs: their summaries, prefixes, settings and packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.summary import Summary, summarize

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most rows of each part of a comparison.
_MOST = 100


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
    tasks, compute : tuple of Pair
        Number of tasks, and seconds in their functions, by prefix, most seconds first.
    settings, packages : tuple of Pair
        Settings of the scheduler, and versions of packages, that differ.
    """

    summaries: tuple[Summary, Summary]
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
    runs = (first, second)
    used = [{row["prefix"]: row for row in run.rows(_PREFIXES)} for run in runs]
    names = sorted(
        {*used[0], *used[1]},
        key=lambda name: -sum(u[name]["seconds"] or 0 for u in used if name in u),
    )

    def pairs(column: str) -> tuple[Pair, ...]:
        return tuple(
            Pair(name, tuple(u.get(name, {}).get(column) for u in used))  # type: ignore[arg-type]
            for name in names[:_MOST]
        )

    return Comparison(
        (summarize(first), summarize(second)),
        pairs("n"),
        pairs("seconds"),
        _different(*(_named(run, _SETTINGS) for run in runs)),
        _different(*(_named(run, _PACKAGES) for run in runs)),
    )


_PREFIXES = """
    select coalesce(prefix, '(unknown)') as prefix, count(*) as n,
           sum(compute_seconds) as seconds from tasks where not finished_before group by 1
"""

_SETTINGS = """
    select c.name, any_value(c.value) as value from config c join processes p using (process)
    where p.role = 'scheduler' group by c.name
"""

_PACKAGES = """
    select name, string_agg(distinct version, ', ' order by version) as value
    from (select name, version from packages union all
          select 'python' as name, python as version from processes where python is not null)
    group by name
"""


def _named(run: Run, query: str) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in run.rows(query)}


def _different(first: dict[str, Any], second: dict[str, Any]) -> tuple[Pair, ...]:
    names = sorted(n for n in {*first, *second} if first.get(n) != second.get(n))
    return tuple(Pair(name, (first.get(name), second.get(name))) for name in names[:_MOST])

"""How long the attempts of each prefix computed: histogram, and quartiles by worker."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most prefixes: those with the most compute time.
MOST_PREFIXES = 30

#: Most workers of a prefix: those with the largest medians.
MOST_WORKERS = 16

#: Bins of a histogram in each power of ten.
BINS_PER_DECADE = 5

#: Shortest duration of a histogram, in seconds; shorter ones are in the first bin.
SHORTEST = 1e-6

#: Attempts whose function ended, as in the medians of `prefixes`.
_TIMED = """
    select coalesce(prefix, '(unknown)') as prefix, worker, compute_seconds as s from attempts
    where compute_seconds is not null and outcome not in ('running', 'lost', 'released')
"""

_QUARTILES = """
    count(*) as n, min(s) as low, quantile_cont(s, 0.25) as q1, median(s) as median,
    quantile_cont(s, 0.75) as q3, max(s) as high
"""

_PREFIXES = f"""
    with timed as ({_TIMED})
    select prefix, {_QUARTILES}, sum(s) as total from timed
    group by prefix order by total desc, prefix
"""  # noqa: S608  constants

_BINS = f"""
    with timed as ({_TIMED})
    select prefix, floor(log10(greatest(s, $1)) * $2)::bigint as bin, count(*) as n
    from timed where list_contains($3, prefix) group by all order by all
"""  # noqa: S608  constants

_WORKERS = f"""
    with timed as ({_TIMED}), names as (
        select worker, any_value(name) as name from workers group by worker
    ), boxes as (
        select prefix, worker, {_QUARTILES} from timed
        where worker is not null and list_contains($1, prefix) group by prefix, worker
    )
    select b.*, n.name, count(*) over (partition by prefix) as n_workers
    from boxes b left join names n using (worker)
    qualify row_number() over (partition by prefix order by median desc, worker) <= $2
    order by prefix, median desc, worker
"""  # noqa: S608  constants


@dataclass(frozen=True)
class Box:
    """Number and quartiles of durations, in seconds; quartiles are interpolated."""

    n: int
    low: float
    q1: float
    median: float
    q3: float
    high: float


@dataclass(frozen=True)
class WorkerBox:
    """Durations on one worker."""

    worker: str
    name: str | None
    box: Box


@dataclass(frozen=True)
class PrefixDurations:
    """Durations of the attempts of a prefix whose function ended.

    Attributes
    ----------
    prefix : str
        The prefix.
    box : Box
        All of its attempts.
    bins : tuple of (int, int)
        Number k and count of each bin that is not empty. A bin contains durations from 10^(k/5)
        to 10^((k+1)/5) seconds.
    workers : tuple of WorkerBox
        Workers with the largest medians, the largest first.
    n_other_workers : int
        Workers that are left out.
    """

    prefix: str
    box: Box
    bins: tuple[tuple[int, int], ...]
    workers: tuple[WorkerBox, ...]
    n_other_workers: int


@dataclass(frozen=True)
class Durations:
    """Durations by prefix, the most compute time first, and the number of others."""

    prefixes: tuple[PrefixDurations, ...]
    n_other_prefixes: int


def durations(run: Run) -> Durations:
    """Return how long the attempts of each prefix computed.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows(_PREFIXES)
    names = [row["prefix"] for row in rows[:MOST_PREFIXES]]
    bins: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    boxes: defaultdict[str, list[WorkerBox]] = defaultdict(list)
    n_workers: dict[str, int] = {}
    if names:
        for row in run.rows(_BINS, SHORTEST, BINS_PER_DECADE, names):
            bins[row["prefix"]].append((row["bin"], row["n"]))
        for row in run.rows(_WORKERS, names, MOST_WORKERS):
            boxes[row["prefix"]].append(WorkerBox(row["worker"], row["name"], _box(row)))
            n_workers[row["prefix"]] = row["n_workers"]
    found = tuple(
        PrefixDurations(
            prefix=row["prefix"],
            box=_box(row),
            bins=tuple(bins[row["prefix"]]),
            workers=tuple(boxes[row["prefix"]]),
            n_other_workers=n_workers.get(row["prefix"], 0) - len(boxes[row["prefix"]]),
        )
        for row in rows[:MOST_PREFIXES]
    )
    return Durations(found, len(rows) - len(found))


def _box(row: dict[str, Any]) -> Box:
    return Box(*(row[name] for name in Box.__dataclass_fields__))

"""Spans of a run, with the tasks in them and in the spans within them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most spans that are kept: those with the most compute time, and those around them.
MOST_SPANS = 200

# The tasks and attempts of each name; spans of one name count together.
_SPANS = """
    with names as (
        select name, any_value(tags) as tags, count(distinct span) as n_spans,
               min(enqueued) as enqueued
        from spans group by name
    ), t as (
        select span as name, count(*) as n_tasks, count(state) > 0 as known,
               count(*) filter (state = 'erred') as n_erred
        from tasks where span is not null and not finished_before group by span
    ), a as (
        select span as name, sum(compute_seconds) as compute_seconds,
               -- An attempt may have begun before the recording.
               min(coalesce(epoch_ns(start),
                            epoch_ns(stop) - (compute_seconds * 1e9)::bigint)) as start,
               max(epoch_ns(stop)) as stop
        from attempts where span is not null group by span
    )
    select n.name, n.tags, n.n_spans, coalesce(t.n_tasks, 0) as n_tasks,
           case when t.known is not false then coalesce(t.n_erred, 0) end as n_erred,
           a.compute_seconds, a.start, a.stop
    from names n left join t using (name) left join a using (name) order by n.enqueued, n.name
"""


@dataclass(frozen=True)
class SpanUse:
    """Tasks of the spans of one name, and of the spans within them.

    Attributes
    ----------
    name : str
        All tags of the name, from the outermost span, with `` / `` in between.
    depth : int
        Number of spans around it.
    n_spans : int
        Spans of this name.
    n_tasks : int
        Tasks in them.
    n_erred : int or None
        Those that failed; None if that is on record for no task.
    compute_seconds : float or None
        Time in the tasks' functions; None if it is not on record.
    wall_seconds : float or None
        From the start of the first attempt to the end of the last one; None without an attempt.
    """

    name: str
    depth: int
    n_spans: int
    n_tasks: int
    n_erred: int | None
    compute_seconds: float | None
    wall_seconds: float | None


@dataclass(frozen=True)
class _Sum:
    """Sums of a name. Times are in ns since the epoch."""

    n_tasks: int = 0
    n_erred: int | None = 0
    compute_seconds: float | None = None
    start: int | None = None
    stop: int | None = None

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(
            self.n_tasks + other.n_tasks,
            None if None in {self.n_erred, other.n_erred} else _sum(self.n_erred, other.n_erred),
            _sum(self.compute_seconds, other.compute_seconds),
            min((t for t in (self.start, other.start) if t is not None), default=None),
            max((t for t in (self.stop, other.stop) if t is not None), default=None),
        )


def _sum(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value is not None]
    return sum(known) if known else None


def spans(run: Run) -> tuple[SpanUse, ...]:
    """Return the spans of a run that have tasks, each before the spans within it.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = {_tags(row): row for row in run.rows(_SPANS)}
    sums: dict[tuple[str, ...], _Sum] = {}
    for tags, row in rows.items():
        own = _Sum(**{name: row[name] for name in _Sum.__dataclass_fields__})
        for depth in range(1, len(tags) + 1):
            sums[tags[:depth]] = sums.get(tags[:depth], _Sum()) + own
    found = {
        tags: SpanUse(
            row["name"],
            len(tags) - 1,
            row["n_spans"],
            total.n_tasks,
            total.n_erred,
            total.compute_seconds,
            None
            if total.start is None or total.stop is None
            else max(0, total.stop - total.start) / 1e9,
        )
        for tags, row in rows.items()
        if (total := sums[tags]).n_tasks
    }
    return tuple(_in_order(_largest(found)))


def _tags(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the tags of a span; its name alone if they are left out."""
    try:
        tags = tuple(str(tag) for tag in json.loads(row["tags"]))
    except (ValueError, TypeError):
        return (row["name"],)
    return tags or (row["name"],)


def _largest(found: dict[tuple[str, ...], SpanUse]) -> dict[tuple[str, ...], SpanUse]:
    """Return the spans with the most compute time; a span has no less than those within it."""
    order = sorted(found, key=lambda tags: (-(found[tags].compute_seconds or 0.0), len(tags)))
    kept = set(order[:MOST_SPANS])
    return {tags: use for tags, use in found.items() if tags in kept}


def _in_order(found: dict[tuple[str, ...], SpanUse]) -> Iterator[SpanUse]:
    """Yield spans in the order in which they began, each before those within it."""
    places = {tags: place for place, tags in enumerate(found)}

    def path(tags: tuple[str, ...]) -> list[int]:
        return [places.get(tags[:depth], -1) for depth in range(1, len(tags) + 1)]

    for tags in sorted(found, key=path):
        depth = sum(tags[:n] in found for n in range(1, len(tags)))
        yield replace(found[tags], depth=depth)

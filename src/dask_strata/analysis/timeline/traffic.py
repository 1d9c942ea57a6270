"""What moved: between workers, to disk, and between workers and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Pair:
    """Transfers from one end to another."""

    source: str
    destination: str
    n: int
    n_keys: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Spilled:
    """What a worker wrote to disk, or read back."""

    worker: str
    action: str
    n: int
    nbytes: int
    seconds: float | None


@dataclass(frozen=True)
class FileUse:
    """A file that tasks read or wrote, or said they would.

    `claimed` and `seen` are how many tasks said so, and were seen to open it.
    """

    uri: str
    mode: str
    claimed: int
    seen: int
    workers: int
    prefixes: str


@dataclass(frozen=True)
class Departure:
    """A worker that did not stay until the end, and why, as far as anyone said."""

    worker: str
    name: str | None
    reason: str
    n_attempts: int


def pairs(run: Run) -> tuple[Pair, ...]:
    """Return the transfers by their two ends, those of most bytes first."""
    rows = run.rows("""
        select coalesce(source, '(unknown)') as source, coalesce(destination, 'a client') as destination,
               count(*) as n, coalesce(sum(n_keys), 0)::bigint as n_keys,
               coalesce(sum(total_bytes), 0)::bigint as nbytes,
               coalesce(sum((epoch_ns(stop) - epoch_ns(start)) / 1e9), 0) as seconds
        from transfers group by 1, 2 order by nbytes desc, n desc, 1, 2
    """)
    return tuple(Pair(**row) for row in rows)


def spilled(run: Run) -> tuple[Spilled, ...]:
    """Return what Dask's memory management moved, by worker."""
    rows = run.rows("""
        select coalesce(worker, '(unknown)') as worker, action, count(*) as n,
               coalesce(sum(nbytes), 0)::bigint as nbytes, sum(seconds) as seconds
        from spills group by 1, 2 order by nbytes desc, 1, 2
    """)
    return tuple(Spilled(**row) for row in rows)


def files(run: Run) -> tuple[FileUse, ...]:
    """Return the files that tasks read or wrote, those of most tasks first."""
    rows = run.rows("""
        select i.uri, i.mode, count(distinct i.key) filter (i.kind = 'claimed') as claimed,
               count(distinct i.key) filter (i.kind = 'seen') as seen,
               count(distinct a.worker) as workers,
               coalesce(string_agg(distinct k.prefix, ', ' order by k.prefix), '') as prefixes
        from task_inputs i
        left join attempts a on a.attempt = i.attempt
        left join _known k on k._key = i._key
        where i.uri is not null group by i.uri, i.mode
        order by greatest(claimed, seen) desc, i.uri, i.mode
    """)
    return tuple(FileUse(**row) for row in rows)


def departures(run: Run) -> tuple[Departure, ...]:
    """Return the workers that ended before the end."""
    rows = run.rows("""
        select worker, name, end_reason as reason, n_attempts from workers
        where end_reason is not null and worker is not null
        order by end_reason like 'unexpected%' desc, stop, worker
    """)
    return tuple(Departure(**row) for row in rows)

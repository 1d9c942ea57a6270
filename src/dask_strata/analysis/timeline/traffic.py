"""Transfers between workers, spills to disk, files that tasks used, and workers that left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.schema.values import UNEXPECTED

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Pair:
    """All transfers from one worker to another worker or a client."""

    source: str
    destination: str
    n: int
    n_keys: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Spilled:
    """Results that a worker spilled to disk, or read back from it."""

    worker: str
    action: str
    n: int
    nbytes: int
    seconds: float | None


@dataclass(frozen=True)
class FileUse:
    """A file that tasks read or wrote.

    Attributes
    ----------
    uri : str
        The file or store.
    mode : str
        read, write or update.
    claimed, seen : int
        Number of tasks whose definition names the file, and of tasks that opened it.
    workers : int
        Number of workers on which these tasks ran.
    prefixes : str
        Prefixes of these tasks.
    """

    uri: str
    mode: str
    claimed: int
    seen: int
    workers: int
    prefixes: str


@dataclass(frozen=True)
class Departure:
    """A worker that left the cluster before the end of the run, with the recorded reason."""

    worker: str
    name: str | None
    reason: str
    n_attempts: int


def pairs(run: Run) -> tuple[Pair, ...]:
    """Return the transfers by source and destination, most bytes first."""
    rows = run.rows("""
        select coalesce(source, '(unknown)') as source,
               coalesce(destination, 'a client') as destination, count(*) as n,
               coalesce(sum(n_keys), 0)::bigint as n_keys,
               coalesce(sum(total_bytes), 0)::bigint as nbytes,
               coalesce(sum((epoch_ns(stop) - epoch_ns(start)) / 1e9), 0) as seconds
        from transfers group by 1, 2 order by nbytes desc, n desc, 1, 2
    """)
    return tuple(Pair(**row) for row in rows)


def spilled(run: Run) -> tuple[Spilled, ...]:
    """Return the results that workers spilled and read back, by worker and action."""
    rows = run.rows("""
        select coalesce(worker, '(unknown)') as worker, action, count(*) as n,
               coalesce(sum(nbytes), 0)::bigint as nbytes, sum(seconds) as seconds
        from spills group by 1, 2 order by nbytes desc, 1, 2
    """)
    return tuple(Spilled(**row) for row in rows)


def files(run: Run) -> tuple[FileUse, ...]:
    """Return the files that tasks read or wrote, most tasks first."""
    rows = run.rows("""
        select i.uri, i.mode, count(distinct i.key) filter (i.kind = 'claimed') as claimed,
               count(distinct i.key) filter (i.kind = 'seen') as seen,
               count(distinct a.worker) as workers,
               coalesce(string_agg(distinct k.prefix, ', ' order by k.prefix), '') as prefixes
        from task_inputs i
        left join attempts a on a.attempt = i.attempt
        left join _definitions k on k._key = i._key
        where i.uri is not null group by i.uri, i.mode
        order by greatest(claimed, seen) desc, i.uri, i.mode
    """)
    return tuple(FileUse(**row) for row in rows)


def departures(run: Run) -> tuple[Departure, ...]:
    """Return the workers that left before the end of the run, unexpected departures first."""
    rows = run.rows(
        """
        select worker, name, end_reason as reason, n_attempts from workers
        where end_reason is not null and worker is not null
        order by starts_with(end_reason, ?) desc, stop, worker
        """,
        UNEXPECTED,
    )
    return tuple(Departure(**row) for row in rows)

"""Transfers, P2P shuffles, spills to disk, files that tasks used, and workers that left."""

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
class Shuffled:
    """A P2P shuffle on all workers, with the runs of it that Dask repeated.

    Attributes
    ----------
    shuffle : str
        Dask's id of it.
    kind : str
        Dask's class of it: DataFrameShuffle or ArrayRechunk.
    n_workers : int
        Number of workers that took part.
    n_runs : int
        Number of runs of it.
    partitions_in, partitions_out, shards, messages : int or None
        Numbers of input and output partitions, of shards and of messages; None if unknown.
    nbytes : int
        Size of the shards that were sent, in bytes, with those that a worker sent to itself.
    seconds : float or None
        Time from taking the shards of a message until its receiver had taken it, in seconds, the
        sum of all messages; several are on their way at once.
    """

    shuffle: str
    kind: str
    n_workers: int
    n_runs: int
    partitions_in: int | None
    partitions_out: int | None
    shards: int | None
    messages: int | None
    nbytes: int
    seconds: float | None


@dataclass(frozen=True)
class Moved:
    """Bytes that moved between workers: transfers of results, and P2P shuffles.

    None where that is unknown: no worker was recorded, or only the barrier of a shuffle. Seconds
    are sums: several transfers or messages may be on their way at once.
    """

    transfers: int | None
    transfer_bytes: int | None
    transfer_seconds: float | None
    shuffles: int | None
    shuffle_bytes: int | None
    shuffle_seconds: float | None


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


def shuffled(run: Run) -> tuple[Shuffled, ...]:
    """Return the P2P shuffles, most bytes first."""
    rows = run.rows("""
        select shuffle, kind, count(distinct worker) as n_workers,
               count(distinct run_id) as n_runs, sum(partitions_in)::bigint as partitions_in,
               sum(partitions_out)::bigint as partitions_out, sum(shards)::bigint as shards,
               sum(messages)::bigint as messages, sum(sent_bytes)::bigint as nbytes,
               sum(send_seconds) as seconds
        from shuffles group by shuffle, kind order by nbytes desc, shuffle
    """)
    return tuple(Shuffled(**row) for row in rows)


def moved(run: Run) -> Moved:
    """Return the bytes that moved between workers."""
    [sent] = run.rows("""
        select count(*) as n, coalesce(sum(total_bytes), 0)::bigint as nbytes,
               coalesce(sum((epoch_ns(stop) - epoch_ns(start)) / 1e9), 0) as seconds
        from transfers
    """)
    [shuffles] = run.rows("""
        select count(distinct shuffle) as n, coalesce(sum(sent_bytes), 0)::bigint as nbytes,
               coalesce(sum(send_seconds), 0) as seconds
        from shuffles
    """)
    [known] = run.rows("""
        select exists (from processes where role = 'worker') or exists (from transfers)
                   as transfers,
               exists (from processes where role = 'worker' and transport <> 'import')
                   and not exists (from tasks where starts_with(key, 'shuffle-barrier-'))
                   or exists (from shuffles) as shuffles
    """)
    return Moved(
        transfers=sent["n"] if known["transfers"] else None,
        transfer_bytes=sent["nbytes"] if known["transfers"] else None,
        transfer_seconds=sent["seconds"] if known["transfers"] else None,
        shuffles=shuffles["n"] if known["shuffles"] else None,
        shuffle_bytes=shuffles["nbytes"] if known["shuffles"] else None,
        shuffle_seconds=shuffles["seconds"] if known["shuffles"] else None,
    )


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
               coalesce(string_agg(distinct coalesce(k.prefix, a.prefix), ', '
                                   order by coalesce(k.prefix, a.prefix)), '') as prefixes
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

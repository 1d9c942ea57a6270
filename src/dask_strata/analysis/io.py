"""What was read and written, by whom, of which files, as Darshan traced it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: A read of fewer bytes is small: less than a page of memory, or a block of a file system.
SMALL_BYTES = 4096

#: Opens and stats of one file that are so many, and more than its reads and writes, are a storm.
STORM = 100

#: Ways to have rows: see `select_io`.
BY = ("task", "prefix", "file")


@dataclass(frozen=True)
class PrefixIo:
    """What the tasks of a prefix read and wrote, against the time they computed."""

    prefix: str
    n_tasks: int
    read_bytes: int
    write_bytes: int
    io_seconds: float
    compute_seconds: float | None


@dataclass(frozen=True)
class FileIo:
    """What was done to a file by processes of the run.

    Attributes
    ----------
    repeated_bytes : int
        Bytes that were read when they had been read before, by anyone.
    small_reads : int
        Reads of fewer than `SMALL_BYTES`.
    opens, stats : int or None
        By Darshan's counters; null without any.
    """

    uri: str
    n_tasks: int
    reads: int
    read_bytes: int
    repeated_bytes: int
    small_reads: int
    writes: int
    write_bytes: int
    seconds: float
    opens: int | None
    stats: int | None

    @property
    def storm(self) -> bool:
        """Whether it was opened and looked at much more than it was read and written."""
        asked = (self.opens or 0) + (self.stats or 0)
        return asked >= STORM and asked > self.reads + self.writes


@dataclass(frozen=True)
class Compared:
    """Bytes that attempts counted in their own threads, and those that Darshan traced of them.

    Of attempts that have both; ``equal`` are those whose bytes differ by less than a page.
    """

    n_attempts: int
    counted_read_bytes: int
    traced_read_bytes: int
    counted_write_bytes: int
    traced_write_bytes: int
    equal_reads: int
    equal_writes: int


@dataclass(frozen=True)
class Io:
    """Input and output of a run, by Darshan.

    Attributes
    ----------
    n_logs, n_tied : int
        Logs, and those of processes of the run.
    attributed : mapping of str to tuple of int
        Operations and their bytes by how they were attributed, of logs of the run's processes.
    """

    n_logs: int
    n_tied: int
    attributed: dict[str, tuple[int, int]] = field(default_factory=dict)
    prefixes: tuple[PrefixIo, ...] = ()
    files: tuple[FileIo, ...] = ()
    compared: Compared | None = None

    @property
    def n_operations(self) -> int:
        """Operations of the run's processes."""
        return sum(n for n, _ in self.attributed.values())

    @property
    def certain(self) -> float | None:
        """Share of them of which it is certain which task did them, 0 to 1."""
        if not self.n_operations:
            return None
        return sum(self.attributed.get(by, (0, 0))[0] for by in CERTAIN) / self.n_operations


CERTAIN = ("thread", "alone")


def summarize_io(run: Run, *, files: bool = True) -> Io | None:
    """Return what was read and written; null if no log of Darshan's is in the run.

    Parameters
    ----------
    files : bool, optional
        Whether files are looked at one by one, which takes longest.
    """
    if not len(run["darshan_logs"]):
        return None
    logs = run.rows("select count(*) as n, count(tied_by) as tied from darshan_logs")[0]
    by = run.rows("""
        select attributed_by, count(*) as n, sum(length_bytes)::bigint as nbytes from io_segments
        where attributed_by is not null and module = 'DXT_POSIX' group by 1 order by n desc
    """)
    return Io(
        n_logs=logs["n"],
        n_tied=logs["tied"],
        attributed={row["attributed_by"]: (row["n"], row["nbytes"]) for row in by},
        prefixes=tuple(PrefixIo(**row) for row in run.rows(_PREFIXES)),
        files=tuple(FileIo(**row) for row in run.rows(_FILES)) if files else (),
        compared=_compared(run),
    )


def select_io(run: Run, by: str) -> pa.Table:
    """Return rows, one a task, prefix or file.

    Raises
    ------
    UsageError
        It is none of `BY`, or there is no log of Darshan's in the run.
    """
    if by not in BY:
        raise UsageError(f"No rows by {by}.", hint=f"There are: {', '.join(BY)}")
    require_logs(run)
    return run.sql({"task": _TASKS, "prefix": _PREFIXES, "file": _FILES}[by]).to_arrow()


def require_logs(run: Run) -> None:
    """Raise StrataError if there is no log of Darshan's in a run."""
    if not len(run["darshan_logs"]):
        raise StrataError(
            f"No log of Darshan's is in {run.path}.",
            hint=f"Add some: dask-strata import --into {run.path} LOGS",
        )


_TASKS = f"""
    with traced as (
        select key, key_type, count(*) filter (operation = 'read') as reads,
               count(*) filter (operation = 'read' and length_bytes < {SMALL_BYTES}) as small_reads,
               count(*) filter (operation = 'write') as writes, count(distinct uri) as n_files
        from io_segments where attempt is not null and module = 'DXT_POSIX' group by all
    ), counted as (
        select key, key_type, sum(read_bytes)::bigint as counted_read_bytes,
               sum(write_bytes)::bigint as counted_write_bytes
        from attempts group by all
    )
    select t.key, t.key_type, t.prefix, t.worker, t.compute_seconds, t.io_seconds,
           t.io_read_bytes, t.io_write_bytes, coalesce(s.reads, 0) as reads,
           coalesce(s.small_reads, 0) as small_reads, coalesce(s.writes, 0) as writes,
           coalesce(s.n_files, 0) as n_files, c.counted_read_bytes, c.counted_write_bytes
    from tasks t left join traced s using (key, key_type)
    left join counted c using (key, key_type)
    where t.io_seconds is not null
    order by t.io_read_bytes + t.io_write_bytes desc, t.key
"""  # noqa: S608  numbers are ours

_PREFIXES = """
    select coalesce(prefix, '(unknown)') as prefix, count(*) as n_tasks,
           sum(io_read_bytes)::bigint as read_bytes, sum(io_write_bytes)::bigint as write_bytes,
           sum(io_seconds) as io_seconds, sum(compute_seconds) as compute_seconds
    from tasks where io_seconds is not null
    group by 1 order by read_bytes + write_bytes desc, 1
"""

_FILES = f"""
    with ours as (
        select * from io_segments
        where attributed_by is not null and module = 'DXT_POSIX' and uri is not null
    ), before as (
        -- How far the file had been read, by reads that begin no later.
        select *, max("offset" + length_bytes) over (
                   partition by uri order by "offset", length_bytes desc
                   rows between unbounded preceding and 1 preceding) as seen
        from ours where operation = 'read'
    ), again as (
        select uri, sum(greatest(0, least(seen, "offset" + length_bytes) - "offset"))::bigint
                   as repeated_bytes
        from before where seen is not null group by uri
    ), used as (
        select uri, count(distinct (key, key_type)) filter (key is not null) as n_tasks,
               count(*) filter (operation = 'read') as reads,
               coalesce(sum(length_bytes) filter (operation = 'read'), 0)::bigint as read_bytes,
               count(*) filter (operation = 'read' and length_bytes < {SMALL_BYTES}) as small_reads,
               count(*) filter (operation = 'write') as writes,
               coalesce(sum(length_bytes) filter (operation = 'write'), 0)::bigint as write_bytes,
               sum(seconds) as seconds
        from ours group by uri
    ), asked as (
        select uri, (sum(value) filter (counter = 'POSIX_OPENS'))::bigint as opens,
               (sum(value) filter (counter = 'POSIX_STATS'))::bigint as stats
        from darshan_counters
        where module = 'POSIX' and log in (select log from darshan_logs where tied_by is not null)
        group by uri
    )
    select coalesce(u.uri, a.uri) as uri, coalesce(n_tasks, 0) as n_tasks,
           coalesce(reads, 0) as reads, coalesce(read_bytes, 0) as read_bytes,
           coalesce(repeated_bytes, 0) as repeated_bytes, coalesce(small_reads, 0) as small_reads,
           coalesce(writes, 0) as writes, coalesce(write_bytes, 0) as write_bytes,
           coalesce(seconds, 0) as seconds, opens, stats
    from used u full outer join asked a on a.uri = u.uri left join again r on r.uri = u.uri
    where coalesce(u.uri, a.uri) is not null
    order by read_bytes + write_bytes desc, uri
"""  # noqa: S608  numbers are ours


def _compared(run: Run) -> Compared | None:
    row: dict[str, Any] = run.rows(f"""
        select count(*) as n_attempts, sum(a.read_bytes)::bigint as counted_read_bytes,
               sum(i.read_bytes)::bigint as traced_read_bytes,
               sum(a.write_bytes)::bigint as counted_write_bytes,
               sum(i.write_bytes)::bigint as traced_write_bytes,
               count(*) filter (abs(a.read_bytes - i.read_bytes) < {SMALL_BYTES}) as equal_reads,
               count(*) filter (abs(a.write_bytes - i.write_bytes) < {SMALL_BYTES}) as equal_writes
        from attempts a join _io_attempts i on i.attempt = a.attempt
        where a.read_bytes is not null and a.write_bytes is not null
    """)[0]  # noqa: S608  numbers are ours
    return Compared(**row) if row["n_attempts"] else None

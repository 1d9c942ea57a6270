"""Input and output of a run as Darshan traced it: by task, prefix and file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: Bytes below which a read is small: a page of memory, or a block of a file system.
SMALL_BYTES = 4096

#: Least number of opens and stats of a file that are a storm, if they exceed reads and writes.
STORM = 100

#: Kinds of rows of `select_io`.
BY = ("task", "prefix", "file")


@dataclass(frozen=True)
class PrefixIo:
    """Input and output of the tasks of a prefix, and the time in their functions."""

    prefix: str
    n_tasks: int
    read_bytes: int
    write_bytes: int
    io_seconds: float
    compute_seconds: float | None


@dataclass(frozen=True)
class FileIo:
    """Operations of the run's processes on a file.

    Attributes
    ----------
    repeated_bytes : int
        Bytes that were read again, by the same or another process.
    small_reads : int
        Reads of fewer than `SMALL_BYTES`.
    opens, stats : int or None
        Darshan's counters; None without counters of the file.
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
        """Whether opens and stats are many, and more than reads and writes: see `STORM`."""
        lookups = (self.opens or 0) + (self.stats or 0)
        return lookups >= STORM and lookups > self.reads + self.writes


@dataclass(frozen=True)
class Compared:
    """Bytes that the kernel counted for the threads of attempts, and that Darshan traced.

    Only attempts with both numbers count. ``equal_reads`` and ``equal_writes`` are the numbers
    of attempts in which both differ by less than `SMALL_BYTES`.
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
    """Input and output of a run as Darshan traced it.

    Attributes
    ----------
    n_logs, n_tied : int
        Number of logs, and of those that were matched to a process of the run.
    attributed : mapping of str to tuple of int
        Number of operations and their bytes, by the way they were attributed to tasks; only of
        matched logs.
    prefixes : tuple of PrefixIo
        By prefix, most bytes first.
    files : tuple of FileIo
        By file, most bytes first.
    compared : Compared or None
        Comparison with the kernel's counts; None if no attempt has both.
    """

    n_logs: int
    n_tied: int
    attributed: dict[str, tuple[int, int]] = field(default_factory=dict)
    prefixes: tuple[PrefixIo, ...] = ()
    files: tuple[FileIo, ...] = ()
    compared: Compared | None = None

    @property
    def n_operations(self) -> int:
        """Number of operations of the run's processes."""
        return sum(n for n, _ in self.attributed.values())

    @property
    def certain(self) -> float | None:
        """Share of the operations whose task is certain, 0 to 1; None without operations."""
        if not self.n_operations:
            return None
        return sum(self.attributed.get(by, (0, 0))[0] for by in CERTAIN) / self.n_operations


#: Ways of attribution that leave no doubt about the task.
CERTAIN = ("thread", "alone")


def summarize_io(run: Run, *, files: bool = True) -> Io | None:
    """Return the input and output of a run; None if the run has no Darshan log.

    Parameters
    ----------
    run : Run
        The run.
    files : bool, optional
        Whether to include files, which takes the longest.
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
    """Return the input and output of a run, one row per task, prefix or file.

    Parameters
    ----------
    run : Run
        The run.
    by : str
        task, prefix or file.

    Raises
    ------
    UsageError
        `by` is none of these.
    StrataError
        The run has no Darshan log.
    """
    if by not in BY:
        raise UsageError(f"No rows by {by}.", hint=f"There are: {', '.join(BY)}")
    require_logs(run)
    return run.sql({"task": _TASKS, "prefix": _PREFIXES, "file": _FILES}[by]).to_arrow()


def require_logs(run: Run) -> None:
    """Raise an error if a run has no Darshan log.

    Parameters
    ----------
    run : Run
        The run.

    Raises
    ------
    StrataError
        The run has no Darshan log.
    """
    if not len(run["darshan_logs"]):
        raise StrataError(
            f"{run.path} has no Darshan log.",
            hint=f"Add logs: dask-strata import --into {run.path} LOGS",
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
"""  # noqa: S608  numbers from constants

_PREFIXES = """
    select coalesce(prefix, '(unknown)') as prefix, count(*) as n_tasks,
           sum(io_read_bytes)::bigint as read_bytes, sum(io_write_bytes)::bigint as write_bytes,
           sum(io_seconds) as io_seconds, sum(compute_seconds) as compute_seconds
    from tasks where io_seconds is not null
    group by 1 order by read_bytes + write_bytes desc, 1
"""

_FILES = f"""
    with traced as (
        select * from io_segments
        where attributed_by is not null and module = 'DXT_POSIX' and uri is not null
    ), ordered_reads as (
        -- The end of the file's part that reads with no later offset cover.
        select *, max("offset" + length_bytes) over (
                   partition by uri order by "offset", length_bytes desc
                   rows between unbounded preceding and 1 preceding) as covered
        from traced where operation = 'read'
    ), again as (
        select uri, sum(greatest(0, least(covered, "offset" + length_bytes) - "offset"))::bigint
                   as repeated_bytes
        from ordered_reads where covered is not null group by uri
    ), used as (
        select uri, count(distinct (key, key_type)) filter (key is not null) as n_tasks,
               count(*) filter (operation = 'read') as reads,
               coalesce(sum(length_bytes) filter (operation = 'read'), 0)::bigint as read_bytes,
               count(*) filter (operation = 'read' and length_bytes < {SMALL_BYTES}) as small_reads,
               count(*) filter (operation = 'write') as writes,
               coalesce(sum(length_bytes) filter (operation = 'write'), 0)::bigint as write_bytes,
               sum(seconds) as seconds
        from traced group by uri
    ), counted as (
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
    from used u full outer join counted a on a.uri = u.uri left join again r on r.uri = u.uri
    where coalesce(u.uri, a.uri) is not null
    order by read_bytes + write_bytes desc, uri
"""  # noqa: S608  numbers from constants


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
    """)[0]  # noqa: S608  numbers from constants
    return Compared(**row) if row["n_attempts"] else None

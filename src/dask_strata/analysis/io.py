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
BY = ("task", "prefix", "file", "host", "log", "total")


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
class TiedIo:
    """Bytes of logs by host, and by the evidence for their task or process.

    Attributes
    ----------
    host : str or None
        Host name; None if no log of these has one.
    tied_to : str or None
        task, process, host, or None.
    attributed_by : str or None
        How it was attributed, see the column ``attributed_by`` of ``io_totals``.
    reason : str or None
        Why it is tied to no task, or to nothing; None for a task.
    n_logs, n_operations : int
        Number of logs, and of traced reads and writes.
    certainty : float or None
        Least certainty of a process; None without a process.
    """

    host: str | None
    tied_to: str | None
    attributed_by: str | None
    reason: str | None
    n_logs: int
    n_operations: int
    read_bytes: int
    write_bytes: int
    certainty: float | None


@dataclass(frozen=True)
class FileIo:
    """Operations on a file in all logs, except the recorder's own.

    Attributes
    ----------
    task_read_bytes, task_write_bytes : int
        Bytes of operations that are tied to a task.
    untraced_bytes : int or None
        Bytes that Darshan counted, but did not trace; None without counters of the file.
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
    task_read_bytes: int = 0
    task_write_bytes: int = 0
    untraced_bytes: int | None = None

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
    totals : tuple of TiedIo
        All bytes of all logs, by host and by the evidence for their task or process.
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
    totals: tuple[TiedIo, ...] = ()
    prefixes: tuple[PrefixIo, ...] = ()
    files: tuple[FileIo, ...] = ()
    compared: Compared | None = None

    @property
    def n_operations(self) -> int:
        """Number of operations of the run's processes."""
        return sum(n for n, _ in self.attributed.values())

    @property
    def read_bytes(self) -> int:
        """Bytes read in all logs."""
        return sum(total.read_bytes for total in self.totals)

    @property
    def write_bytes(self) -> int:
        """Bytes written in all logs."""
        return sum(total.write_bytes for total in self.totals)

    @property
    def n_operations_of_users(self) -> int:
        """Number of operations of the run's processes without the recorder's own."""
        return self.n_operations - self.attributed.get("recorder", (0, 0))[0]

    @property
    def certain(self) -> float | None:
        """Share of the operations whose task is certain, 0 to 1; None without operations.

        The recorder's own operations do not count.
        """
        n = self.n_operations_of_users
        return sum(self.attributed.get(by, (0, 0))[0] for by in CERTAIN) / n if n else None


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
        where attributed_by is not null and module = 'DXT_POSIX'
          and log in (select log from darshan_logs where tied_by is not null)
        group by 1 order by n desc
    """)
    return Io(
        n_logs=logs["n"],
        n_tied=logs["tied"],
        attributed={row["attributed_by"]: (row["n"], row["nbytes"]) for row in by},
        totals=tuple(TiedIo(**row) for row in run.rows(_TOTALS)),
        prefixes=tuple(PrefixIo(**row) for row in run.rows(_PREFIXES)),
        files=tuple(FileIo(**row) for row in run.rows(_FILES)) if files else (),
        compared=_compared(run),
    )


def select_io(run: Run, by: str) -> pa.Table:
    """Return the input and output of a run, one row per object of a kind.

    Parameters
    ----------
    run : Run
        The run.
    by : str
        task, prefix, file, host, log, or total: host and evidence for a task or process.

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
    return run.sql(_QUERIES[by]).to_arrow()


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
            f"{run.location} has no Darshan log.",
            hint=f"Add logs: dask-strata import --into {run.location} LOGS",
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
    with own as (
        -- Files of the run itself: the recorder's operations are on no other file.
        select uri from io_segments group by uri having bool_and(attributed_by = 'recorder')
    ), traced as (
        select * from io_segments
        where module = 'DXT_POSIX' and uri is not null
          and attributed_by is distinct from 'recorder'
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
               coalesce(sum(length_bytes) filter (operation = 'read' and attempt is not null), 0)
                   ::bigint as task_read_bytes,
               coalesce(sum(length_bytes) filter (operation = 'write' and attempt is not null), 0)
                   ::bigint as task_write_bytes,
               sum(seconds) as seconds
        from traced group by uri
    ), traced_in_log as (
        select log, uri, sum(length_bytes) as nbytes from io_segments
        where module = 'DXT_POSIX' group by all
    ), counted_in_log as (
        select log, uri, sum(value) filter (counter = 'POSIX_OPENS') as opens,
               sum(value) filter (counter = 'POSIX_STATS') as stats,
               coalesce(sum(value) filter (
                   counter in ('POSIX_BYTES_READ', 'POSIX_BYTES_WRITTEN')), 0) as nbytes,
               coalesce(sum(value) filter (
                   counter in ('STDIO_BYTES_READ', 'STDIO_BYTES_WRITTEN')), 0) as buffered
        from darshan_counters where module in ('POSIX', 'STDIO') group by all
    ), counted as (
        select c.uri, sum(c.opens)::bigint as opens, sum(c.stats)::bigint as stats,
               sum(greatest(0, c.nbytes - coalesce(t.nbytes, 0)) + c.buffered)::bigint
                   as untraced_bytes
        from counted_in_log c left join traced_in_log t on t.log = c.log and t.uri = c.uri
        anti join own on own.uri = c.uri
        group by c.uri
    )
    select coalesce(u.uri, a.uri) as uri, coalesce(n_tasks, 0) as n_tasks,
           coalesce(reads, 0) as reads, coalesce(read_bytes, 0) as read_bytes,
           coalesce(repeated_bytes, 0) as repeated_bytes, coalesce(small_reads, 0) as small_reads,
           coalesce(writes, 0) as writes, coalesce(write_bytes, 0) as write_bytes,
           coalesce(seconds, 0) as seconds, opens, stats,
           coalesce(task_read_bytes, 0) as task_read_bytes,
           coalesce(task_write_bytes, 0) as task_write_bytes, untraced_bytes
    from used u full outer join counted a on a.uri = u.uri left join again r on r.uri = u.uri
    where coalesce(u.uri, a.uri) is not null
    order by read_bytes + write_bytes desc, uri
"""  # noqa: S608  numbers from constants

_TOTALS = """
    from (
        select host, tied_to, attributed_by, reason, count(distinct log) as n_logs,
               sum(n_operations)::bigint as n_operations, sum(read_bytes)::bigint as read_bytes,
               sum(write_bytes)::bigint as write_bytes, min(certainty) as certainty
        from io_totals group by all
    )
    order by host is null, host,
             case tied_to when 'task' then 1 when 'process' then 2 when 'host' then 3 else 4 end,
             read_bytes + write_bytes desc, attributed_by, reason
"""

_SUMS = """
    coalesce(sum(n_operations), 0)::bigint as n_operations,
    coalesce(sum(read_bytes), 0)::bigint as read_bytes,
    coalesce(sum(write_bytes), 0)::bigint as write_bytes,
    coalesce(sum(read_bytes) filter (tied_to = 'task'), 0)::bigint as task_read_bytes,
    coalesce(sum(write_bytes) filter (tied_to = 'task'), 0)::bigint as task_write_bytes,
    coalesce(sum(read_bytes) filter (attributed_by = 'recorder'), 0)::bigint
        as recorder_read_bytes,
    coalesce(sum(write_bytes) filter (attributed_by = 'recorder'), 0)::bigint
        as recorder_write_bytes
"""

_HOSTS = f"""
    select host, count(distinct log) as n_logs,
           count(distinct log) filter (tied_to in ('task', 'process')) as n_tied, {_SUMS},
           coalesce(sum(read_bytes) filter (tied_to is null or tied_to = 'host'), 0)::bigint
               as untied_read_bytes,
           coalesce(sum(write_bytes) filter (tied_to is null or tied_to = 'host'), 0)::bigint
               as untied_write_bytes
    from io_totals t group by host
    order by sum(t.read_bytes) + sum(t.write_bytes) desc, host
"""  # noqa: S608  columns from constants

_LOGS = f"""
    select log, any_value(l.file) as file, any_value(t.host) as host,
           any_value(t.program) as program, any_value(l.pid) as pid, any_value(t.worker) as worker,
           any_value(l.tied_by) as tied_by, any_value(t.certainty) as certainty,
           any_value(t.reason) filter (l.tied_by is null
               and attributed_by is distinct from 'recorder') as reason, {_SUMS}
    from io_totals t join darshan_logs l using (log)
    group by log order by sum(t.read_bytes) + sum(t.write_bytes) desc, log
"""  # noqa: S608  columns from constants

_QUERIES = {
    "task": _TASKS,
    "prefix": _PREFIXES,
    "file": _FILES,
    "host": _HOSTS,
    "log": _LOGS,
    "total": _TOTALS,
}


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

"""Profiles: time by owner of the code, by module, by function and by thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dask_strata.analysis.stacks import STACK_KINDS, has_stacks
from dask_strata.analysis.tasks import Selection, only, ordered
from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Columns that identify a row, by kind of row.
KINDS = {
    "function": ("name", "module", "line", "is_coroutine", "waiting", "owner", "package", "clock"),
    "module": ("module", "owner", "package", "clock"),
    "owner": ("owner", "package", "clock"),
    "thread": ("process", "thread_name", "thread", "clock"),
}

#: Most functions in a summary.
_SHOWN = 5


@dataclass(frozen=True)
class Share:
    """Time in the code of one owner, and its share of the profiled time; both without waiting."""

    owner: str
    seconds: float
    share: float


@dataclass(frozen=True)
class TopFunction:
    """A function with the time in itself, without the functions that it called."""

    name: str
    module: str
    line: int | None
    is_coroutine: bool | None
    own_seconds: float


@dataclass(frozen=True)
class ProfileSummary:
    """Summary of a profile by one clock; ``seconds`` are without ``waiting_seconds``."""

    clock: str | None
    n_processes: int
    n_functions: int
    n_coroutines: int
    seconds: float
    waiting_seconds: float
    shares: tuple[Share, ...]
    top: tuple[TopFunction, ...]


def summarize_profile(run: Run) -> ProfileSummary | None:
    """Return the summary of a run's profile; None if the run has none.

    If there are profiles by several clocks, the summary is of the one with most rows.

    Parameters
    ----------
    run : Run
        The run.
    """
    if not len(run["functions"]):
        return None
    counts = run.rows("""
        select clock, count(distinct coalesce(file, process)) as n_processes,
               count(distinct (module, line, name)) as n_functions,
               count(distinct (module, line, name)) filter (is_coroutine) as n_coroutines,
               coalesce(sum(own_seconds) filter (not waiting), 0) as seconds,
               coalesce(sum(own_seconds) filter (waiting), 0) as waiting_seconds
        from functions group by clock order by count(*) desc, clock limit 1
    """)[0]
    shares = run.rows(
        """
        select case when owner = 'library' then package
                    else coalesce(owner, 'unknown') end as owner, sum(own_seconds) as seconds
        from functions where not waiting and clock is not distinct from ?
        group by 1 order by seconds desc, 1
        """,
        counts["clock"],
    )
    top = run.rows(
        """
        select name, module, line, bool_or(is_coroutine) as is_coroutine,
               sum(own_seconds) as own_seconds
        from functions where not waiting and clock is not distinct from ?
        and owner is distinct from 'recorder'
        group by name, module, line order by own_seconds desc, name limit ?
        """,
        counts["clock"],
        _SHOWN,
    )
    whole = counts["seconds"] or 1.0
    return ProfileSummary(
        **counts,
        shares=tuple(Share(r["owner"], r["seconds"], r["seconds"] / whole) for r in shares),
        top=tuple(TopFunction(**row) for row in top),
    )


def profile_source(run: Run, by: str) -> str:
    """Return which profile a question is about: Yappi's if it is on record, else Dask's own.

    Parameters
    ----------
    run : Run
        The run.
    by : str
        Kind of rows, which only one of both may have.

    Returns
    -------
    str
        yappi or dask.
    """
    if by not in KINDS:
        return "dask"
    if by not in STACK_KINDS or len(run["functions"]) or not has_stacks(run):
        return "yappi"
    return "dask"


def select_profile(  # noqa: PLR0913
    run: Run,
    *,
    by: str = "function",
    process: str | None = None,
    waiting: bool = False,
    sort: str | None = None,
    limit: int = 0,
) -> Selection:
    """Return sums of the profile's rows.

    Parameters
    ----------
    run : Run
        The run.
    by : str
        Kind of rows: function, module, owner or thread.
    process : str, optional
        Only of this process: its id, address or name.
    waiting : bool, optional
        Include functions whose own time is waiting.
    sort : str, optional
        Column to sort by, largest first; smallest first if the name begins with ``-``.
    limit : int, optional
        Most rows to return; 0 for all.

    Raises
    ------
    StrataError
        No profile is on record.
    UsageError
        There is no such process or column.
    """
    if not len(run["functions"]):
        raise StrataError(
            "No profile is on record in this run.",
            hint="Record one: dask-strata record --yappi cpu SCRIPT",
        )
    if by not in KINDS:
        raise UsageError(f"No sums by {by}.", hint=f"There are: {', '.join(KINDS)}")
    columns = ", ".join(KINDS[by])
    total = "" if by in ("module", "owner", "thread") else "sum(total_seconds) as total_seconds, "
    condition = "" if waiting else "and not waiting"
    rows = run.rows(
        f"""
        select {columns}, sum(ncall)::bigint as ncall, {total}sum(own_seconds) as own_seconds,
               sum(own_seconds) / nullif(sum(sum(own_seconds)) over (partition by clock), 0)
                   as share
        from functions
        where (? is null or process = ?) {condition}
        group by {columns} order by own_seconds desc, {columns}
        """,  # noqa: S608  names of columns
        *[None if process is None else _process(run, process)] * 2,
    )
    table = pa.Table.from_pylist(rows) if rows else pa.table({"own_seconds": pa.array([], "f8")})
    if sort:
        table = ordered(table, sort)
    return Selection(table.slice(0, limit) if limit else table, len(table))


def _process(run: Run, named: str) -> str:
    rows = run.rows(
        "select process from processes where process = ? or address = ? or name = ? "
        "order by process in (select process from functions) desc",
        named,
        named,
        named,
    )
    found = rows[0]["process"] if rows else named
    only(run["functions"].to_arrow(), "process", found, "function of the profile")
    return str(found)

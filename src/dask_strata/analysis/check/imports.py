"""Findings about an imported run.

The files that were imported have no counters of Dask's, so that a loss shows only as a
contradiction between rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.words import count
from dask_strata.schema.values import SCHEDULER_STATES, WORKER_STATES

if TYPE_CHECKING:
    from dask_strata.run import Run


def check_import(run: Run) -> Iterator[Finding]:
    """Yield findings about the completeness of an imported run.

    Parameters
    ----------
    run : Run
        The run.

    Raises
    ------
    StrataError
        The Parquet of a table differs from its checksum, or cannot be read.
    """
    run.record.tables.verify()
    yield Finding(
        "note",
        "import",
        "the imported files have no event counts: a loss shows only as a gap between events",
    )
    yield from _files(run)
    yield from _set_aside(run)
    yield from _silent(run)
    yield from _one_ended(run)
    yield from _chains(run, "scheduler_transitions", "scheduler", "process")
    yield from _chains(run, "worker_transitions", "workers", "worker")
    yield from _unknown_states(run)
    yield from _odd_times(run)
    yield from _graph(run)
    yield from _totals(run)


def _files(run: Run) -> Iterator[Finding]:
    for row in run.rows("select * from imports where kind is null order by file"):
        parts = [f"{row['kept']:,} of {row['rows']:,} rows are in the tables"]
        if row["resent"]:
            parts.append(f"{row['resent']:,} repeat a transfer (table transfer_resends)")
        yield Finding("ok", row["file"], ", ".join(parts))
        if row["salvaged"]:
            yield Finding(
                "note",
                row["file"],
                f"{count(row['salvaged'], 'row')} salvaged, whose last value may lack digits",
            )


def _set_aside(run: Run) -> Iterator[Finding]:
    for row in run.rows(
        "select file, reason, count(*) as n, min(line) as line from set_aside "
        "group by all order by file, line"
    ):
        yield Finding(
            "missing",
            row["file"],
            f"{count(row['n'], 'row')} set aside, first line {row['line']}: {row['reason']} "
            f"(kept in aside/{row['file']})",
        )


def _silent(run: Run) -> Iterator[Finding]:
    named = run.rows(
        "select count(*) as n, min(address) as name from processes "
        "where role = 'worker' and not contains(address, '://')"
    )[0]
    if named["n"]:
        yield Finding(
            "missing",
            "workers",
            f"{count(named['n'], 'worker')} known only by name (for example {named['name']}): "
            "without an address, their rows cannot be joined with those of other processes",
        )
        return
    nameless = run.rows(
        "select count(*) as n from worker_events where worker is null and action = 'add'"
    )[0]["n"]
    if nameless:
        yield Finding(
            "note",
            "workers",
            f"{count(nameless, 'worker')} without an address: missing rows of them cannot be found",
        )
    rows = run.rows("""
        with declared as (
            select distinct worker, regexp_extract(worker, '://\\[?([^/]*?)\\]?:[0-9]+$', 1) as host
            from worker_events where worker is not null
        ), reporting as (select address from processes where role = 'worker'),
        peers as (
            select peer as worker, count(*) as n from transfer_ends
            where peer is not null group by peer
        ), workers as (
            select d.worker, d.host, r.address is not null as reported, coalesce(p.n, 0) as n_seen
            from declared d left join reporting r on r.address = d.worker
            left join peers p on p.worker = d.worker
        )
        select host, count(*) as declared, count(*) filter (reported) as reporting,
               count(*) filter (not reported and n_seen > 0) as seen,
               coalesce(sum(n_seen) filter (not reported), 0)::bigint as transfers,
               string_agg(worker, ', ' order by worker) filter (not reported) as silent
        from workers group by host having count(*) filter (not reported) > 0 order by host
    """)
    for row in rows:
        n = row["declared"] - row["reporting"]
        text = (
            f"no rows from {n:,} of {count(row['declared'], 'worker')} on {row['host']}"
            if row["reporting"]
            else f"silent host {row['host']}: no rows from its {count(n, 'worker')}"
        )
        if row["seen"]:
            text += (
                f", but others exchanged {count(row['transfers'], 'transfer')} with "
                f"{row['seen']:,} of them"
            )
        else:
            text += ", and others exchanged no data with them: they may have had no tasks"
        yield Finding("missing" if row["seen"] else "note", "workers", f"{text} ({row['silent']})")


def _one_ended(run: Run) -> Iterator[Finding]:
    rows = run.rows("""
        with reporting as (select distinct worker from transfer_ends)
        select seen_by, count(*) as n from transfers
        where (seen_by = 'destination' and source in (from reporting))
           or (seen_by = 'source' and destination in (from reporting))
        group by seen_by order by seen_by
    """)
    for row in rows:
        silent = "sender" if row["seen_by"] == "destination" else "receiver"
        yield Finding(
            "missing",
            "workers",
            f"{count(row['n'], 'transfer')} not reported by the {silent}, which reported others",
        )


def _chains(run: Run, table: str, owner: str, process_column: str) -> Iterator[Finding]:
    rows = run.rows(
        f"""
        with steps as (
            select start_state, finish_state, lag(finish_state) over (
                       partition by "{process_column}", key, key_type order by time, seq) as before
            from {table}
        )
        select before || '|' || start_state || '->' || finish_state as kind, count(*) as n
        from steps where before is not null and before <> start_state
        group by kind order by n desc, kind
        """  # noqa: S608  names of tables and columns
    )
    if rows:
        total = sum(row["n"] for row in rows)
        kinds = ", ".join(f"{row['kind']} {row['n']:,}" for row in rows)
        yield Finding(
            "note",
            owner,
            f"{count(total, 'chain break')}: a transition starts in another state than the one "
            f"before ended in, because events were lost or the key was submitted again: {kinds}",
        )


def _unknown_states(run: Run) -> Iterator[Finding]:
    for table, known in (
        ("scheduler_transitions", SCHEDULER_STATES),
        ("worker_transitions", WORKER_STATES),
    ):
        rows = run.rows(
            f"""
            select state, count(*) as n from (
                select start_state as state from {table} union all select finish_state from {table}
            ) where not list_contains(?, state) group by state order by state
            """,  # noqa: S608  names of tables and columns
            list(known),
        )
        for row in rows:
            yield Finding(
                "note",
                table.partition("_")[0],
                f"state {row['state']} ({count(row['n'], 'time')}) is not one of Dask's; its rows "
                "are kept",
            )


def _odd_times(run: Run) -> Iterator[Finding]:
    """Find times over a month from the median, and intervals that end before their start."""
    for table in ("scheduler_transitions", "worker_transitions", "transfer_ends"):
        row = run.rows(
            f"""
            with middle as (select median(epoch_ns(time)) as t from {table})
            select count(*) as n, arg_min(file, line) as file, min(line) as line
            from {table}, middle where abs(epoch_ns(time) - t) > 31 * 86400 * 1e9
            """  # noqa: S608  names of tables and columns
        )[0]
        if row["n"]:
            yield Finding(
                "note",
                row["file"],
                f"{count(row['n'], 'row')} more than a month away from the median time, "
                f"first line {row['line']}",
            )
    row = run.rows("""
        select count(*) as n from (
            select start, stop from transfer_ends
            union all select i.start, i.stop
            from (select unnest(startstops) as i from scheduler_transitions)
        ) where epoch_ns(stop) < epoch_ns(start)
    """)[0]
    if row["n"]:
        yield Finding(
            "note", "import", f"{count(row['n'], 'interval')} with an end before the start"
        )


def _graph(run: Run) -> Iterator[Finding]:
    if not len(run["graph_tasks"]):
        return
    row = run.rows("""
        with known as (select distinct key, key_type from graph_tasks),
        recorded as (select distinct key, key_type from tasks)
        select (select count(*) from known anti join recorded using (key, key_type)) as without,
               (select count(*) from recorded anti join known using (key, key_type)) as outside
    """)[0]
    if row["without"]:
        yield Finding(
            "note",
            "graph",
            f"{count(row['without'], 'task')} of the graphs without an event: fused into other "
            "tasks, never executed, or lost",
        )
    if row["outside"]:
        yield Finding(
            "missing",
            "graph",
            f"{count(row['outside'], 'task')} with events that no graph contains",
        )


def _totals(run: Run) -> Iterator[Finding]:
    row = run.rows("""
        with kept as (select process, number, sum(nbytes) as n from transfer_end_keys group by all)
        select count(*) as n from transfer_ends e join kept k using (process, number)
        where e.total_bytes <> k.n
    """)[0]
    if row["n"]:
        yield Finding(
            "note",
            "workers",
            f"{count(row['n'], 'transfer')} whose total size is not the sum of the keys' sizes",
        )
    if not len(run["transfer_ends"]) and run.rows(
        "select 1 from scheduler_transitions where startstops is not null limit 1"
    ):
        yield Finding(
            "note",
            "scheduler",
            "without the workers' transfers, the time in which a task fetched its dependencies "
            "cannot be separated from the time in its function",
        )

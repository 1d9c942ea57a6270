"""What is known to be missing from a run that was imported: there are no counters of Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.finding import Finding
from dask_strata.schema.states import SCHEDULER_STATES, WORKER_STATES

if TYPE_CHECKING:
    from dask_strata.run import Run


def check_import(run: Run) -> Iterator[Finding]:
    """Yield what the imported rows themselves tell about their completeness."""
    yield Finding(
        "note", "import", "nobody counted these events: what was lost shows only by its traces"
    )
    yield from _files(run)
    yield from _set_aside(run)
    yield from _silent(run)
    yield from _one_ended(run)
    yield from _chains(run, "scheduler_transitions", "scheduler", "process")
    yield from _chains(run, "worker_transitions", "workers", "worker")
    yield from _unknown_states(run)
    yield from _graph(run)
    yield from _totals(run)


def _files(run: Run) -> Iterator[Finding]:
    for row in run.rows("select * from imports order by file"):
        parts = [f"{row['kept']:,} of {row['rows']:,} rows are in the tables"]
        if row["resent"]:
            parts.append(f"{row['resent']:,} told again of a transfer (table transfer_resends)")
        yield Finding("ok", row["file"], ", ".join(parts))
        if row["salvaged"]:
            yield Finding(
                "note",
                row["file"],
                f"{row['salvaged']:,} rows were salvaged: their last value may lack digits",
            )


def _set_aside(run: Run) -> Iterator[Finding]:
    for row in run.rows(
        "select file, reason, count(*) as n, min(line) as line from set_aside "
        "group by all order by file, line"
    ):
        yield Finding(
            "missing",
            row["file"],
            f"{row['n']:,} {'row' if row['n'] == 1 else 'rows'} set aside, in "
            f"{run.path / 'aside' / row['file']}: {row['reason']} (first in line {row['line']})",
        )


def _silent(run: Run) -> Iterator[Finding]:
    rows = run.rows("""
        with declared as (
            select distinct worker, regexp_extract(worker, '://\\[?([^/]*?)\\]?:[0-9]+$', 1) as host
            from worker_events where worker is not null
        ), heard as (select address from processes where role = 'worker'),
        met as (
            select peer as worker, count(*) as n from transfer_ends
            where peer is not null group by peer
        ), workers as (
            select d.worker, d.host, h.address is not null as heard, coalesce(m.n, 0) as met
            from declared d left join heard h on h.address = d.worker
            left join met m on m.worker = d.worker
        )
        select host, count(*) as declared, count(*) filter (heard) as heard,
               count(*) filter (not heard and met > 0) as met,
               coalesce(sum(met) filter (not heard), 0)::bigint as transfers,
               string_agg(worker, ', ' order by worker) filter (not heard) as silent
        from workers group by host having count(*) filter (not heard) > 0 order by host
    """)
    for row in rows:
        n = row["declared"] - row["heard"]
        whole = not row["heard"]
        said = (
            f"silent host {row['host']}: none of its {n:,} workers reported anything"
            if whole
            else f"{n:,} of {row['declared']:,} workers on {row['host']} reported nothing"
        )
        if row["met"]:
            said += (
                f", though others exchanged {row['transfers']:,} transfers with "
                f"{row['met']:,} of them"
            )
        else:
            said += ", nor did others exchange data with them: they may have had nothing to do"
        yield Finding("missing" if row["met"] else "note", "workers", f"{said} ({row['silent']})")


def _one_ended(run: Run) -> Iterator[Finding]:
    rows = run.rows("""
        with heard as (select distinct worker from transfer_ends)
        select seen_by, count(*) as n from transfers
        where (seen_by = 'destination' and source in (from heard))
           or (seen_by = 'source' and destination in (from heard))
        group by seen_by order by seen_by
    """)
    for row in rows:
        silent = "sender" if row["seen_by"] == "destination" else "receiver"
        yield Finding(
            "missing",
            "workers",
            f"{row['n']:,} transfer{'' if row['n'] == 1 else 's'} of which the {silent}, who told "
            "of others, told nothing",
        )


def _chains(run: Run, table: str, who: str, place: str) -> Iterator[Finding]:
    rows = run.rows(
        f"""
        with steps as (
            select start_state, finish_state, lag(finish_state) over (
                       partition by "{place}", key, key_type order by time, seq) as before
            from {table}
        )
        select before || '|' || start_state || '->' || finish_state as kind, count(*) as n
        from steps where before is not null and before <> start_state
        group by kind order by n desc, kind
        """  # noqa: S608  names are ours
    )
    if rows:
        total = sum(row["n"] for row in rows)
        kinds = ", ".join(f"{row['kind']} {row['n']:,}" for row in rows)
        yield Finding(
            "note",
            who,
            f"{total:,} chain breaks: a transition does not start in the state that the one before "
            f"ended in, because events were lost or the key came again: {kinds}",
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
            """,  # noqa: S608  names are ours
            list(known),
        )
        for row in rows:
            yield Finding(
                "note",
                table.partition("_")[0],
                f"state {row['state']}, {row['n']:,} times, is none of Dask's; it was kept as is",
            )


def _graph(run: Run) -> Iterator[Finding]:
    if not len(run["graph_tasks"]):
        return
    row = run.rows("""
        with known as (select distinct key, key_type from graph_tasks),
        happened as (select distinct key, key_type from tasks)
        select (select count(*) from known anti join happened using (key, key_type)) as without,
               (select count(*) from happened anti join known using (key, key_type)) as outside
    """)[0]
    if row["without"]:
        yield Finding(
            "note",
            "graph",
            f"{row['without']:,} tasks of the graphs have no event: they were fused into others, "
            "never ran, or were lost",
        )
    if row["outside"]:
        yield Finding("missing", "graph", f"{row['outside']:,} tasks with events are in no graph")


def _totals(run: Run) -> Iterator[Finding]:
    row = run.rows("""
        with kept as (select process, number, sum(nbytes) as n from transfer_end_keys group by all)
        select count(*) as n from transfer_ends e join kept k using (process, number)
        where e.total_bytes <> k.n
    """)[0]
    if row["n"]:
        yield Finding(
            "note", "workers", f"{row['n']:,} transfers whose total is not the sum of their keys"
        )
    if not len(run["transfer_ends"]) and run.rows(
        "select 1 from scheduler_transitions where startstops is not null limit 1"
    ):
        yield Finding(
            "note",
            "scheduler",
            "without the workers' transfers, begins and ends of a task that fetched its "
            "dependencies cannot be told from those of its function",
        )

"""What is known to be missing from a run that was imported: there are no counters of Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.words import count
from dask_strata.schema.values import SCHEDULER_STATES, WORKER_STATES

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
    yield from _odd_times(run)
    yield from _graph(run)
    yield from _totals(run)


def _files(run: Run) -> Iterator[Finding]:
    for row in run.rows("select * from imports where kind is null order by file"):
        parts = [f"{row['kept']:,} of {row['rows']:,} rows are in the tables"]
        if row["resent"]:
            parts.append(f"{row['resent']:,} told again of a transfer (table transfer_resends)")
        yield Finding("ok", row["file"], ", ".join(parts))
        if row["salvaged"]:
            yield Finding(
                "note",
                row["file"],
                f"{count(row['salvaged'], 'row')} salvaged: their last value may lack digits",
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
            f"{count(named['n'], 'worker')} told by name (such as {named['name']}), of which the "
            "address is not known: what others say of them cannot be joined, nor silence be told",
        )
        return
    nameless = run.rows(
        "select count(*) as n from worker_events where worker is null and action = 'add'"
    )[0]["n"]
    if nameless:
        yield Finding(
            "note",
            "workers",
            f"{count(nameless, 'worker')} came without an address: silence cannot be told",
        )
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
            f"silent host {row['host']}: none of its {count(n, 'worker')} reported anything"
            if whole
            else f"{n:,} of {count(row['declared'], 'worker')} on {row['host']} reported nothing"
        )
        if row["met"]:
            said += (
                f", though others exchanged {count(row['transfers'], 'transfer')} with "
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
            f"{count(row['n'], 'transfer')} of which the {silent} told nothing, though of others",
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
            f"{count(total, 'chain break')}: a transition does not start in the state that the one "
            f"before ended in, because events were lost or the key came again: {kinds}",
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
                f"state {row['state']} ({count(row['n'], 'time')}) is none of Dask's; it was kept",
            )


def _odd_times(run: Run) -> Iterator[Finding]:
    """Find times that cannot be: far from all others, or an end before its beginning."""
    for table in ("scheduler_transitions", "worker_transitions", "transfer_ends"):
        row = run.rows(
            f"""
            with middle as (select median(epoch_ns(time)) as t from {table})
            select count(*) as n, arg_min(file, line) as file, min(line) as line
            from {table}, middle where abs(epoch_ns(time) - t) > 31 * 86400 * 1e9
            """  # noqa: S608  names are ours
        )[0]
        if row["n"]:
            yield Finding(
                "note",
                row["file"],
                f"{count(row['n'], 'row')} more than a month away from the middle of the others, "
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
            "note", "import", f"{count(row['n'], 'interval')} with an end before its begin"
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
            f"{count(row['without'], 'task')} of the graphs without an event: fused into others, "
            "never run, or lost",
        )
    if row["outside"]:
        yield Finding(
            "missing", "graph", f"{count(row['outside'], 'task')} with events, but in no graph"
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
            f"{count(row['n'], 'transfer')} whose total is not the sum of the keys",
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

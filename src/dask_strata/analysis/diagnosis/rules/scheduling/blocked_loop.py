"""Event loops that were blocked, so that tasks were neither assigned nor started nor reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.loop_blocks import (
    is_a_transfer,
    reason_of,
    seconds_of,
    waited_for,
    when,
    within,
)
from dask_strata.analysis.words import count, duration, percent

#: The reason for blocks of an event loop, and advice for a worker and for the scheduler.
_TEXTS = {
    "code": (
        "by code that ran on it",
        "keep slow code out of coroutines and plugins, and results small and quick to serialize",
        "keep slow code out of plugins and off the scheduler, and submit smaller graphs",
    ),
    "wait": (
        "by code on it that waited and hardly used the CPU",
        (
            "let coroutines and plugins wait without blocking: await asyncio.sleep(…), async "
            "clients, loop.run_in_executor(…); or wait in a task that is no coroutine"
        ),
        "look for a scheduler plugin or callback that sleeps, or waits for a file or the network",
    ),
    "GIL": (
        "while one call held Python's GIL or many threads competed for it",
        (
            "call functions that release the GIL, or use more processes with fewer threads "
            "(threads_per_worker=1)"
        ),
        "keep code that holds the GIL out of the scheduler's process",
    ),
    "stopped": (
        (
            "while the process hardly used the CPU: a call waited with Python's GIL, or the "
            "host was busy"
        ),
        "check calls that wait without releasing the GIL, and the memory and load of the host",
        "check calls that wait without releasing the GIL, and the memory and load of the host",
    ),
    "unknown": (
        "by code that ran on it or while other threads held Python's GIL",
        "keep slow code out of coroutines and plugins, and call functions that release the GIL",
        "submit smaller graphs, and keep other code off the scheduler and out of its process",
    ),
}


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for blocked event loops.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    short = _lags(evidence)
    if evidence.loop_blocks.others:
        longest = _longest_loop(evidence)
        if short is not None and short.row["worker"] == longest.blocks[0]["worker"]:
            if sum(short.claims.values()) > sum(longest.claims.values()):
                yield _short_blocks(short._replace(claims=short.claims | longest.claims))
                return
            longest.claims.update(short.claims)
            short = None
        yield _long_blocks(evidence, longest)
    if short is not None:
        yield _short_blocks(short)


class _Loop(NamedTuple):
    """The event loop for whose blocks the critical path waited longest.

    Its blocks, the seconds of all loops by segment, and the number of loops with blocks.
    """

    blocks: list[dict[str, Any]]
    claims: dict[int, float]
    n_loops: int


def _longest_loop(evidence: Evidence) -> _Loop:
    found = evidence.loop_blocks.others
    by_loop: dict[str, list[dict[str, Any]]] = {}
    for block in found:
        by_loop.setdefault(block["process"], []).append(block)
    imports = within(evidence, when(evidence.loop_blocks.starts))
    claims = {
        index: seconds - imports.get(index, 0.0)
        for index, seconds in evidence.where("blocked event loop").items()
    }
    claims |= evidence.beside(when(block for block in found if not is_a_transfer(block)))
    longest = max(by_loop, key=lambda loop: (waited_for(evidence, claims, by_loop[loop]), loop))
    return _Loop(by_loop[longest], claims, len(by_loop))


def _long_blocks(evidence: Evidence, loop: _Loop) -> Finding:
    blocks = loop.blocks
    worker = blocks[0]["worker"]
    whose = f"worker {blocks[0]['name'] or worker}" if worker is not None else "the scheduler"
    how, for_worker, for_scheduler = _TEXTS[reason_of(blocks)]
    prefix = _prefix_on(evidence, worker, blocks) if worker else None
    by = f"; `{prefix}` ran meanwhile" if prefix else ""
    total = duration(sum(map(seconds_of, blocks)))
    return Finding(
        "blocked-loop",
        f"the event loop of {whose} was blocked for {total}, mostly {how}{by}",
        f"{count(len(blocks), 'block')} of at least 0.1 s, the longest "
        f"{duration(max(map(seconds_of, blocks)))}; {count(loop.n_loops, 'event loop')} had "
        "blocks",
        for_scheduler if worker is None else for_worker,
        "query RUN 'select start, worker, seconds, frozen_seconds, cpu_seconds from "
        "loop_blocks order by seconds desc'",
        claims=loop.claims,
    )


#: Delay of a callback in seconds from which an event loop has short blocks, and the least share of
#: samples with such a delay.
_LEAST_LAG = 0.02
_LEAST_SHARE = 0.5

#: CPU of a worker's process, in percent of one, from which its tasks may hold the GIL.
_BUSY_PERCENT = 50

_LAGS = """
    select s.worker, n.name, count(*) filter (s.lag >= $3) / count(*) as share,
           median(s.lag) as lag, avg(s.cpu) as cpu
    from (select time, null::varchar as worker, loop_lag_seconds as lag, cpu_percent as cpu
          from scheduler_samples
          union all
          select time, worker::varchar, loop_lag_seconds, cpu_percent from worker_samples
          where seen_by = 'worker') s
    left join (select worker, any_value(name) as name from workers group by worker) n
      on n.worker = s.worker
    where s.lag is not null and epoch_ns(s.time) between $1 and $2
    group by s.worker, n.name having count(*) >= 3
"""


class _Lags(NamedTuple):
    """The loop with the longest delays of those that were blocked for less than 0.1 s each time.

    Its delays, and the seconds of all such loops by segment.
    """

    row: dict[str, Any]
    claims: dict[int, float]


def _lags(evidence: Evidence) -> _Lags | None:
    """Return the loops that were blocked again and again; None if there is none."""
    rows = evidence.run.rows(_LAGS, *evidence.window, _LEAST_LAG)
    busy = {row["worker"]: row for row in rows if row["share"] >= _LEAST_SHARE}
    claims = {}
    for index, seconds in evidence.where("scheduler").items():
        shares = [busy[w]["share"] for w in (None, evidence.segments[index].worker) if w in busy]
        if shares:
            claims[index] = seconds * max(shares)
    return _Lags(max(busy.values(), key=lambda row: row["lag"]), claims) if claims else None


def _short_blocks(lags: _Lags) -> Finding:
    worst = lags.row
    whose = (
        "the scheduler" if worst["worker"] is None else f"worker {worst['name'] or worst['worker']}"
    )
    by_tasks = worst["worker"] is not None and (worst["cpu"] or 0.0) >= _BUSY_PERCENT
    return Finding(
        "blocked-loop",
        f"the event loop of {whose} was blocked again and again: a callback waited for "
        f"{duration(worst['lag'])}",
        f"median delay in {percent(worst['share'])} of its samples; its process used "
        f"{percent((worst['cpu'] or 0.0) / 100)} of a CPU",
        "let tasks release the GIL, or use more processes with fewer threads (threads_per_worker=1)"
        if by_tasks
        else "look for slow code in plugins, coroutines and callbacks"
        + (" of the scheduler" if worst["worker"] is None else ""),
        "query RUN 'select time, loop_lag_seconds, cpu_percent from scheduler_samples'",
        claims=lags.claims,
    )


#: Kinds of occupants of a worker's blocked loop: a worker has no prefix.
_HOLDERS = frozenset({"task", "gil", "worker"})

#: Prefixes of the functions that ran on a worker during its blocks, the longest first.
_BESIDE = """
    select coalesce(a.prefix, '(unknown)') as prefix,
           sum(least(epoch_ns(p.stop), b.stop) - greatest(epoch_ns(p.start), b.start)) as ns
    from phases p join attempts a using (attempt)
    join (select unnest($2::bigint[]) as start, unnest($3::bigint[]) as stop) b
      on epoch_ns(p.start) < b.stop and epoch_ns(p.stop) > b.start
    where p.worker = $1 and p.action in ('compute', 'executing')
    group by 1 order by 2 desc, 1 limit 1
"""


def _prefix_on(evidence: Evidence, worker: str, blocks: list[dict[str, Any]]) -> str | None:
    """Return the prefix that blocked the loop on the path; None if code of the loop itself did.

    For blocks beside the path, it is the prefix whose functions ran longest meanwhile.
    """
    held: dict[str | None, float] = {}
    for index, seconds in evidence.where("blocked event loop").items():
        segment = evidence.segments[index]
        occupant = segment.occupant
        if segment.worker == worker and occupant is not None and occupant.kind in _HOLDERS:
            held[occupant.prefix] = held.get(occupant.prefix, 0.0) + seconds
    if held:
        return max(held, key=lambda prefix: (held[prefix], prefix or ""))
    starts, stops = ([block[name] for block in blocks] for name in ("start", "stop"))
    rows = evidence.run.rows(_BESIDE, worker, starts, stops)
    return rows[0]["prefix"] if rows else None

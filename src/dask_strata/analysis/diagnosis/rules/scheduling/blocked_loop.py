"""Event loops that were blocked, so that tasks were neither assigned nor started nor reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.conditions import Conditions
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, duration, percent

#: Least CPU time of a process that was running, as a share of the time in which no thread of it ran
#: Python. It is small because processes of a busy host take turns.
_LEAST_CPU = 0.1

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

#: Blocks, and the bytes that the worker sent and received meanwhile.
_BLOCKS = """
    with blocks as (
        select process, worker, greatest(start_ns, $1) as start, least(stop_ns, $2) as stop,
               (stop_ns - start_ns) / 1e9 as seconds, frozen_seconds, cpu_seconds
        from _loop_blocks where stop_ns > $1 and start_ns < $2
    ), ends as (
        select source as worker, epoch_ns(start) as a, epoch_ns(stop) as b, total_bytes
        from transfers
        union all
        select destination, epoch_ns(start), epoch_ns(stop), total_bytes from transfers
        where destination is not null
    ), moved as (
        select b.process, b.start, sum(e.total_bytes)::double as moved_bytes
        from blocks b join ends e on e.worker = b.worker and e.a < b.stop and e.b > b.start
        group by all
    ), begun as (
        select a.worker, min(epoch_ns(p.start)) as begun_ns
        from phases p join attempts a using (attempt)
        where p.action in ('compute', 'executing') group by a.worker, a.prefix
    )
    select b.*, n.name, coalesce(m.moved_bytes, 0) as moved_bytes,
           exists (from begun g where g.worker = b.worker
                   and g.begun_ns between b.stop and b.stop + 100_000_000) as before_first
    from blocks b
    left join moved m using (process, start)
    left join (select worker, any_value(name) as name from workers group by worker) n
      on n.worker = b.worker
    order by b.start
"""

#: Bytes a second that an event loop serializes, copies or unpacks at least. A block within a
#: transfer of as much data is the transfer's.
_LEAST_BYTES_A_SECOND = 200e6

#: Share of the makespan up to which blocks before the first tasks of a prefix are no cause: the
#: loops import the modules that the tasks need, once.
_START_SHARE = 0.2


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for blocked event loops.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    blocks = evidence.run.rows(_BLOCKS, *evidence.window)
    starts = [block for block in blocks if _is_of_a_start(block)]
    yield from _starts(evidence, starts)
    others = [block for block in blocks if not _is_of_a_start(block)]
    short = _lags(evidence)
    if others:
        longest = _longest_loop(evidence, others, _when(starts))
        if short is not None and short.row["worker"] == longest.blocks[0]["worker"]:
            longest.claims.update(short.claims)
            short = None
        yield _long_blocks(evidence, longest)
    if short is not None:
        yield _short_blocks(short)


def _starts(evidence: Evidence, blocks: list[dict[str, Any]]) -> Iterator[Finding]:
    """Yield a finding on blocks of at least 0.1 s before the first tasks of a prefix on workers."""
    claims = _during(evidence, _when(blocks))
    if not claims or sum(claims.values()) < _START_SHARE * evidence.makespan_seconds:
        return
    worst = max(blocks, key=lambda block: (_waited_for(evidence, claims, [block]), block["start"]))
    yield Finding(
        "blocked-loop",
        "workers imported modules: the event loop of worker "
        f"{worst['name'] or worst['worker']} was blocked for {duration(_seconds(worst))} before "
        "its first task of a kind",
        f"{count(len(blocks), 'block')} of at least 0.1 s on "
        f"{count(len({b['worker'] for b in blocks}), 'worker')} just before the first task of a "
        "prefix, by code that ran on the loop",
        "import the modules before: --preload, client.run, a WorkerPlugin; or keep the Python "
        "environment on a node-local disk",
        "query RUN 'select start, worker, seconds from loop_blocks order by start'",
        claims=claims,
    )


def _during(evidence: Evidence, condition: Conditions) -> dict[int, float]:
    """Return the seconds in which the run waited for workers with blocks in their loops."""
    found = evidence.beside(condition)
    for index in evidence.where("blocked event loop"):
        segment = evidence.segments[index]
        seconds = condition.seconds(segment.start, segment.stop, [segment.worker])
        if seconds:
            found[index] = seconds
    return found


class _Loop(NamedTuple):
    """The event loop for whose blocks the critical path waited longest.

    Its blocks, the seconds of all loops by segment, and the number of loops with blocks.
    """

    blocks: list[dict[str, Any]]
    claims: dict[int, float]
    n_loops: int


def _longest_loop(evidence: Evidence, found: list[dict[str, Any]], starts: Conditions) -> _Loop:
    by_loop: dict[str, list[dict[str, Any]]] = {}
    for block in found:
        by_loop.setdefault(block["process"], []).append(block)
    claims = {
        index: seconds - starts.seconds(segment.start, segment.stop, [segment.worker])
        for index, seconds in evidence.where("blocked event loop").items()
        for segment in [evidence.segments[index]]
    }
    claims |= evidence.beside(_when(block for block in found if not _is_a_transfer(block)))
    longest = max(by_loop, key=lambda loop: (_waited_for(evidence, claims, by_loop[loop]), loop))
    return _Loop(by_loop[longest], claims, len(by_loop))


def _long_blocks(evidence: Evidence, loop: _Loop) -> Finding:
    blocks = loop.blocks
    worker = blocks[0]["worker"]
    whose = f"worker {blocks[0]['name'] or worker}" if worker is not None else "the scheduler"
    how, for_worker, for_scheduler = _TEXTS[reason_of(blocks)]
    prefix = _prefix_on(evidence, worker, blocks) if worker else None
    by = f"; `{prefix}` ran meanwhile" if prefix and worker is not None else ""
    total = duration(sum(map(_seconds, blocks)))
    return Finding(
        "blocked-loop",
        f"the event loop of {whose} was blocked for {total}, mostly {how}{by}",
        f"{count(len(blocks), 'block')} of at least 0.1 s, the longest "
        f"{duration(max(map(_seconds, blocks)))}; {count(loop.n_loops, 'event loop')} had "
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
    starts, stops = ([block[name] for block in blocks] for name in ("start", "stop"))
    rows = evidence.run.rows(_BESIDE, worker, starts, stops)
    return rows[0]["prefix"] if rows else None


def _when(blocks: Iterable[dict[str, Any]]) -> Conditions:
    return Conditions((b["worker"], b["start"], b["stop"]) for b in blocks if b["worker"])


def _is_of_a_start(block: dict[str, Any]) -> bool:
    return bool(block["before_first"]) and reason_of([block]) in {"code", "wait"}


def _is_a_transfer(block: dict[str, Any]) -> bool:
    return reason_of([block]) in {"code", "wait"} and bool(
        block["moved_bytes"] >= _LEAST_BYTES_A_SECOND * block["seconds"]
    )


def _waited_for(
    evidence: Evidence, claims: dict[int, float], blocks: list[dict[str, Any]]
) -> float:
    """Return for how many seconds the critical path waited for the blocks of one event loop."""
    worker = blocks[0]["worker"]
    condition = Conditions((worker or "", block["start"], block["stop"]) for block in blocks)
    total = 0.0
    for index in claims:
        segment = evidence.segments[index]
        if worker is None or worker in evidence.workers_of(index):
            total += condition.seconds(segment.start, segment.stop, [worker or ""])
    return total


def _seconds(block: dict[str, Any]) -> float:
    """Return the length of a block within the makespan, in seconds."""
    return float(block["stop"] - block["start"]) / 1e9


def reason_of(blocks: list[dict[str, Any]]) -> str:
    """Return the reason that applies to most of the time of blocks: code, GIL, stopped, unknown.

    Parameters
    ----------
    blocks : list of dict
        Blocks with their seconds, frozen_seconds and cpu_seconds.
    """
    total = dict.fromkeys(_TEXTS, 0.0)
    for block in blocks:
        frozen, cpu = block["frozen_seconds"], block["cpu_seconds"]
        if frozen is None:
            reason = "unknown"
        elif frozen < block["seconds"] / 2:
            waited = cpu is not None and cpu < _LEAST_CPU * block["seconds"]
            reason = "wait" if waited else "code"
        else:
            reason = "stopped" if cpu is not None and cpu < _LEAST_CPU * frozen else "GIL"
        total[reason] += _seconds(block)
    return max(total, key=lambda reason: total[reason])

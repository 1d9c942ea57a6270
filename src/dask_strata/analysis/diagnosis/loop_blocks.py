"""Blocks of event loops within a makespan, their reasons, and which are imports or transfers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.diagnosis.conditions import Conditions

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.evidence import Evidence
    from dask_strata.run import Run

#: Least CPU time of a process that was running, as a share of the time in which no thread of it ran
#: Python. It is small because processes of a busy host take turns.
_LEAST_CPU = 0.1

#: Reasons for blocks: code that ran on the loop, or that waited there, a thread that held the GIL,
#: a process that did not run, and unknown.
REASONS = ("code", "wait", "GIL", "stopped", "unknown")

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
        select b.process, b.start,
               sum(e.total_bytes::double * (least(e.b, b.stop) - greatest(e.a, b.start))
                   / greatest(e.b - e.a, 1)) as moved_bytes
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


class LoopBlocks:
    """Blocks of event loops of at least 0.1 s, in order.

    Parameters
    ----------
    run : Run
        The run.
    window : tuple of int
        First and last moment of its makespan, in ns since the epoch.

    Attributes
    ----------
    starts, others : list of dict
        Blocks just before the first task of a prefix on a worker, which are imports of modules as a
        rule, and all others. Each has process, worker (None for the scheduler), its name, start and
        stop within the makespan in ns, seconds, frozen_seconds, cpu_seconds and moved_bytes.
    """

    def __init__(self, run: Run, window: tuple[int, int]) -> None:
        self.starts: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        for block in run.rows(_BLOCKS, *window):
            by_code = reason_of([block]) in {"code", "wait"} and not is_a_transfer(block)
            first = block["before_first"] and by_code
            (self.starts if first else self.others).append(block)


def when(blocks: Iterable[Mapping[str, Any]]) -> Conditions:
    """Return when workers had these blocks; blocks of the scheduler are left out.

    Parameters
    ----------
    blocks : iterable of dict
        The blocks.
    """
    return Conditions((b["worker"], b["start"], b["stop"]) for b in blocks if b["worker"])


def within(evidence: Evidence, condition: Conditions) -> dict[int, float]:
    """Return the seconds of blocked event loops in which the segment's worker had a condition.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    condition : Conditions
        When workers had it.
    """
    found = {}
    for index in evidence.where("blocked event loop"):
        segment = evidence.segments[index]
        seconds = condition.seconds(segment.start, segment.stop, [segment.worker])
        if seconds:
            found[index] = seconds
    return found


def is_a_transfer(block: Mapping[str, Any]) -> bool:
    """Return whether the data that the worker moved meanwhile explain a block.

    Parameters
    ----------
    block : dict
        The block.
    """
    return reason_of([block]) in {"code", "wait"} and bool(
        block["moved_bytes"] >= _LEAST_BYTES_A_SECOND * block["seconds"]
    )


def waited_for(evidence: Evidence, claims: dict[int, float], blocks: list[dict[str, Any]]) -> float:
    """Return for how many seconds the critical path waited for the blocks of one event loop.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    claims : dict
        Seconds by the index of the segment.
    blocks : list of dict
        Blocks of one loop.
    """
    worker = blocks[0]["worker"]
    blocked = Conditions((worker or "", block["start"], block["stop"]) for block in blocks)

    def concerns(index: int) -> bool:
        if worker is None:  # the scheduler blocks no transfer between workers
            return evidence.segments[index].cause == "blocked event loop"
        return worker in evidence.workers_of(index)

    segments = [evidence.segments[index] for index in claims if concerns(index)]
    return sum(blocked.seconds(s.start, s.stop, [worker or ""]) for s in segments)


def seconds_of(block: Mapping[str, Any]) -> float:
    """Return the length of a block within the makespan, in seconds.

    Parameters
    ----------
    block : dict
        The block.
    """
    return float(block["stop"] - block["start"]) / 1e9


def reason_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Return the reason that applies to most of the time of blocks, see `REASONS`.

    Parameters
    ----------
    blocks : iterable of dict
        Blocks with their seconds, frozen_seconds and cpu_seconds.
    """
    total = dict.fromkeys(REASONS, 0.0)
    for block in blocks:
        frozen, cpu = block["frozen_seconds"], block["cpu_seconds"]
        if frozen is None:
            reason = "unknown"
        elif frozen < block["seconds"] / 2:
            waited = cpu is not None and cpu < _LEAST_CPU * block["seconds"]
            reason = "wait" if waited else "code"
        else:
            reason = "stopped" if cpu is not None and cpu < _LEAST_CPU * frozen else "GIL"
        total[reason] += seconds_of(block)
    return max(total, key=lambda reason: total[reason])

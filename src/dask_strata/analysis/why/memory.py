"""The last memory of a worker, against its limits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.why.ends import WorkerEnd

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most samples.
_SAMPLES = 4

#: Thresholds of Dask, as shares of the memory limit.
THRESHOLDS = ("target", "spill", "pause", "terminate")

_LAST = """
    select time, rss_bytes, managed_bytes, unmanaged_bytes, spilled_bytes, status
    from worker_samples where process = ? and seen_by = 'worker' order by time desc limit ?
"""


@dataclass(frozen=True)
class MemorySample:
    """Memory of a worker at one moment.

    Attributes
    ----------
    time : datetime
        When it was sampled.
    rss_bytes, managed_bytes, unmanaged_bytes, spilled_bytes : int or None
        As in ``worker_samples``.
    status : str or None
        Dask's status of the worker: running, paused, …
    """

    time: datetime
    rss_bytes: int | None
    managed_bytes: int | None
    unmanaged_bytes: int | None
    spilled_bytes: int | None
    status: str | None


@dataclass(frozen=True)
class Memory:
    """Memory of a worker shortly before its end, and its limits.

    Attributes
    ----------
    samples : tuple of MemorySample
        The last samples, in time order.
    limit_bytes : int or None
        Memory limit that Dask enforces.
    thresholds : dict of str to float
        Shares of this limit at which Dask acts: target, spill, pause, terminate; only those that
        are on record and not turned off.
    group_limit_bytes, host_bytes : int or None
        Memory limit of the control group, and memory of the host.
    """

    samples: tuple[MemorySample, ...]
    limit_bytes: int | None
    thresholds: dict[str, float]
    group_limit_bytes: int | None
    host_bytes: int | None


def memory_of(run: Run, end: WorkerEnd) -> Memory:
    """Return the memory of a worker shortly before its end.

    Parameters
    ----------
    run : Run
        The run.
    end : WorkerEnd
        The worker.
    """
    rows = [] if end.process is None else run.rows(_LAST, end.process, _SAMPLES)
    samples = tuple(MemorySample(**row) for row in reversed(rows))
    facts = _facts(run, end.process)
    return Memory(
        samples,
        end.memory_limit_bytes,
        _thresholds(run, end.process),
        facts.get("cgroup.memory-limit"),
        facts.get("memory.total"),
    )


def _thresholds(run: Run, process: str | None) -> dict[str, float]:
    rows = run.rows(
        "select name, value from config where process = ? and name like "
        "'distributed.worker.memory.%'",
        process,
    )
    found = {}
    for row in rows:
        name = row["name"].rpartition(".")[2]
        value = _number(row["value"]) if name in THRESHOLDS else None
        if value is not None:
            found[name] = value
    return {name: found[name] for name in THRESHOLDS if name in found}


def _number(text: str | None) -> float | None:
    """Return a share of 1 in a setting; None for another value, such as false."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if usable and 0 < value <= 1 else None


def _facts(run: Run, process: str | None) -> dict[str, int]:
    rows = run.rows(
        "select name, min(try_cast(value as bigint)) as value from job "
        "where process = ? and name in ('cgroup.memory-limit', 'memory.total') group by name",
        process,
    )
    return {row["name"]: row["value"] for row in rows if row["value"] is not None}

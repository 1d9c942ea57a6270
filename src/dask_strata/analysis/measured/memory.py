"""Memory of workers against the limits of Dask's memory management."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.words import count, duration, size

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Limits, gravest first, and what Dask does above each.
LIMITS = {
    "terminate": "the nanny kills the process",
    "pause": "the worker starts no further tasks",
    "spill": "the worker spills results, because of the memory of its process",
    "target": "the worker spills results, because of their size alone",
}

#: Most workers with a line, and points of each: one for each two pixels.
_LINES, _POINTS = 24, 150

_MEMORY = """
    select *, row_number() over (order by peak_bytes / limit_bytes desc nulls last,
                                          peak_bytes desc, worker, process) as place
    from worker_memory where peak_bytes is not null order by place
"""


_STEPS = f"""
    with shown as (select process, worker from ({_MEMORY}) where place <= {_LINES})
    select s.process, s.worker, max(s.rss_bytes) as rss,
           least(floor((epoch_ns(s.time) - epoch_ns(b.first)) * $1
                       / greatest(epoch_ns(b.last) - epoch_ns(b.first), 1)), $1) as step
    from worker_samples s join shown using (process, worker) cross join _bounds b
    where s.seen_by = 'worker' and s.rss_bytes is not null
    group by all order by s.process, s.worker, step
"""  # noqa: S608  no value of the record


@dataclass(frozen=True)
class AboveLimit:
    """Workers whose memory was above one limit.

    Attributes
    ----------
    limit : str
        One of `LIMITS`.
    n_workers : int
        Processes of workers that were above it.
    seconds : float
        Time above it, the sum of the workers.
    """

    limit: str
    n_workers: int
    seconds: float


@dataclass(frozen=True)
class WorkersMemory:
    """Memory of all processes of workers.

    Attributes
    ----------
    n_workers : int
        Processes of workers with samples.
    worker : str
        Name or address of the worker that was closest to its limit; without limits, that of
        the largest memory.
    peak_bytes : int
        Its largest memory.
    limit_bytes : int or None
        Its limit; None if no worker has one.
    above : tuple of AboveLimit
        The limits that workers were above, gravest first.
    """

    n_workers: int
    worker: str
    peak_bytes: int
    limit_bytes: int | None
    above: tuple[AboveLimit, ...]

    @property
    def sentence(self) -> str:
        """The largest memory, and the time above limits."""
        of = "" if self.limit_bytes is None else f" of {size(self.limit_bytes)}"
        parts = [f"peak {size(self.peak_bytes)}{of} (worker {self.worker})"]
        parts += [
            f"{each.n_workers:,} of {count(self.n_workers, 'worker')} above the {each.limit} "
            f"limit for {duration(each.seconds)} in all"
            for each in self.above
        ]
        return "; ".join(parts)


@dataclass(frozen=True)
class MemoryLine:
    """Memory of one process of a worker over time, and its limits.

    Attributes
    ----------
    worker : str
        Address of the worker.
    name : str or None
        Its name.
    peak_bytes : int
        Its largest memory.
    limit_bytes : int or None
        Its memory limit.
    limits : dict of str to int
        By the names in `LIMITS`, without those that are off.
    above_seconds : dict of str to float
        Time above each of them.
    points : tuple of (float, int)
        Parts of the whole run from 0 to 1, and the largest memory in each.
    """

    worker: str
    name: str | None
    peak_bytes: int
    limit_bytes: int | None
    limits: dict[str, int]
    above_seconds: dict[str, float]
    points: tuple[tuple[float, int], ...]


def memory_lines(run: Run) -> tuple[MemoryLine, ...]:
    """Return the memory of workers over time: of those that were closest to their limits.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows(_MEMORY)[:_LINES]
    points: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for point in run.rows(_STEPS, _POINTS) if rows else ():
        where = (point["process"], point["worker"])
        points.setdefault(where, []).append((point["step"] / _POINTS, point["rss"]))
    return tuple(
        MemoryLine(
            row["worker"],
            row["name"],
            row["peak_bytes"],
            row["limit_bytes"],
            {n: row[f"{n}_bytes"] for n in LIMITS if row[f"{n}_bytes"] is not None},
            {n: row[f"above_{n}_seconds"] for n in LIMITS if row[f"{n}_bytes"] is not None},
            tuple(points.get((row["process"], row["worker"]), ())),
        )
        for row in rows
    )


def workers_memory(run: Run) -> WorkersMemory | None:
    """Return the memory of workers against their limits; None without samples.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows(_MEMORY)
    if not rows:
        return None
    above = []
    for limit in LIMITS:
        seconds = [row[f"above_{limit}_seconds"] for row in rows if row[f"above_{limit}_seconds"]]
        if seconds:
            above.append(AboveLimit(limit, len(seconds), float(sum(seconds))))
    first = rows[0]
    return WorkersMemory(
        len(rows),
        first["name"] or first["worker"],
        first["peak_bytes"],
        first["limit_bytes"],
        tuple(above),
    )

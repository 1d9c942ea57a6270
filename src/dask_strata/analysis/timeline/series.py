"""Memory, file traffic and stops of a run's workers over time, in even steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Steps in a whole run: about one for each two pixels of a laptop's screen.
STEPS = 600

# A sample of a worker counts until the worker's next sample, or until the worker is removed; its
# last one at most until the last sample of any worker.
_MEMORY = """
    with seen as (
        select worker, (epoch_ns(time) - $1) // $2 as step, max(time) as time,
               arg_max(managed_bytes, time) as managed, arg_max(unmanaged_bytes, time) as unmanaged,
               arg_max(spilled_bytes, time) as spilled
        from worker_samples where seen_by = 'scheduler' or not exists (
            from worker_samples where seen_by = 'scheduler') group by worker, step
    ), until_next as (
        select *, coalesce(lead(step) over (partition by worker order by step),
                           (select max(step) + 1 from seen)) as next from seen
    ), held as (
        select s.* exclude (next),
               case when c.stop is null then next
                    else least(next, greatest(step + 1, (epoch_ns(c.stop) - $1) // $2)) end as next
        from until_next s asof left join _worker_connections c
          on c.worker = s.worker and s.time >= c.start
    )
    select s.step::bigint as step, sum(managed)::bigint as managed,
           sum(unmanaged)::bigint as unmanaged, sum(spilled)::bigint as spilled
    from held, unnest(generate_series(step::bigint, next::bigint - 1)) as s(step)
    where s.step between 0 and $3 group by 1 order by 1
"""

# The bytes between two samples of a process are spread evenly over the time between them.
_FILES = """
    with moved as (
        select epoch_ns(time) as b, lag(epoch_ns(time)) over w as a,
               read_bytes - lag(read_bytes) over w as r, write_bytes - lag(write_bytes) over w as w
        from process_samples join processes using (process) where role = 'worker'
        window w as (partition by process_samples.process order by time)
    ), spread as (
        select *, (a - $1) // $2 as s0, (b - $1) // $2 as s1 from moved where b > a
    )
    select s.step::bigint as step,
           sum(r * (least(b, $1 + (s.step + 1) * $2) - greatest(a, $1 + s.step * $2)) / (b - a))
               as read,
           sum(w * (least(b, $1 + (s.step + 1) * $2) - greatest(a, $1 + s.step * $2)) / (b - a))
               as written
    from spread, unnest(generate_series(s0::bigint, s1::bigint)) as s(step)
    where s.step between 0 and $3 group by 1 order by 1
"""

# Processes that were stopped, as the mean of a step: 100 is one process.
_STOPS = """
    with stops as (
        select 'collecting' as name, process, epoch_ns(start) as a, epoch_ns(stop) as b
        from gc_pauses
        union all
        select 'blocked', process, start_ns, stop_ns from _loop_blocks
    )
    select name, s.step::bigint as step,
           sum(least(b, $1 + (s.step + 1) * $2) - greatest(a, $1 + s.step * $2)) * 100.0 / $2
               as stopped
    from stops, unnest(generate_series(greatest((a - $1) // $2, 0)::bigint,
                                       least((b - $1) // $2, $3)::bigint)) as s(step)
    where b > a group by all
"""


@dataclass(frozen=True)
class Series:
    """Sums over all workers at even steps.

    Attributes
    ----------
    step_seconds : float
        Length of a step.
    values : dict
        By name: ``managed``, ``unmanaged`` and ``spilled`` memory in bytes, ``read`` and
        ``written`` in bytes per second; None in steps without a sample. ``collecting`` and
        ``blocked``: processes that the garbage collector stopped, and processes whose event loop
        was blocked, in percent of one process; absent if there was none.
    """

    step_seconds: float
    values: dict[str, tuple[float | None, ...]]


def series(run: Run, origin: int, span: int) -> Series:
    """Return memory, file traffic and stops of all workers over time.

    Parameters
    ----------
    run : Run
        The run.
    origin : int
        First moment, in ns since the epoch.
    span : int
        Length of the series, in ns.
    """
    step = max(span // STEPS, 1)
    values: dict[str, list[float | None]] = {
        name: [None] * (STEPS + 1)
        for name in ("managed", "unmanaged", "spilled", "read", "written")
    }
    if span <= 0:
        return Series(step / 1e9, {})
    for row in run.rows(_MEMORY, origin, step, STEPS):
        for name in ("managed", "unmanaged", "spilled"):
            values[name][row["step"]] = row[name]
    for row in run.rows(_FILES, origin, step, STEPS):
        for name in ("read", "written"):
            if row[name] is not None:
                values[name][row["step"]] = row[name] / step * 1e9
    for row in run.rows(_STOPS, origin, step, STEPS):
        of_name = values.setdefault(row["name"], [0.0] * (STEPS + 1))
        of_name[row["step"]] = row["stopped"]
    kept = {name: tuple(v) for name, v in values.items() if any(x is not None for x in v)}
    return Series(step / 1e9, kept)

"""Processes of a run that were stopped over time, in even steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Steps in a whole run: about one for each two pixels of a laptop's screen.
STEPS = 600

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
    """Sums over all processes at even steps.

    Attributes
    ----------
    step_seconds : float
        Length of a step.
    values : dict
        ``collecting`` and ``blocked``: processes that the garbage collector stopped, and
        processes whose event loop was blocked, in percent of one process; absent if there was
        none.
    """

    step_seconds: float
    values: dict[str, tuple[float, ...]]


def series(run: Run, origin: int, span: int) -> Series:
    """Return the stops of all processes over time.

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
    values: dict[str, list[float]] = {}
    for row in run.rows(_STOPS, origin, step, STEPS) if span > 0 else ():
        of_name = values.setdefault(row["name"], [0.0] * (STEPS + 1))
        of_name[row["step"]] = row["stopped"]
    return Series(step / 1e9, {name: tuple(found) for name, found in values.items()})

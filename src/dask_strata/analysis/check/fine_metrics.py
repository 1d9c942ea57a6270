"""Dask's fine performance metrics against the record: two measurements of the same seconds.

Dask sums up where its workers spend time, with clocks and code of its own, see
``docs/measurements.md``. Compared are the sums that measure the same thing as rows of the record,
of workers whose last sums are on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.words import duration, percent

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Largest difference that is called agreement, as a share and in seconds.
TOLERANCE = 0.01
_LEAST_SECONDS = 0.01

#: Most sums that a finding lists.
_SHOWN = 5

#: Activities of executing tasks outside of their functions.
_OUTSIDE = (
    "executor",
    "other",
    "failed",
    "cancelled",
    "disk-read",
    "disk-write",
    "memory-read",
    "serialize",
    "deserialize",
    "compress",
    "decompress",
    "offload",
)

#: Activities of a transfer on its receiver and on its sender, between start and stop of its row.
_RECEIVING = ("network", "deserialize", "decompress", "offload")
_SENDING = ("network", "serialize", "compress", "offload")

_SUMS = f"""
    with last as (
        select context, prefix, activity, unit, value from fine_metrics where final
    ), whole as (
        select distinct f.process, f.worker, epoch_ns(p.start) as a, epoch_ns(p.stop) as b
        from fine_metrics f left join processes p on p.process = f.process where f.final
    ), dask as (
        select case
            when context = 'execute' and activity not in {_OUTSIDE} then 'compute'
            when context = 'gather-dep' and activity in {_RECEIVING} then 'transfers received'
            when context = 'get-data' and activity in {_SENDING} then 'transfers sent'
            when context = 'spill' then 'spilling' end as what,
            case when context = 'execute' then prefix else '' end as prefix, sum(value) as seconds
        from last where unit = 'seconds' group by all
    ), recorded as (
        select 'compute' as what, prefix, sum(compute_seconds) as seconds
        from attempts t where outcome = 'memory' and exists (
            -- A restarted worker may have the address of the one before. It takes 0.1 s to start.
            from whole w where w.worker = t.worker
            and coalesce(epoch_ns(t.stop) >= w.a - 100000000, true)
            and coalesce(epoch_ns(t.stop) <= w.b + 100000000, true))
        group by all
        union all
        select case "end" when 'incoming' then 'transfers received' else 'transfers sent' end,
               '', sum(epoch_ns(stop) - epoch_ns(start)) / 1e9
        from transfer_ends join whole using (process) group by all
        union all
        select 'spilling', '', sum(seconds) from spills join whole using (process)
    )
    -- The other sums have an empty prefix, as joins do not match nulls.
    select what, prefix, coalesce(d.seconds, 0) as dask_seconds,
           coalesce(r.seconds, 0) as recorded_seconds
    from (select * from dask where what is not null) d
    full join (select * from recorded where seconds is not null) r using (what, prefix)
"""  # noqa: S608  names of activities


@dataclass(frozen=True)
class Comparison:
    """The same seconds by Dask's fine performance metrics and by the rows of the record.

    Attributes
    ----------
    what : str
        compute, transfers received, transfers sent or spilling.
    prefix : str or None
        Prefix of the tasks, for compute.
    dask_seconds, recorded_seconds : float
        Both sums.
    """

    what: str
    prefix: str | None
    dask_seconds: float
    recorded_seconds: float

    @property
    def apart(self) -> float:
        """Difference as a share of the larger sum, 0 to 1."""
        larger = max(self.dask_seconds, self.recorded_seconds)
        return abs(self.dask_seconds - self.recorded_seconds) / larger if larger > 0 else 0.0

    @property
    def agrees(self) -> bool:
        """Whether they differ by less than 1 %, or 10 ms."""
        difference = abs(self.dask_seconds - self.recorded_seconds)
        return difference <= _LEAST_SECONDS or self.apart <= TOLERANCE


def compare_fine_metrics(run: Run) -> tuple[Comparison, ...]:
    """Return the sums that Dask's metrics and the record have in common, the largest first.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of Comparison
        Those of compute by prefix. Empty without metrics on record, and where tasks of other
        clients are left out, which Dask's sums contain.
    """
    if not run.rows("select 1 from fine_metrics where final limit 1"):
        return ()
    if run.rows("select 1 from left_out_rows limit 1"):
        return ()
    found = [
        Comparison(r["what"], r["prefix"] or None, r["dask_seconds"], r["recorded_seconds"])
        for r in run.rows(_SUMS)
    ]
    return tuple(sorted(found, key=lambda c: -max(c.dask_seconds, c.recorded_seconds)))


def totals(compared: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
    """Return the sums over prefixes.

    >>> totals((Comparison("compute", "a", 1, 2), Comparison("compute", "b", 3, 4)))[0]
    Comparison(what='compute', prefix=None, dask_seconds=4, recorded_seconds=6)
    """
    whats = dict.fromkeys(c.what for c in compared)
    return tuple(
        Comparison(
            what,
            None,
            sum(c.dask_seconds for c in compared if c.what == what),
            sum(c.recorded_seconds for c in compared if c.what == what),
        )
        for what in whats
    )


def check_fine_metrics(run: Run) -> Iterator[Finding]:
    """Find whether Dask's fine performance metrics agree with the record.

    Parameters
    ----------
    run : Run
        The run.
    """
    compared = compare_fine_metrics(run)
    if not compared:
        return
    text = "; ".join(_words(total) for total in totals(compared))
    apart = [c for c in compared if not c.agrees]
    if apart:
        shown = ", ".join(f"{c.prefix or c.what} {percent(c.apart, 1)}" for c in apart[:_SHOWN])
        text += f"; over 1 % apart: {shown} (docs/measurements.md has the reasons)"
    yield Finding("note" if apart else "ok", "workers", f"Dask's fine metrics: {text}")


def _words(c: Comparison) -> str:
    return (
        f"{c.what} {duration(c.dask_seconds)}, recorded {duration(c.recorded_seconds)}, "
        f"{percent(c.apart, 2)} apart"
    )

"""Attempts that took much longer than others of their prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Straggler:
    """An attempt that took much longer than others of its prefix."""

    prefix: str
    key: str
    worker: str | None
    seconds: float
    median_seconds: float

    @property
    def excess_seconds(self) -> float:
        """Seconds above the median."""
        return self.seconds - self.median_seconds


def stragglers(run: Run) -> tuple[Straggler, ...]:
    """Return attempts that computed for over 1 s and over five times their prefix's median.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of Straggler
        At most 100, those furthest above the median first.
    """
    rows = run.rows("""
        with p as (
            -- Of attempts whose function ended, as the medians of `prefixes`.
            select prefix, median(compute_seconds) as median_seconds from attempts
            where compute_seconds is not null and outcome not in ('running', 'lost', 'released')
            group by prefix having count(*) > 3
        )
        select coalesce(a.prefix, '(unknown)') as prefix, a.key, a.worker,
               a.compute_seconds as seconds, p.median_seconds
        from attempts a join p on p.prefix is not distinct from a.prefix
        where a.compute_seconds > 1 and p.median_seconds > 0
          and a.compute_seconds > 5 * p.median_seconds
        order by seconds - median_seconds desc, a.key limit 100
    """)
    return tuple(Straggler(**row) for row in rows)

"""Darshan's logs that were never written: it writes one when its process ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding

if TYPE_CHECKING:
    from dask_strata.run import Run


def unwritten_logs(run: Run) -> Iterator[Finding]:
    """Find workers that had Darshan loaded and were killed."""
    for row in run.rows(
        """
        select p.process, p.pid, e.reason
        from (select distinct process from job where name = 'darshan.library') d
        join processes p on p.process = d.process
        join worker_events e on e.action = 'process-exit'
         and starts_with(e.reason, 'pid ' || p.pid || ' ')
        join processes n on n.process = e.process and n.host = p.host
        where contains(e.reason, 'was killed by')
        order by p.process
        """
    ):
        how = row["reason"].partition(f"pid {row['pid']} ")[2]
        yield Finding(
            "missing",
            row["process"],
            f"process {row['pid']} {how}: it has left no Darshan log",
        )

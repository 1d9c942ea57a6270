"""Darshan logs that were never written: Darshan writes its log when the process exits normally."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.schema.values import KILLED_BY, PID

if TYPE_CHECKING:
    from dask_strata.run import Run


def unwritten_logs(run: Run) -> Iterator[Finding]:
    """Yield a finding for each worker that had loaded Darshan and was killed.

    Parameters
    ----------
    run : Run
        The run.
    """
    for row in run.rows(
        """
        select p.process, p.pid, e.reason
        from (select distinct process from job where name = 'darshan.library') d
        join processes p on p.process = d.process
        join worker_events e on e.action = 'process-exit'
         and starts_with(e.reason, $1 || p.pid || ' ')
        join processes n on n.process = e.process and n.host = p.host
        where contains(e.reason, $2)
        order by p.process
        """,
        PID,
        KILLED_BY,
    ):
        how = row["reason"].removeprefix(f"{PID}{row['pid']} ")
        yield Finding(
            "missing",
            row["process"],
            f"process {row['pid']} {how}: it wrote no Darshan log",
        )

"""Clocks of hosts that differ so much that times of different hosts cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import duration

#: Offset to the scheduler's clock in seconds that is remarkable.
_LARGE = 0.5


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if clocks are apart.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    apart = {p: s for p, s in evidence.machine.clock_offset_seconds.items() if abs(s) >= _LARGE}
    if not apart:
        return
    process = max(apart, key=lambda p: abs(apart[p]))
    yield Finding(
        "clocks-apart",
        f"clocks are apart: that of {process} differs from the scheduler's by "
        f"{duration(abs(apart[process]))}",
        f"{len(apart):,} of the recorded processes; times are aligned by measurements of the "
        "offset",
        "synchronise the hosts' clocks (chrony, ntp); logs and times that tasks note "
        "themselves are not aligned",
        "query RUN 'select process, time, offset_seconds, uncertainty_seconds from clock_offsets'",
        always=True,
    )

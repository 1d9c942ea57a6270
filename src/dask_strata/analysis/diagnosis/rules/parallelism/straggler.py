"""A task that ran much longer than its siblings, with the same amount of data."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.parallelism.stragglers import stragglers_on_path
from dask_strata.analysis.words import duration, number


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on stragglers without more data than others.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    late = [s for s in stragglers_on_path(evidence) if s.data is None]
    if not late:
        return
    claims: dict[int, float] = {}
    uses: dict[int, float] = {}
    for straggler in late:
        # The excess is at the end of the task. Work of others that goes on meanwhile remains.
        left = straggler.excess_seconds
        for index in sorted(straggler.segments, reverse=True):
            segment = evidence.segments[index]
            seconds = min(segment.seconds, left)
            left -= seconds
            uses[index] = seconds
            claims[index] = seconds * evidence.others_idle_share(segment.start, segment.stop)
    worst = max(late, key=lambda s: s.excess_seconds)
    row = worst.attempt
    n_late = sum(s.attempt["prefix"] == row["prefix"] for s in late)
    yield Finding(
        "straggler",
        f"one `{row['prefix']}` took {duration(row['compute_seconds'])}, "
        f"{number(row['compute_seconds'] / worst.median_seconds)} times the median, while "
        f"others waited: {row['key']}",
        f"{n_late} of {worst.n:,} `{row['prefix']}` on the critical path took over twice the "
        f"median of {duration(worst.median_seconds)}; their results and inputs are not larger "
        f"than others; worker {row['worker']}",
        "look at this task's input and parameters; start it first with a higher priority "
        "(dask.annotate(priority=10)), or divide it",
        f"story RUN {shlex.quote(row['key'])}",
        claims=claims,
        uses=uses,
    )

"""Data of the client that it sent to the workers."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import line_of
from dask_strata.analysis.words import size


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the client scattered data.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = evidence.where("scatter")
    calls = evidence.client.calls("scatter")
    if not claims or not calls:
        return
    worst = max(calls, key=lambda row: row["nbytes"] or 0)
    total = sum(row["nbytes"] or 0 for row in calls)
    yield Finding(
        "large-scatter",
        f"the client sent {size(total)} to workers with scatter{line_of(worst)}",
        f"the largest call sent {size(worst['nbytes'] or 0)}",
        "load the data in tasks, from files that workers can read, or scatter it once before "
        "other work",
        "query RUN 'select start, stop, n_keys, nbytes, file, line from client_calls'",
        claims=claims,
    )

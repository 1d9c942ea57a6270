"""Results so large that fetching them to the client takes long."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import line_of
from dask_strata.analysis.words import count, size

#: Bytes from which results are large.
_LARGE_BYTES = 10_000_000


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the client fetched results.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = evidence.where("gather")
    # Dask puts the parts of a collection together in a last task, on one worker.
    claims |= {
        index: segment.seconds
        for index, segment in enumerate(evidence.segments)
        if segment.prefix is not None and segment.prefix.startswith("finalize")
    }
    calls = evidence.client.calls("gather")
    total = sum(row["nbytes"] or 0 for row in calls)
    if not claims or total < _LARGE_BYTES:
        return
    worst = max(calls, key=lambda row: row["nbytes"] or 0)
    n_keys = sum(row["n_keys"] or 0 for row in calls)
    yield Finding(
        "large-results",
        f"large results: the client fetched {size(total)} in "
        f"{count(n_keys, 'result')}{line_of(worst)}",
        f"{count(len(calls), 'call')} of gather; the largest fetched {size(worst['nbytes'] or 0)}",
        "reduce on the workers before compute(), write results from tasks (to_parquet, "
        "to_zarr), or keep them there with persist()",
        "query RUN 'select start, stop, n_keys, nbytes, file, line from client_calls'",
        claims=claims,
    )

"""Tasks that wait for storage."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import waited_at
from dask_strata.analysis.diagnosis.rules.data.file_waits import file_uses, is_file
from dask_strata.analysis.diagnosis.waits import waits_on_path
from dask_strata.analysis.words import duration, size


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which tasks waited for files.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waits = waits_on_path(evidence, is_file)
    if waits is None:
        return
    uses = [use for use in file_uses(evidence) if use.waits]
    claims = {index: seconds for use in uses for index, seconds in use.waits.items()}
    nbytes = sum(use.read_bytes + use.write_bytes for use in uses)
    whole = sum(use.compute_seconds for use in uses)
    yield Finding(
        "slow-storage",
        "tasks waited for storage: "
        f"`{waits.runners[0].prefix}`{waited_at(waits.main, evidence.run.script)}",
        f"threads on the critical path waited {duration(sum(claims.values()))} for files; "
        f"{size(nbytes)} read and written in {duration(whole)}",
        "use faster or node-local storage, fewer and larger requests, fewer fsync(), or read "
        "ahead in another task",
        "query RUN \"from task_samples where waiting = 'files'\"",
        claims=claims,
    )

"""Tasks that wait for storage."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import waited_at
from dask_strata.analysis.words import duration, size


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which tasks waited for files.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    uses = [use for use in evidence.file_uses if use.waits]
    runners = list({evidence.runners[index] for use in uses for index in use.waits})
    main = evidence.samples.main(runners, lambda each: each.waiting == "files")
    main = main or evidence.samples.main(runners, lambda each: each.waiting == "other")
    if main is None:
        return
    claims = {index: seconds for use in uses for index, seconds in use.waits.items()}
    longest = max(uses, key=lambda use: sum(use.waits.values()))
    nbytes = sum(use.read_bytes + use.write_bytes for use in uses)
    whole = sum(use.compute_seconds for use in uses)
    yield Finding(
        "slow-storage",
        f"tasks waited for storage: `{longest.prefix}`{waited_at(main, evidence.run.script)}",
        f"threads on the critical path spent {duration(sum(claims.values()))} at lines that "
        "wait for files; "
        f"{size(nbytes)} read and written in {duration(whole)}",
        "use faster or node-local storage, fewer and larger requests, fewer fsync(), or read "
        "ahead in another task",
        "query RUN \"from task_samples where waiting = 'files'\"",
        claims=claims,
    )

"""Tasks that moved to another worker, at the cost of moving their data."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import FETCHING, Evidence
from dask_strata.analysis.words import count, duration, size

_STOLEN = """
    select a.attempt, a.compute_seconds from attempts a
    join _steals_of_attempts s on s.number = a.attempt
    where a.attempt in (select unnest($1::bigint[])) and a.compute_seconds is not null
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on stolen tasks that waited for their data longer than they computed.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waiting = evidence.where(*FETCHING)
    waits: dict[int, float] = {}
    for index, seconds in waiting.items():
        attempt = evidence.segments[index].attempt
        if attempt is not None:
            waits[attempt] = waits.get(attempt, 0.0) + seconds
    stolen = {
        row["attempt"]: row["compute_seconds"] for row in evidence.run.rows(_STOLEN, sorted(waits))
    }
    costly = {attempt for attempt, compute in stolen.items() if waits[attempt] > compute}
    claims = {i: s for i, s in waiting.items() if evidence.segments[i].attempt in costly}
    if not claims:
        return
    n = evidence.run.rows("select count(*) as n from steals where outcome = 'confirm'")[0]["n"]
    moved = evidence.run.rows("select coalesce(sum(total_bytes), 0)::double as n from transfers")[
        0
    ]["n"]
    yield Finding(
        "stealing",
        f"work stealing moved {count(n, 'task')} to other workers, where tasks waited for their "
        "data",
        f"{size(moved)} moved in all; {count(len(costly), 'stolen task')} of the critical path "
        f"waited {duration(sum(claims.values()))} and computed for "
        f"{duration(sum(stolen[attempt] for attempt in costly))}",
        "switch it off (distributed.scheduler.work-stealing: false), or make tasks larger "
        "than the time to move their data",
        "query RUN 'select outcome, source, destination, count(*) from steals group by all'",
        claims=claims,
    )

"""Tasks that moved to another worker, at the cost of moving their data."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, size

_STOLEN = """
    select number as attempt from _steals_of_attempts where number in (select unnest($1::bigint[]))
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which stolen tasks waited for their data.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waiting = evidence.where("transfer", "waiting to fetch")
    numbers = sorted({a for i in waiting if (a := evidence.segments[i].attempt) is not None})
    if not numbers:
        return
    stolen = {row["attempt"] for row in evidence.run.rows(_STOLEN, numbers)}
    claims = {i: s for i, s in waiting.items() if evidence.segments[i].attempt in stolen}
    if not claims:
        return
    n = evidence.run.rows("select count(*) as n from steals where outcome = 'confirm'")[0]["n"]
    moved = evidence.run.rows("select coalesce(sum(total_bytes), 0)::double as n from transfers")[
        0
    ]["n"]
    yield Finding(
        "stealing",
        f"work stealing moved {count(n, 'task')} to workers without their data, and they "
        "waited for it",
        f"{size(moved)} moved in all",
        "switch it off (distributed.scheduler.work-stealing: false), or make tasks larger "
        "than the time to move their data",
        "query RUN 'select outcome, source, destination, count(*) from steals group by all'",
        claims=claims,
    )

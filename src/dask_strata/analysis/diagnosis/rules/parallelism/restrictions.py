"""Restrictions to workers and resources that leave other threads idle."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, percent

_RESTRICTED = """
    select t._key, bool_or(t.annotations like '%"workers"%') as workers,
           bool_or(t.annotations like '%"resources"%') as resources
    from graph_tasks t
    where t.annotations like '%"workers"%' or t.annotations like '%"resources"%'
    group by t._key
"""

#: Causes in which a task with a restriction waits for a place that meets it.
_WAITS = ("waiting for a worker", "waiting for a resource", "scheduler")


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on restricted tasks that waited while threads were idle.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    rows = evidence.run.rows(_RESTRICTED)
    if not rows:
        return
    restricted = {row["_key"]: row for row in rows}
    keys = evidence.keys_on_path
    claims, resources = {}, False
    prefixes: dict[str, float] = {}
    for index, segment in enumerate(evidence.segments):
        row = restricted.get(keys.get(segment.attempt, -1)) if segment.attempt is not None else None
        if row is None or segment.cause not in _WAITS:
            continue
        seconds = segment.seconds * evidence.free_share(segment.start, segment.stop)
        claims[index] = seconds
        resources = resources or bool(row["resources"])
        prefixes[segment.prefix or ""] = prefixes.get(segment.prefix or "", 0.0) + seconds
    if not claims:
        return
    whole = sum(evidence.segments[i].seconds for i in claims)
    prefix = max(prefixes, key=lambda name: prefixes[name])
    what = "resources" if resources else "workers"
    yield Finding(
        "restrictions",
        f"restrictions left threads idle: `{prefix}` may run only where its `{what}=` allows, "
        f"and waited while {percent(sum(claims.values()) / whole)} of all threads were idle",
        f"{count(len(rows), 'task')} with restrictions",
        "remove the restriction, name more workers, add allow_other_workers=True"
        if what == "workers"
        else "start more workers with this resource (--resources), or request less of it a task",
        f"query RUN \"select key, annotations from graph_tasks where annotations like '%{what}%'\"",  # noqa: S608  a word of ours
        claims=claims,
        uses=evidence.whole(claims),
    )

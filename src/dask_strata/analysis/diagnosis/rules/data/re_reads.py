"""Files that many tasks read again as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.data.file_waits import file_uses
from dask_strata.analysis.words import count, size

#: Executions of a prefix by the file that they opened alone, with the bytes that each read.
_READERS = """
    with opened as (
        select o.process, o.execution, any_value(o.uri) as uri, count(distinct o.uri) as n
        from file_opens o where o.mode = 'read' group by o.process, o.execution
    )
    select coalesce(a.prefix, '(unknown)') as prefix, o.uri, count(*) as n,
           median(e.read_bytes) as nbytes, sum(e.read_bytes)::double as total
    from opened o
    join executions e on e.process = o.process and e.execution = o.execution
    join attempts a on a._key = e._key and a.worker = e.worker and a.run_id = e.run_id
    where o.n = 1 and e.read_bytes > 1000000
    group by 1, 2 having count(*) >= 3 and min(e.read_bytes) > 0.8 * max(e.read_bytes)
    order by total desc
"""

#: Bytes a second that a task reads at most, from the page cache with its parsing left out.
_BYTES_PER_SECOND = 2e9


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the file that is read again most.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    rows = evidence.run.rows(_READERS)
    uses = {use.prefix: use for use in file_uses(evidence)}
    for row in rows:
        use = uses.get(row["prefix"])
        if use is None:
            continue
        share = min(use.read_bytes / _BYTES_PER_SECOND / use.compute_seconds, 1.0)
        again = 1 - 1 / row["n"]
        claims = {
            index: max(seconds * share, use.waits.get(index, 0.0)) * again
            for index, seconds in use.segments.items()
        }
        yield Finding(
            "re-reads",
            f"each `{row['prefix']}` read the same file again: "
            f"{PurePath(row['uri'] or '').name}, {count(row['n'], 'time')}, "
            f"{size(row['nbytes'])} each",
            f"{size(row['total'])} read in all",
            "read only each task's own part (offsets, row groups, chunks=), or read it once "
            "and pass it on: dask.delayed(read)(…), client.scatter(…)",
            "query RUN \"select uri, count(distinct key) as n from task_inputs where kind = 'seen' "
            'group by 1 order by 2 desc"',
            claims=claims,
        )

"""Files that many tasks read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.file_uses import CALL_SECONDS
from dask_strata.analysis.words import count, number, size

#: Files of which the executions of a prefix that opened nothing else read more than there is, by
#: prefix.
_READERS = """
    with opened as (
        select o.process, o.execution, any_value(o.uri) as uri, count(distinct o.uri) as n,
               max(o.file_bytes)::double as file_bytes, sum(o.count)::double as n_opened
        from file_opens o where o.mode = 'read' group by o.process, o.execution
    ), files as (
        select coalesce(a.prefix, '(unknown)') as prefix, o.uri, count(*) as n,
               max(o.file_bytes) as file_bytes, sum(e.read_bytes)::double as total
        from opened o
        join executions e on e.process = o.process and e.execution = o.execution
        join attempts a on a._key = e._key and a.worker = e.worker and a.run_id = e.run_id
        where o.n = 1 and o.file_bytes > 0
          -- Libraries may read other files, which Python does not open.
          and e.read_bytes <= 1.2 * o.file_bytes * o.n_opened
        group by 1, 2 having count(*) >= 3 and sum(e.read_bytes)::double > 2 * max(o.file_bytes)
    )
    select prefix, arg_max(uri, total) as uri, count(*) as n_files, sum(n) as n,
           sum(file_bytes) as file_bytes, sum(total) as total
    from files group by prefix order by total desc
"""

#: Bytes a second that a task reads at most from the page cache, without parsing them.
_BYTES_PER_SECOND = 2e9


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on each prefix whose tasks read the same data.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    rows = evidence.run.rows(_READERS)
    uses = {use.prefix: use for use in evidence.file_uses}
    for row in rows:
        use = uses.get(row["prefix"])
        if use is None:
            continue
        read = use.read_bytes / _BYTES_PER_SECOND + use.read_calls * CALL_SECONDS
        share = min(read / use.compute_seconds, 1.0)
        again = 1 - row["file_bytes"] / row["total"]
        claims = {
            index: max(seconds * share, use.waits.get(index, 0.0)) * again
            for index, seconds in use.segments.items()
        }
        yield Finding(
            "re-reads",
            f"the same data read again: `{row['prefix']}` read "
            f"{PurePath(row['uri'] or '').name}{_others(row['n_files'])} "
            f"{number(row['total'] / row['file_bytes'])} times",
            f"{count(row['n'], 'task')} read {size(row['total'])}, of which there are "
            f"{size(row['file_bytes'])}",
            "read only each task's own part (offsets, row groups, chunks=), or read it once "
            "and pass it on: dask.delayed(read)(…), client.scatter(…)",
            "query RUN \"select uri, count(distinct key) as n from task_inputs where kind = 'seen' "
            'group by 1 order by 2 desc"',
            claims=claims,
        )


def _others(n_files: int) -> str:
    return f" and {count(n_files - 1, 'other file')}" if n_files > 1 else ""

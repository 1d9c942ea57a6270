"""Data that had to be moved between workers before tasks could run."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, number, size

#: Least share of the makespan that makes transfers a cause: some are needed in any run.
_LEAST = 0.15

#: Number of times that a result was moved, from which it was moved repeatedly.
_OFTEN = 3

_MOVED = """
    with moved as (
        select _key, any_value(key) as key, count(*) as n, sum(nbytes) as nbytes,
               count(distinct destination) as n_destinations
        from transfer_keys join transfers using (transfer) group by _key
    )
    select coalesce(sum(n), 0) as n, coalesce(sum(nbytes), 0)::double as nbytes,
           coalesce(sum(n) filter (n >= $1), 0) as n_repeated,
           count(*) filter (n >= $1) as n_keys_repeated,
           coalesce(sum(nbytes) filter (n >= $1), 0)::double as repeated,
           arg_max(key, nbytes) filter (n >= $1) as example,
           max(n) filter (n >= $1) as most
    from moved
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on transfers: of the same data again and again, or of much data.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = {
        index: seconds
        for index, seconds in evidence.where("transfer", "waiting to fetch").items()
        if index not in evidence.shuffle_segments
    }
    if not claims or sum(claims.values()) < _LEAST * evidence.makespan_seconds:
        return
    row = evidence.run.rows(_MOVED, _OFTEN)[0]
    command = (
        "query RUN 'select source, destination, count(*), sum(total_bytes) from transfers "
        "group by all order by 4 desc'"
    )
    if row["repeated"] > row["nbytes"] / 2:
        yield Finding(
            "repeated-transfers",
            f"the same data moved again and again: {count(row['n_keys_repeated'], 'result')} "
            f"{number(row['n_repeated'] / row['n_keys_repeated'])} times each "
            f"({size(row['repeated'])} in all)",
            f"for example {row['example']}: {row['most']:,} times",
            "use it where it is: submit the tasks that need it together, keep its futures, "
            "make it smaller, or use fewer, larger workers",
            command,
            claims=claims,
        )
    else:
        yield Finding(
            "transfers",
            f"tasks waited for data of other workers: {size(row['nbytes'])} in "
            f"{count(row['n'], 'result')} moved",
            f"the critical path waited {number(sum(claims.values()))} s for them",
            "compute where the data is: fuse steps (map_partitions, map_blocks), rechunk or "
            "shuffle less, reduce before results move, or use fewer, larger workers",
            command,
            claims=claims,
        )

"""Data that had to be moved between workers before tasks could run."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import FETCHING, Evidence
from dask_strata.analysis.words import count, number, size

#: Least share of the makespan that makes transfers a cause: some are needed in any run.
_LEAST = 0.15

#: Number of times that a result was moved, from which it was moved repeatedly.
_OFTEN = 3

#: Results that were moved repeatedly: again to a worker that had had them, or, if they are fewer
#: than the workers, from one to many. In an exchange of all with all, many results move to each.
_MOVED = """
    with moved as (
        select _key, any_value(key) as key, count(*) as n, sum(nbytes) as nbytes,
               count(distinct destination) as n_destinations
        from transfer_keys join transfers using (transfer)
        where destination is not null group by _key
    ), again as (
        select * from moved where n >= $1 and n > n_destinations
    ), many as (
        select * from moved where n >= $1 and nbytes > (select sum(nbytes) from moved) / 100
    ), repeated as (
        from again
        union
        from many where (select count(*) from many) < (select max(n_destinations) from moved)
    )
    select coalesce(sum(n), 0) as n, coalesce(sum(nbytes), 0)::double as nbytes,
           (select coalesce(sum(n), 0) from repeated) as n_repeated,
           (select count(*) from repeated) as n_keys_repeated,
           (select coalesce(sum(nbytes), 0)::double from repeated) as repeated,
           -- One copy for each worker is needed at least, or, of few results, one in all.
           (select coalesce(sum(nbytes / n * case when n > n_destinations then n_destinations
                                else 1 end), 0)::double from repeated) as needed,
           (select arg_max(key, nbytes) from repeated) as example,
           (select arg_max(n, nbytes) from repeated) as most,
           (select arg_max(n_destinations, nbytes) from repeated) as n_destinations
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
        for index, seconds in evidence.where(*FETCHING).items()
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
            "transfers of the same data again and again: "
            f"{count(row['n_keys_repeated'], 'result')} "
            f"{number(row['n_repeated'] / row['n_keys_repeated'])} times each "
            f"({size(row['repeated'])} in all)",
            f"for example {row['example']}: {count(row['most'], 'transfer')} to "
            f"{count(row['n_destinations'], 'worker')}",
            "use it where it is: submit the tasks that need it together, keep its futures or "
            "persist it, make it smaller, or use fewer, larger workers (more threads each)",
            command,
            claims={i: s * (1 - row["needed"] / row["nbytes"]) for i, s in claims.items()},
            uses=claims,
        )
    else:
        yield Finding(
            "transfers",
            f"transfers: tasks waited for data of other workers, {size(row['nbytes'])} in "
            f"{count(row['n'], 'transfer')} of results",
            f"the critical path waited {number(sum(claims.values()))} s for them",
            "compute where the data is: fuse steps (map_partitions, map_blocks), rechunk or "
            "shuffle less, reduce before results move, or use fewer, larger workers",
            command,
            claims=claims,
        )

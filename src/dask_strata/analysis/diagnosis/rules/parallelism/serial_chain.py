"""Chains of tasks, of which each needs the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.parallelism.idle import idle_seconds
from dask_strata.analysis.words import duration, percent

#: Least number of tasks that make a chain.
_LEAST_TASKS = 5

#: Largest share of the chain's time that one task may have.
_LARGEST_PART = 0.35

#: Share of tasks with several inputs that are no leaves of the graph, from which it is a tree.
_MOST_JOINS = 0.4

#: Keys with several dependencies that have dependencies themselves.
_JOINS = """
    select e._key from graph_edges e
    where e._key in (select unnest($1::bigint[]))
      and e._dependency in (select _key from graph_edges)
    group by e._key having count(distinct e._dependency) > 1
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on a chain of tasks that ran while threads were idle.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    idle = idle_seconds(evidence)
    chains = evidence.chains
    for chain in chains:
        own = {i for i in chain if evidence.segments[i].cause != "waiting for a worker"}
        claims = {index: idle[index] for index in own if index in idle}
        tasks: dict[int, float] = {}
        for index, seconds in claims.items():
            runner = evidence.runners[index]
            tasks[runner.attempt] = tasks.get(runner.attempt, 0.0) + seconds
        total = sum(tasks.values())
        if len(tasks) < _LEAST_TASKS or max(tasks.values()) > _LARGEST_PART * total:
            continue
        if _joins(evidence, tasks) > _MOST_JOINS * len(tasks):
            continue
        # Messages from each task to the next are a part of the chain's time.
        first, last = min(claims), max(claims)
        claims |= {
            index: evidence.segments[index].seconds * evidence.idle_shares[index]
            for index in range(first, last + 1)
            if evidence.segments[index].cause in {"scheduler", "deserialize", "transfer"}
        }
        prefix = evidence.main_prefix(tasks)
        whole = sum(evidence.segments[i].seconds for i in claims)
        yield Finding(
            "serial-chain",
            f"a chain of {len(tasks):,} tasks, mostly `{prefix}`: each needs the result of the "
            f"one before, while {percent(sum(claims.values()) / whole)} of all threads were "
            "idle",
            f"the chain took {duration(whole)} of {duration(evidence.makespan_seconds)}",
            "combine results in a tree (bag.fold, dask.delayed(sum) of groups, "
            "split_every=…), run independent chains at once, or make each step smaller",
            f"tasks RUN --prefix {prefix} --sort -started",
            claims=claims,
            uses=evidence.whole(claims),
        )


def _joins(evidence: Evidence, attempts: Iterable[int]) -> int:
    """Return the number of tasks of some attempts that join results of several others."""
    keys = evidence.keys_on_path
    chosen = sorted({keys[attempt] for attempt in attempts if attempt in keys})
    return len(evidence.run.rows(_JOINS, chosen))

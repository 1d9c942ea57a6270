"""Workers that import modules while tasks wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.loop_blocks import seconds_of, waited_for, when, within
from dask_strata.analysis.diagnosis.places import module_of, waited_at
from dask_strata.analysis.diagnosis.samples import Runner, Waited
from dask_strata.analysis.words import count, duration

#: Share of the makespan up to which imports are no cause: each run has some, once.
_LEAST_SHARE = 0.2


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on imports in event loops, before tasks, and in functions of tasks.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    starts = when(evidence.loop_blocks.starts)
    in_loops = within(evidence, starts) | evidence.beside(starts)
    in_tasks, runners = _in_tasks(evidence)
    claims = in_tasks | in_loops
    if not claims or sum(claims.values()) < _LEAST_SHARE * evidence.makespan_seconds:
        return
    seconds = sum(in_loops.values()), sum(in_tasks.values())
    if seconds[0] > seconds[1]:
        where = _longest_loop(evidence, in_loops)
    else:
        main = evidence.samples.main(runners, _is_import)
        place = waited_at(main, evidence.run.script) if main is not None else ""
        where = f"`{runners[0].prefix}`{place}"
    yield Finding(
        "imports",
        f"workers imported modules while tasks waited: {where}",
        f"{duration(seconds[0])} of the critical path in event loops, just before the first task "
        f"of a prefix, and {duration(seconds[1])} in functions of tasks",
        "import the modules before: --preload, client.run, a WorkerPlugin; or keep the Python "
        "environment on a node-local disk",
        "query RUN 'select start, worker, seconds from loop_blocks order by start'",
        claims=claims,
    )


def _longest_loop(evidence: Evidence, claims: dict[int, float]) -> str:
    blocks = evidence.loop_blocks.starts
    by_worker: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        by_worker.setdefault(block["worker"], []).append(block)
    longest = max(by_worker, key=lambda w: (waited_for(evidence, claims, by_worker[w]), w))
    worst = max(by_worker[longest], key=seconds_of)
    return (
        f"the event loop of worker {worst['name'] or worst['worker']} for "
        f"{duration(seconds_of(worst))}, and "
        f"{count(len({block['worker'] for block in blocks}), 'worker')} in all"
    )


def _in_tasks(evidence: Evidence) -> tuple[dict[int, float], list[Runner]]:
    """Return the seconds in imports by segment, and the executions, the longest first."""
    claims: dict[int, float] = {}
    totals: dict[Runner, float] = {}
    for index, seconds, runner in evidence.runner_seconds():
        share = evidence.samples.time_share(runner, _is_import)
        if share:
            claims[index] = seconds * share
            totals[runner] = totals.get(runner, 0.0) + claims[index]
    return claims, sorted(totals, key=lambda runner: -totals[runner])


def _is_import(waited: Waited) -> bool:
    """Return whether samples are in Python's import system."""
    return waited.calls is not None and module_of(waited.calls) == "importlib"

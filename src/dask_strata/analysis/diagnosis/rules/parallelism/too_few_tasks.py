"""Fewer tasks than threads."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.parallelism.idle import idle_seconds
from dask_strata.analysis.words import duration, number, percent


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on tasks that ran while threads were idle, as there were no others.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = {
        index: seconds
        for index, seconds in idle_seconds(evidence).items()
        if evidence.segments[index].cause != "waiting for a worker"
    }
    if not claims:
        return
    tasks: dict[int, float] = {}
    for index, seconds in claims.items():
        attempt = evidence.runners[index].attempt
        tasks[attempt] = tasks.get(attempt, 0.0) + seconds
    prefix = evidence.main_prefix(tasks)
    whole = sum(evidence.segments[i].seconds for i in claims)
    share = sum(claims.values()) / whole
    threads = (
        sum(
            evidence.n_threads(evidence.segments[i].start, evidence.segments[i].stop)
            * evidence.segments[i].seconds
            for i in claims
        )
        / whole
    )
    yield Finding(
        "too-few-tasks",
        f"too few tasks at once: `{prefix}` kept {number((1 - share) * threads)} of "
        f"{number(threads)} threads busy for {duration(whole)}",
        f"{percent(share)} of all threads were idle, and no other task could run",
        "divide the work into more tasks: smaller chunks, repartition(npartitions=…), "
        "db.from_sequence(npartitions=…); or use a smaller cluster",
        f"tasks RUN --prefix {prefix} --sort compute_seconds",
        claims=claims,
        uses=evidence.whole(claims),
    )

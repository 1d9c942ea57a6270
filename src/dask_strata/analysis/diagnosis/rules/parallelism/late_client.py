"""A client that submits late, or waits for each result before it submits more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import line_of
from dask_strata.analysis.diagnosis.rules.parallelism.idle import LEAST_IDLE
from dask_strata.analysis.words import duration

#: Causes in which the cluster waited for the client.
_LATE = ("client", "nothing submitted", "gather")

#: Least number of submissions of one line, of which each waited for the one before.
_LEAST_LOOP = 3


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the client kept the cluster waiting.

    A person who reads a result before the next cell runs is no cause.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    if evidence.client.is_interactive:
        return
    claims = {
        index: seconds * evidence.idle_shares[index]
        for index, seconds in evidence.where(*_LATE).items()
    }
    late = sum(claims.values())
    loop = _loop(evidence)
    if loop is not None:
        claims |= loop[1]
    if not claims:
        return
    in_tasks = sum(claims.values()) - late
    if loop is not None and in_tasks > late / 4:
        row, n = loop[0], len(loop[2])
        text = f"the client waits for each result before it submits more: {n:,} times{line_of(row)}"
        advice = (
            "submit all of it first, and compute once: dask.compute(*many), client.map(…), "
            "as_completed(…)"
        )
    else:
        place = evidence.client.place(claims)
        text = f"the client submitted late: the cluster waited for it {duration(late)}"
        text += line_of(place) if place else ""
        advice = (
            "submit before other work: client.compute(…) and persist() return at once; do the "
            "work between in tasks"
        )
    yield Finding(
        "late-client",
        text,
        f"{duration(late)} without submitted work, {duration(in_tasks)} in tasks that ran alone",
        advice,
        "query RUN 'select began, time, n_keys, file, line, code from client_submissions'",
        claims=claims,
        uses=evidence.whole(claims),
    )


def _loop(evidence: Evidence) -> tuple[dict[str, Any], dict[int, float], list[Any]] | None:
    """Return the line of a loop, the idle seconds of its tasks, and its submissions."""
    lines: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in evidence.client.submissions:
        if row["line"]:
            lines.setdefault((row["file"], row["line"]), []).append(row)
    best = max(lines.values(), key=len, default=[])
    if len(best) < _LEAST_LOOP:
        return None
    starts = [row["began"] or row["time"] for row in best]
    every = sorted(row["began"] or row["time"] for row in evidence.client.submissions)
    alone = sorted(
        (evidence.segments[index].start, index, seconds * evidence.idle_shares[index])
        for index, seconds, _ in evidence.runner_seconds()
        if evidence.idle_shares[index] >= LEAST_IDLE
    )
    claims: dict[int, float] = {}
    n_waited = 0
    for start in starts:
        after = bisect_right(every, start)
        stop = every[after] if after < len(every) else evidence.window[1]
        of_one = alone[bisect_left(alone, (start,)) : bisect_left(alone, (stop,))]
        n_waited += bool(of_one)
        claims |= {index: seconds for _, index, seconds in of_one}
    # Without waits between them, the tasks of a loop of submissions run at the same time.
    return (best[0], claims, best) if n_waited > len(best) / 2 else None

"""Graphs that take long to build, send and unpack."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import line_of
from dask_strata.analysis.words import count, duration, size

#: Number of graphs from which they are many small ones.
_MANY = 50


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for graphs.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = evidence.where("graph")
    if not claims or not evidence.client.submissions:
        return
    for index, segment in enumerate(evidence.segments[:-1]):
        # The scheduler is still unpacking the graph, or sorting its tasks.
        after = evidence.segments[index + 1]
        if segment.cause == "graph" and after.cause == "blocked event loop":
            claims[index + 1] = after.seconds
    seconds, sent = sum(claims.values()), evidence.client.submissions
    worst = max(sent, key=lambda row: row["time"] - (row["began"] or row["time"]))
    n_tasks, n_bytes = evidence.client.n_sent_tasks, sum(row["sent_bytes"] or 0 for row in sent)
    if len(sent) >= _MANY:
        text = f"{len(sent):,} graphs sent one by one{line_of(worst)}"
        advice = "submit them together: client.map(…), or dask.compute(*many)"
    else:
        text = f"a large graph: {count(n_tasks, 'task')}{line_of(worst)}"
        advice = (
            "submit fewer tasks: larger chunks or partitions, map_partitions or map_blocks, "
            "persist() between steps"
        )
    yield Finding(
        "large-graph",
        f"{text}; the client and the scheduler needed {duration(seconds)} before tasks could start",
        f"{count(len(sent), 'graph')}, {count(n_tasks, 'task')}, {size(n_bytes)} sent",
        advice,
        "query RUN 'select began, time, sent_bytes, file, line, code from client_submissions'",
        claims=claims,
    )

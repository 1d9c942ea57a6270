"""Definitions of tasks that contain large data: closures, arguments, constants of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import line_of
from dask_strata.analysis.words import count, size

#: Size of a graph, and of a task in it, that is large: Dask warns of 10 MB.
_LARGE_BYTES = 10_000_000
_LARGE_TASK_BYTES = 100_000

#: Causes that depend on the size of definitions.
_CAUSES = frozenset({"graph", "deserialize", "scheduler", "blocked event loop"})

#: Shortest segment that a large definition explains, in seconds; messages take less.
_LEAST = 0.005


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if graphs with large definitions were sent.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    sent = evidence.client.submissions
    large = [row for row in sent if (row["sent_bytes"] or 0) >= _LARGE_TASK_BYTES]
    total = sum(row["sent_bytes"] for row in large)
    n_tasks = evidence.client.n_sent_tasks
    if total < _LARGE_BYTES or total / max(n_tasks, 1) < _LARGE_TASK_BYTES:
        return
    ends = [row["began"] or row["time"] for row in sent[1:]] + [evidence.window[1]]
    spans = [
        (row["began"] or row["time"], end)
        for row, end in zip(sent, ends, strict=True)
        if (row["sent_bytes"] or 0) >= _LARGE_TASK_BYTES
    ]
    claims = {
        index: segment.seconds
        for index, segment in enumerate(evidence.segments)
        if segment.cause in _CAUSES
        and segment.seconds >= _LEAST
        and any(a <= segment.start < max(b, a + 1) or a < segment.stop <= b for a, b in spans)
    }
    worst = max(large, key=lambda row: row["sent_bytes"])
    yield Finding(
        "large-definitions",
        f"large data in the definitions of tasks: the client sent {size(total)} for "
        f"{count(n_tasks, 'task')}{line_of(worst)}",
        f"{count(len(large), 'graph')} with {size(total)}; the largest has "
        f"{size(worst['sent_bytes'])}",
        "pass the data as an argument after client.scatter(…) or dask.delayed(data), or load "
        "it in the task",
        "query RUN 'select time, sent_bytes, file, line, code from client_submissions order "
        "by sent_bytes desc'",
        claims=claims,
    )

"""Tasks so small that Dask's cost of a task is larger than the task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import RUNNING, Evidence
from dask_strata.analysis.words import duration, percent

#: Parts into which the makespan is divided, and the least length of a part in seconds.
_PARTS = 400
_LEAST_PART = 0.1

#: Least number of tasks a second that makes the cost of a task matter, for the whole cluster.
_LEAST_RATE = 150

#: Least share of idle threads meanwhile.
_LEAST_IDLE = 0.5

_ENDS = """
    select floor((epoch_ns(stop) - $1) / $2)::bigint as part, count(*) as n,
           sum(compute_seconds) as seconds
    from attempts where outcome in ('memory', 'erred') and stop is not null
      and compute_seconds is not null and epoch_ns(stop) between $1 and $3
    group by 1
"""

_PREFIXES = """
    select coalesce(prefix, '(unknown)') as prefix, count(*) as n,
           median(compute_seconds) as median_seconds
    from attempts where outcome in ('memory', 'erred') and compute_seconds is not null
      and list_contains($2::bigint[], floor((epoch_ns(stop) - $1) / $3)::bigint)
    group by 1 order by n desc, prefix limit 1
"""

#: Causes in which small tasks wait for Dask.
_OVERHEAD = frozenset(
    {"scheduler", "deserialize", "waiting for a worker", "blocked event loop", "client", "graph"}
)

_BAG = "use fewer, larger partitions: db.from_sequence(…, npartitions=…)"
_DATAFRAME = "use larger partitions: df.repartition(partition_size='100MB')"
_ADVICE = {
    "Bag": _BAG,
    "Item": _BAG,
    "Array": "use larger chunks: da.from_array(…, chunks=…) or x.rechunk(…)",
    "DataFrame": _DATAFRAME,
    "Series": _DATAFRAME,
    "Scalar": _DATAFRAME,
}
_ANY = "batch them: one task for a list of items, such as client.map(process_many, lists_of_items)"


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if Dask's cost a task exceeded the tasks' own time.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    first, last = evidence.window
    length = max((last - first) // _PARTS, int(_LEAST_PART * 1e9))
    rows = evidence.run.rows(_ENDS, first, length, last)
    n_parts = (last - first) // length + 1
    lost = np.zeros(n_parts)
    n_tiny, tiny_parts, overhead, busy, held = 0, [], 0.0, 0.0, 0.0
    for row in rows:
        start = first + row["part"] * length
        stop = min(start + length, last)
        if stop <= start:
            continue
        available = evidence.n_threads(start, stop) * (stop - start) / 1e9
        idle = evidence.idle_share(start, stop)
        rate = row["n"] / ((stop - start) / 1e9)
        # Time in which threads wait for data, memory or a resource is no cost of a task.
        if rate < _LEAST_RATE or row["seconds"] > idle * available or idle < _LEAST_IDLE:
            continue
        lost[row["part"]] = 1 - row["seconds"] / available
        n_tiny += row["n"]
        tiny_parts.append(row["part"])
        overhead += (stop - start) / 1e9
        busy, held = busy + row["seconds"], held + available
    if not tiny_parts:
        return
    upto = np.concatenate([[0.0], np.cumsum(lost)]) * length / 1e9
    edges = np.arange(n_parts + 1) * float(length)
    claims = {}
    for index, segment in enumerate(evidence.segments):
        if segment.cause not in _OVERHEAD and segment.cause not in RUNNING:
            continue
        runner = evidence.runners.get(index)
        seconds = evidence.attempts.get(runner.attempt, {}).get("compute_seconds") if runner else 0
        if (seconds or 0) > overhead / n_tiny * 10:
            continue  # a long task that ran beside small ones
        a, b = np.interp([segment.start - first, segment.stop - first], edges, upto)
        claims[index] = float(b - a)
    used = busy / held
    collections = {row["collection"] for row in evidence.client.submissions}
    prefix = evidence.run.rows(_PREFIXES, first, tiny_parts, length)[0]
    yield Finding(
        "tiny-tasks",
        f"tasks too small: {prefix['n']:,} `{prefix['prefix']}` of "
        f"{duration(prefix['median_seconds'])} median; Dask needs "
        f"{duration(overhead / n_tiny)} for each",
        f"{n_tiny:,} tasks ended in {duration(overhead)}, in which functions of tasks used "
        f"{percent(used)} of the thread-seconds",
        next((text for name, text in _ADVICE.items() if name in collections), _ANY),
        f"tasks RUN --prefix {prefix['prefix']} --sort compute_seconds",
        claims=claims,
    )

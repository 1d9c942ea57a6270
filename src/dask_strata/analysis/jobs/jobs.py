"""The batch jobs of a run in one sentence, and as rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import count, duration

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: Columns of the table on a terminal; the other formats have all columns.
BRIEF = (
    "job",
    "name",
    "state",
    "reason",
    "exit_code",
    "nodes",
    "queue",
    "queue_seconds",
    "used_seconds",
    "time_limit_seconds",
    "memory_used_bytes",
    "workers_rss_bytes",
    "memory_limit_bytes",
    "cpus",
    "n_workers",
    "n_tasks",
    "n_attempts",
)

#: How batch systems are written.
_SYSTEMS = {"slurm": "Slurm", "pbs": "PBS", "lsf": "LSF", "sge": "SGE", "htcondor": "HTCondor",
            "flux": "Flux", "oar": "OAR", "cobalt": "Cobalt"}  # fmt: skip

#: States that have words of their own; the others are quoted.
_RUNNING, _PENDING, _LIMIT = "RUNNING", "PENDING", "TIMEOUT"

#: Most names of partitions in a sentence.
_NAMES = 3

#: Nodes as in Slurm's lists: one name, or a prefix with numbers in brackets.
_NODE = re.compile(r"([^,\[\]]+)(?:\[([0-9,-]+)\])?([^,\[\]]*)")
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_MAX_NODES = 100_000


@dataclass(frozen=True)
class Jobs:
    """The batch jobs of a run.

    Attributes
    ----------
    n_jobs, n_nodes : int
        Jobs, and the different nodes on which they ran.
    states : dict of str to int
        Number of jobs by state; those of an unknown state are missing.
    sentence : str
        All that in a sentence.
    """

    n_jobs: int
    n_nodes: int
    states: dict[str, int]
    sentence: str


def summarize_jobs(run: Run) -> Jobs | None:
    """Return the batch jobs of a run; None if no job is on record.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows("from jobs")
    if not rows:
        return None
    nodes = {node for row in rows for node in node_names(row["nodes"])}
    states = Counter(row["state"] for row in rows if row["state"] is not None)
    systems = {_SYSTEMS.get(row["system"], row["system"]) for row in rows if row["system"]}
    queues = sorted({row["queue"] for row in rows if row["queue"]})
    noun = f"{systems.pop()} job" if len(systems) == 1 else "batch job"
    text = count(len(rows), noun)
    if nodes:
        text += f" on {count(len(nodes), 'node')}"
    if queues:
        some = ", ".join(queues[:_NAMES]) + (", …" if len(queues) > _NAMES else "")
        text += f" (partition {some})" if noun == "Slurm job" else f" (queue {some})"
    parts = [*_states(rows), *_queue(rows)]
    if parts:
        text += f": {', '.join(parts)}"
    return Jobs(len(rows), len(nodes), dict(states), text)


def _states(rows: list[dict[str, Any]]) -> Iterator[str]:
    by_state: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["state"]:
            by_state.setdefault(row["state"], []).append(row)
    for state, jobs in sorted(by_state.items(), key=lambda item: (-len(item[1]), item[0])):
        n = f"{len(jobs):,}"
        if state == _PENDING:
            yield f"{n} still pending"
        elif state == _RUNNING:
            yield f"{n} still running"
        elif state == _LIMIT and (spent := _longest(jobs, "used_seconds")) is not None:
            limit = _longest(jobs, "time_limit_seconds")
            of = "" if limit is None else f" of {duration(limit)}"
            yield f"{n} ended by {state} after {duration(spent)}{of}"
        else:
            yield f"{n} {state}"


def _longest(jobs: list[dict[str, Any]], column: str) -> float | None:
    return max((job[column] for job in jobs if job[column] is not None), default=None)


def _queue(rows: list[dict[str, Any]]) -> Iterator[str]:
    waits = [row["queue_seconds"] for row in rows if row["queue_seconds"] is not None]
    if waits:
        least, most = duration(min(waits)), duration(max(waits))
        yield f"queue wait {most}" if least == most else f"queue wait {least} to {most}"


def node_names(nodes: str | None) -> set[str]:
    """Return the single nodes of a list as Slurm writes it.

    >>> sorted(node_names("a[1-2,05],b"))
    ['a05', 'a1', 'a2', 'b']
    """
    names: set[str] = set()
    for match in _NODE.finditer(nodes or ""):
        prefix, numbers, suffix = match.groups()
        for part in (numbers or "").split(","):
            several = _RANGE.fullmatch(part)
            if several is None:
                names.add(f"{prefix}{part}{suffix}")
                continue
            first, last = int(several[1]), int(several[2])
            last = min(last, first + _MAX_NODES - len(names))
            width = len(several[1])  # leading zeros are part of the name
            names.update(f"{prefix}{n:0{width}d}{suffix}" for n in range(first, last + 1))
    return names


def select_jobs(run: Run, *, brief: bool = False) -> pa.Table:
    """Return the rows of ``jobs``.

    Parameters
    ----------
    run : Run
        The run.
    brief : bool, optional
        Return only the columns in `BRIEF`, without those that are null in every row.
    """
    table = run["jobs"].to_arrow()
    if not brief:
        return table
    return table.select([c for c in BRIEF if table[c].null_count < max(len(table), 1)])

"""Runs of many tasks, workers and transfers that are planned first: tests compute from the plan."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.synthetic import SECOND, T0, Process, moves, new_run

MS = SECOND // 1000


@dataclass(frozen=True)
class PlannedTask:
    """A task; times are ms since the start of the run, a size of None is not on record."""

    key: str
    prefix: str
    group: str
    worker: str
    start: int
    stop: int
    nbytes: int | None
    erred: bool


@dataclass
class Plan:
    """The rows of a run.

    Edges are pairs of a task and its dependency; transfers are source, destination (None for a
    client), start and stop in ms, bytes and results. Workers are named by their number, or as in
    `names`.
    """

    workers: list[str]
    tasks: list[PlannedTask] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    transfers: list[tuple[str, str | None, int, int, int | None, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def planned(seed: int, n_tasks: int = 300, n_workers: int = 5, n_prefixes: int = 6) -> Plan:
    """Return a plan with many groups, some large, shared dependencies, and unknown sizes."""
    rng = np.random.default_rng(seed)
    plan = Plan([f"tcp://10.0.0.{w}:1" for w in range(n_workers)])
    for i in range(n_tasks):
        prefix = int(rng.integers(n_prefixes) ** 2 // n_prefixes)
        group = int(rng.integers(1 + 3 * prefix))
        start = int(rng.integers(1000, 90_000))
        plan.tasks.append(
            PlannedTask(
                key=f"('p{prefix}-{group:032x}', {i})",
                prefix=f"p{prefix}",
                group=f"p{prefix}-{group:032x}",
                worker=plan.workers[int(rng.integers(n_workers))],
                start=start,
                stop=start + int(rng.lognormal(4 + prefix, 1.2)) + 1,
                nbytes=int(rng.integers(1, 1 << 40)) if rng.random() < 0.9 else None,
                erred=bool(rng.random() < 0.05),
            )
        )
    pairs = {
        (max(a, b), min(a, b))
        for a, b in rng.integers(0, n_tasks, (2 * n_tasks, 2)).tolist()
        if a != b
    }
    plan.edges = [(plan.tasks[a].key, plan.tasks[b].key) for a, b in sorted(pairs)]
    ends: list[str | None] = [*plan.workers, None]
    for source, to in rng.integers(0, [n_workers, n_workers + 1], (6 * n_workers, 2)).tolist():
        if source != to:
            start = int(rng.integers(1000, 80_000))
            stop = start + int(rng.integers(1, 500))
            nbytes = int(rng.integers(1, 1 << 42)) if rng.random() < 0.9 else None
            plan.transfers.append((plan.workers[source], ends[to], start, stop, nbytes, 3))
    return plan


def write(folder: Path, plan: Plan, **definitions: Any) -> Path:
    """Write the run of a plan; definitions are further columns of the graph's tasks."""
    new_run(folder)
    names = plan.names or [str(n) for n in range(len(plan.workers))]
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [
            {"time": T0, "worker": worker, "name": name, "action": "add"}
            for name, worker in zip(names, plan.workers, strict=True)
        ],
    )
    rows: list[dict[str, Any]] = []
    for task in plan.tasks:
        done = "erred" if task.erred else "memory"
        steps = ((0.5, "released", "waiting"), (task.start / 1e3, "waiting", "processing"))
        rows += moves(
            task.key, *steps, (task.stop / 1e3, "processing", done),
            worker=task.worker, thread=1, nbytes=task.nbytes,
            startstops=[["compute", T0 + task.start * MS, (task.stop - task.start) * MS, None]],
        )  # fmt: skip
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.write(
        "graph_tasks",
        [
            {"key": t.key, "prefix": t.prefix, "group": t.group, "function": f"f.{t.prefix}"}
            | definitions.get(t.prefix, {})
            for t in plan.tasks
        ],
    )
    scheduler.write("graph_edges", [{"key": a, "dependency": b} for a, b in plan.edges])
    scheduler.end(at=T0 + 100 * SECOND)
    for n, worker in enumerate(plan.workers):
        process = Process(folder, f"worker-{n}", address=worker, name=names[n], nthreads=1)
        sent = [t for t in plan.transfers if t[0] == worker]
        process.write(
            "transfer_ends",
            [
                {
                    "number": i, "end": "outgoing", "worker": worker, "peer": to,
                    "start": T0 + start * MS, "stop": T0 + stop * MS, "total_bytes": nbytes,
                    "n_keys": keys,
                }
                for i, (_, to, start, stop, nbytes, keys) in enumerate(sent)
            ],
        )  # fmt: skip
        process.end(at=T0 + 100 * SECOND)
    return folder


def fused(functions: list[str], layers: list[str], prefixes: list[str]) -> dict[str, str]:
    """Return columns of a task that Dask fused of several."""
    return {
        "functions": json.dumps(functions),
        "fused_layers": json.dumps(layers),
        "fused_prefixes": json.dumps(prefixes),
    }

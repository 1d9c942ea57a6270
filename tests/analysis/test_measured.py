"""Derived tables on spans, memory, scaling and GPUs, of rows that the tests choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata import open_run
from dask_strata.analysis.measured.memory import workers_memory
from dask_strata.analysis.measured.scaling import summarize_scaling
from dask_strata.analysis.measured.spans import MOST_SPANS, spans
from tests.analysis.one_worker import W
from tests.conftest import rows
from tests.support.synthetic import SECOND, T0, Process, life, new_run

MIB = 1 << 20


def _run(folder: Path, scheduler: dict[str, list], worker: dict[str, list] | None = None) -> Any:
    new_run(folder)
    for name, tables in (("scheduler-1", scheduler), ("worker-1", worker or {})):
        process = Process(folder, name, address=W if "worker" in name else "tcp://s:1", name="w")
        for table, of_table in tables.items():
            process.write(table, of_table)
        process.end()
    return open_run(folder)


def _at(seconds: float) -> int:
    return T0 + int(seconds * SECOND)


def test_a_sample_counts_until_the_next_one(tmp_path: Path) -> None:
    """Seconds above each limit; a size that equals a limit is not above it."""
    sizes = [(0, 50, 10), (1, 81, 10), (2.5, 81, 61), (3, 96, 61), (5, 80, 0), (9, 99, 0)]
    samples = [
        {
            "time": _at(t), "worker": W, "seen_by": "worker",
            "rss_bytes": rss * MIB, "managed_bytes": managed * MIB,
        }
        for t, rss, managed in sizes
    ]  # fmt: skip
    limits = {"time": T0, "worker": W, "limit_bytes": 100 * MIB, "target_bytes": 60 * MIB}
    limits |= {"pause_bytes": 80 * MIB, "terminate_bytes": 95 * MIB}
    run = _run(tmp_path, {}, {"worker_samples": samples, "memory_limits": [limits]})
    [row] = rows(run, "from worker_memory")
    assert row["peak_bytes"] == 99 * MIB  # the last sample counts for the peak, and for no time
    assert row["results_peak_bytes"] == 61 * MIB
    assert row["seconds"] == 9
    assert row["above_target_seconds"] == 2.5
    assert row["above_spill_seconds"] is None
    assert row["above_pause_seconds"] == 4
    assert row["above_terminate_seconds"] == 2
    found = workers_memory(run)
    assert found is not None
    assert [(each.limit, each.seconds) for each in found.above] == [
        ("terminate", 2), ("pause", 4), ("target", 2.5),
    ]  # fmt: skip
    assert found.sentence.startswith("peak 99 MiB of 100 MiB (worker ")


def test_what_was_not_sampled_is_unknown(tmp_path: Path) -> None:
    """Without samples of a size, the time above its limit is null; without limits, size decides."""
    at = {"worker": W, "seen_by": "worker"}
    samples = [{"time": _at(t), "rss_bytes": 70 * MIB, **at} for t in (0, 1)]
    limits = {"time": T0, "worker": W, "target_bytes": 60 * MIB, "spill_bytes": 60 * MIB}
    _run(tmp_path, {}, {"worker_samples": samples, "memory_limits": [limits]})
    larger = Process(tmp_path, "worker-2", address="tcp://w:2", name="larger")
    more = {"worker": "tcp://w:2", "rss_bytes": 80 * MIB}
    larger.write("worker_samples", [{"time": _at(1), **at, **more}])
    larger.end()
    run = open_run(tmp_path)
    [row] = rows(run, f"from worker_memory where worker = '{W}'")
    assert (row["above_target_seconds"], row["above_spill_seconds"]) == (None, 1)
    found = workers_memory(run)
    assert found is not None
    assert (found.peak_bytes, found.limit_bytes) == (80 * MIB, None)


def test_gpu_samples_are_those_within_the_function(tmp_path: Path) -> None:
    """Mean and peak of the samples from its start to its end; null without one."""
    moves = life("a-1", 1, 3, W) + life("b-1", 3.1, 3.4, W)
    samples = [(0.9, 100, 9), (1, 10, 1), (2, 20, 5), (3, 60, 2), (3.5, 100, 9)]
    gpu = [
        {"time": _at(t), "worker": W, "utilization": share, "used_bytes": used * MIB}
        for t, share, used in samples
    ]
    run = _run(tmp_path, {"scheduler_transitions": moves}, {"gpu_samples": gpu})
    found = rows(run, "select g.* from gpu_attempts g join attempts using (attempt) order by key")
    assert [row["n_samples"] for row in found] == [3, 0]
    assert [row["utilization"] for row in found] == [30, None]
    assert [row["peak_bytes"] for row in found] == [5 * MIB, None]


def test_a_decision_has_the_last_load_before_it(tmp_path: Path) -> None:
    """Bounds are its reason where they decided; an earlier decision has none."""
    load = {"n_workers": 2, "queued": 7, "processing": 2, "results_bytes": 7 * MIB}
    load |= {"memory_limit_bytes": 10 * MIB}
    targets = [
        {"time": _at(2), "target": 9, "reason": "work", **load},
        {"time": _at(3), "target": 4, "reason": "memory", **load},
        {"time": _at(4), "target": 0, "reason": "idle", **load},
    ]
    log = [
        {"time": _at(t), "status": status, "n_plan": plan, "target": target, "minimum": 1,
         "maximum": 5}
        for t, status, plan, target in [
            (1, "up", None, 1), (2.1, "up", 2, 5), (3.1, "up", 2, 4), (4.1, "down", 5, 1),
        ]
    ]  # fmt: skip
    run = _run(tmp_path, {"adaptive_targets": targets, "adaptive_log": log})
    found = rows(run, "select reason, wanted from adaptive_decisions order by time")
    assert [(row["reason"], row["wanted"]) for row in found] == [
        (None, None), ("maximum", 9), ("memory", 4), ("minimum", 0),
    ]  # fmt: skip
    scaling = summarize_scaling(run)
    assert scaling is not None
    assert scaling.sentence == (
        "4 decisions: 3 up, 1 down; up 2 → 5 workers at 2.1 s (the maximum; 9 wanted: 7 tasks "
        "waited, 2 were assigned); up 2 → 4 workers at 3.1 s (results filled 70 % of the memory "
        "limits); down 5 → 1 worker at 4.1 s (the minimum; 0 wanted); and 1 more"
    )


def test_many_spans_are_bounded(tmp_path: Path) -> None:
    """Those with the most compute time are kept, with the spans around them."""
    n = MOST_SPANS + 50
    names = ["all"] + [f"all / part {i}" for i in range(n)]
    facts = [
        {
            "time": T0, "span": f"id-{i}", "name": name, "enqueued": T0 + i,
            "tags": str(name.split(" / ")).replace("'", '"'),
        }
        for i, name in enumerate(names)
    ]  # fmt: skip
    tasks = [
        {"submission": "s", "key": f"k-{i}", "span": f"id-{i + 1}", "prefix": "k"} for i in range(n)
    ]
    moves = [row for i in range(n) for row in life(f"k-{i}", 1, 2 + i / 100, W)]
    run = _run(
        tmp_path,
        {
            "spans": facts,
            "submissions": [{"submission": "s", "time": T0, "client": "c"}],
            "graph_tasks": tasks,
            "scheduler_transitions": sorted(moves, key=lambda row: row["time"]),
        },
    )
    found = spans(run)
    assert len(found) == MOST_SPANS
    assert (found[0].name, found[0].n_tasks, found[0].depth) == ("all", n, 0)
    kept = {use.name for use in found[1:]}
    assert kept == {f"all / part {i}" for i in range(n - MOST_SPANS + 1, n)}
    assert {use.depth for use in found[1:]} == {1}

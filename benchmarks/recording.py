"""Cost of a recording, from the run itself: bytes, rows, CPU of the recorders' threads."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROLES = ("scheduler", "worker", "nanny", "client")
#: Tables with one row per event; other tables do not grow in proportion to the work.
COUNTED = {"scheduler": "scheduler_transitions", "worker": "worker_transitions"}


def folder_bytes(folder: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in folder.glob(pattern))


def threads(run, window: list[int]) -> dict[str, dict[str, float]]:
    """Return CPU seconds and rows of the recorders' threads during the workload, by role."""
    processes = run.processes.to_arrow().select(["process", "role"]).to_pylist()
    found = {role: {"cpu": 0.0, "rows": 0} for role in ROLES}
    overheads = run.overheads.to_arrow().select(["process", "time", "cpu_seconds", "rows"])
    # As integers: without pandas, Arrow cannot convert nanoseconds to Python objects.
    rows = overheads.set_column(1, "time", overheads["time"].cast("int64")).to_pylist()
    for process, role in ((p["process"], p["role"]) for p in processes):
        samples = sorted((r for r in rows if r["process"] == process), key=lambda r: r["time"])
        before = [r for r in samples if r["time"] <= window[0]]
        if before and role in found:
            found[role]["cpu"] += samples[-1]["cpu_seconds"] - before[-1]["cpu_seconds"]
            found[role]["rows"] += samples[-1]["rows"] - before[-1]["rows"]
    return found


def read_recording(runs: Path, window: list[int]) -> dict:
    """Return the sizes and losses of the only run of a folder, then compact it."""
    from dask_strata import open_run
    from dask_strata.schema import DERIVED, TABLES

    folders = sorted(runs.glob("*/run.json"))
    if len(folders) != 1:
        return {"problems": [f"{len(folders)} runs were recorded instead of one"]}
    folder = folders[0].parent
    run = open_run(folder)
    rows = {name: len(run[name]) for name in TABLES if name not in DERIVED}
    problems = [f"the run's state is {run.state}"] if run.state != "complete" else []
    problems += [
        f"lost: {r['what']} {r['reason']} ({r['process'].partition('-')[0]})"
        for r in run.losses.to_arrow().drop_columns(["time"]).to_pylist()
    ]
    segments = folder_bytes(folder, "segments/*.seg")
    biggest = {
        role: (folder_bytes(folder, f"segments/{role}-*.seg"), rows[COUNTED[role]])
        for role in COUNTED
    }
    found = {
        "rows": {n: c for n, c in rows.items() if c},
        "segment bytes": segments,
        "role bytes": biggest,
        "threads": threads(run, window),
        "problems": problems,
    }
    return found | compacted(folder)


def compacted(folder: Path) -> dict:
    """Compact a run, if this version can, and return its size afterwards."""
    try:
        from dask_strata.store.compact import compact
    except ImportError:
        return {"parquet bytes": None}
    compact(folder)
    return {"parquet bytes": folder_bytes(folder, "parquet*/**/*.parquet")}


def recorder_costs(off: list[dict], on: list[dict]) -> list[tuple[str, float | None, str]]:
    """Return the costs of one event, as tuples of quantity, value and unit."""
    recordings = [r["recording"] for r in on if "rows" in r["recording"]]
    if not recordings:
        return []

    def middle(values: list[float | None]) -> float | None:
        return None if None in values or not values else statistics.median(values)

    rows = middle([sum(r["rows"].values()) for r in recordings])
    costs = [
        ("rows on record", rows, "rows"),
        (
            "bytes on disk a row",
            middle([r["segment bytes"] / sum(r["rows"].values()) for r in recordings]),
            "bytes",
        ),
        (
            "bytes on disk a row, compacted",
            middle(
                [
                    None
                    if r["parquet bytes"] is None
                    else r["parquet bytes"] / sum(r["rows"].values())
                    for r in recordings
                ]
            ),
            "bytes",
        ),
    ]
    for role in COUNTED:
        costs.append(
            (
                f"recorder's thread of the {role}, CPU a row",
                middle(
                    [
                        1e6 * r["threads"][role]["cpu"] / r["threads"][role]["rows"]
                        if r["threads"][role]["rows"]
                        else None
                        for r in recordings
                    ]
                ),
                "µs",
            )
        )
        name = f"{role} transitions"
        more = middle([r["cpu"][role] for r in on]) - middle([r["cpu"][role] for r in off])
        count = middle([r["counts"][name] for r in on])
        costs.append(
            (
                f"{role}, whole process, CPU more a transition",
                1e6 * more / count if count else None,
                "µs",
            )
        )
        thread = middle([r["threads"][role]["cpu"] for r in recordings])
        # Subtract the thread of the other variant, which may be recorded, too.
        others = [r["recording"] for r in off if "threads" in r.get("recording", {})]
        thread -= middle([r["threads"][role]["cpu"] for r in others]) or 0.0
        costs.append(
            (
                f"{role}, CPU more that is not the recorder's thread, a transition",
                1e6 * (more - thread) / count if count else None,
                "µs",
            )
        )
    costs.append(
        (
            "ends of transfers on record, two for each",
            middle([float(r["rows"].get("transfer_ends", 0)) for r in recordings]),
            "rows",
        )
    )
    return costs

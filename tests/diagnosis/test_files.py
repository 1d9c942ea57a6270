"""What tasks did with files: read the same data again, or each its own part."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.diagnosis import Insight
from tests.support.synthetic import SECOND, T0, Process, life, new_run

WORKER = "tcp://w:1"
FILE_BYTES = 1_500_000_000
TASKS = 4


def insights(folder: Path, *, read_bytes: int, file_bytes: int | None) -> list[Insight]:
    """Return the insights of a run whose tasks took 1 s each and read one file.

    Parameters
    ----------
    folder : Path
        Its folder.
    read_bytes : int
        Bytes that each task read, in calls of 1 MB.
    file_bytes : int or None
        Size of the file.
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    add = {"time": T0, "worker": WORKER, "name": "w", "action": "add"}
    scheduler.write("worker_events", [add])
    keys = [f"read-{n}" for n in range(TASKS)]
    rows = [
        row
        for n, key in enumerate(keys)
        for row in life(key, 0.2 + 1.2 * n, 1.2 + 1.2 * n, WORKER, run_id=n)
    ]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.write("graph_tasks", [{"key": key, "prefix": "read"} for key in keys])
    worker = Process(folder, "worker-1", address=WORKER, name="w", nthreads=1)
    worker.write(
        "executions",
        [
            {
                "execution": n, "key": key, "run_id": n, "worker": WORKER, "thread": 1,
                "kind": "task", "outcome": "finished", "cpu_seconds": 1.0, "shared": False,
                "read_bytes": read_bytes, "read_calls": read_bytes // 10**6, "n_opened": 1,
            }
            for n, key in enumerate(keys)
        ],
    )  # fmt: skip
    worker.write(
        "file_opens",
        [
            {
                "execution": n, "key": key, "run_id": n, "worker": WORKER, "uri": "/data/all.bin",
                "mode": "read", "count": 1, "file_bytes": file_bytes,
            }
            for n, key in enumerate(keys)
        ],
    )  # fmt: skip
    for process in (scheduler, worker):
        process.end(at=T0 + 5 * SECOND)
    return list(open_run(folder).insights())


def test_a_file_that_each_task_reads_as_a_whole(tmp_path: Path) -> None:
    """Three of four readings are too many: of 0.75 s each, at 2 GB/s, and 1,500 calls."""
    found = insights(tmp_path / "r", read_bytes=FILE_BYTES, file_bytes=FILE_BYTES)
    assert [insight.cause for insight in found] == ["re-reads"]
    assert found[0].seconds == pytest.approx(3 * (0.75 + 1500 * 0.6e-6), rel=0.01)
    assert "all.bin 4 times" in found[0].text


@pytest.mark.parametrize("file_bytes", [TASKS * FILE_BYTES, None])
def test_a_file_of_which_each_task_reads_its_part(tmp_path: Path, file_bytes: int | None) -> None:
    """Nothing is read again; nor is it known to be if the size of the file is unknown."""
    assert not insights(tmp_path / "r", read_bytes=FILE_BYTES, file_bytes=file_bytes)

"""What a task that waited for data waited for: its worker, the sender, or the data themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from tests.support.synthetic import SECOND, T0, Process, moves, new_run

pytestmark = pytest.mark.long

SENDER, RECEIVER, OTHER = "tcp://w:1", "tcp://w:2", "tcp://w:3"


def at(seconds: float) -> int:
    """Return a time in ns since the epoch."""
    return T0 + round(seconds * SECOND)


def waited(
    folder: Path,
    *,
    blocked: str = "",
    spilled: str = "",
    nbytes: int = 1000,
    transfers: tuple[tuple[str, str], ...] = (("x-1", RECEIVER),),
) -> list[tuple[str, float]]:
    """Return causes and costs of a run in which ``y-1`` waited for ``x-1`` from 2 s to 6 s.

    Parameters
    ----------
    folder : Path
        Its folder.
    blocked, spilled : str, optional
        The worker whose event loop was blocked, or that spilled, meanwhile.
    nbytes : int, optional
        Bytes of each result.
    transfers : tuple of (str, str), optional
        Keys that the sender sent meanwhile, and to which worker.
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", start=at(0))
    add = {"time": at(0), "action": "add"}
    workers = SENDER, RECEIVER, OTHER
    scheduler.write("worker_events", [{**add, "worker": w, "name": w[-1]} for w in workers])
    rows: list[dict[str, Any]] = []
    for key, worker, times in (
        ("x-1", SENDER, [("compute", 0.2, 2)]),
        ("y-0", RECEIVER, [("compute", 0.2, 1)]),  # the first of a prefix may wait for imports
        ("y-1", RECEIVER, [("transfer", 2, 6), ("compute", 6, 8)]),
    ):
        rows += moves(
            key,
            (0.1, "released", "waiting"),
            (times[0][1], "waiting", "processing"),
            (times[-1][2], "processing", "memory"),
            worker=worker,
            thread=1,
            startstops=[[action, at(a), at(b) - at(a), None] for action, a, b in times],
        )
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.write("graph_tasks", [{"key": k, "prefix": k[0]} for k in ("x-1", "y-0", "y-1")])
    scheduler.write("graph_edges", [{"key": "y-1", "dependency": "x-1"}])
    processes = {
        w: Process(folder, f"worker-{n}", address=w, name=w[-1], nthreads=1, start=at(0))
        for n, w in enumerate(workers)
    }
    ends, keys = [], []
    for number, (key, destination) in enumerate(transfers):
        ends.append({
            "number": number, "end": "outgoing", "start": at(2), "stop": at(6), "worker": SENDER,
            "peer": destination, "total_bytes": nbytes, "n_keys": 1,
        })  # fmt: skip
        keys.append({"number": number, "key": key, "nbytes": nbytes})
    processes[SENDER].write("transfer_ends", ends)
    processes[SENDER].write("transfer_end_keys", keys)
    if blocked:
        row = {"start": at(2), "stop": at(6), "worker": blocked, "seconds": 4.0}
        row |= {"frozen_seconds": 0.0, "cpu_seconds": 4.0}
        processes[blocked].write("loop_blocks", [row])
    if spilled:
        row = {"time": at(6), "worker": spilled, "action": "spill", "key": "z-1"}
        processes[spilled].write("spills", [{**row, "nbytes": 10**9, "seconds": 4.0}])
    for process in (scheduler, *processes.values()):
        process.end(at=at(8))
    return [(i.cause, i.seconds or 0.0) for i in open_run(folder).insights()]


@pytest.mark.parametrize("worker", [SENDER, RECEIVER])
def test_a_blocked_loop_of_the_sender_or_receiver_costs_the_transfer(
    tmp_path: Path, worker: str
) -> None:
    """Neither moves data meanwhile."""
    found = dict(waited(tmp_path / "r", blocked=worker))
    assert found["blocked-loop"] == pytest.approx(4, abs=0.01)
    assert "transfers" not in found


@pytest.mark.parametrize("worker", [SENDER, RECEIVER])
def test_a_worker_that_spills_costs_the_transfer(tmp_path: Path, worker: str) -> None:
    """It spills in its event loop."""
    found = dict(waited(tmp_path / "r", spilled=worker))
    assert found["spill"] == pytest.approx(4, abs=0.01)
    assert "transfers" not in found


def test_another_workers_trouble_costs_nothing(tmp_path: Path) -> None:
    """The task waited for the data of its sender alone."""
    found = dict(waited(tmp_path / "blocked", blocked=OTHER))
    assert found["transfers"] == pytest.approx(4, abs=0.01)
    assert "blocked-loop" not in found
    found = dict(waited(tmp_path / "spilled", spilled=OTHER))
    assert found["transfers"] == pytest.approx(4, abs=0.01)
    assert "spill" not in found


def test_a_loop_that_is_blocked_by_the_data_is_a_transfer(tmp_path: Path) -> None:
    """To copy 2 GB takes as long as the block; to copy 1 kB does not."""
    found = dict(waited(tmp_path / "r", blocked=SENDER, nbytes=2 * 10**9))
    assert found["transfers"] == pytest.approx(4, abs=0.01)
    assert "blocked-loop" not in found


def test_data_that_move_again_to_the_same_worker_are_named_so(tmp_path: Path) -> None:
    """A result that moved three times to one worker; not many results that moved once each."""
    again = (("x-1", RECEIVER),) * 3
    assert "repeated-transfers" in dict(waited(tmp_path / "again", transfers=again))
    once = tuple((f"x-{n}", RECEIVER) for n in range(1, 4))
    found = dict(waited(tmp_path / "once", transfers=once))
    assert "transfers" in found
    assert "repeated-transfers" not in found


def test_a_spill_without_a_time_is_no_condition(tmp_path: Path) -> None:
    """Its interval is unknown; the rest of the diagnosis is there."""
    waited(tmp_path / "r")
    other = Process(tmp_path / "r", "worker-9", address=OTHER)
    row = {"worker": OTHER, "action": "spill", "key": "z-1", "nbytes": 10**9, "seconds": 4.0}
    other.write("spills", [row])
    other.end(at=at(8))
    causes = {insight.cause for insight in open_run(tmp_path / "r").insights()}
    assert "transfers" in causes
    assert "spill" not in causes

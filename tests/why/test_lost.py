"""Results that were lost with a worker whose last rows are missing; the test chooses all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata import open_run
from dask_strata.analysis.why import why
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run

W, V = "tcp://w:1", "tcp://v:1"
REMOVAL = "handle-worker-cleanup-1"


def arrival(worker: str, key: str, at: float, start: str) -> dict[str, Any]:
    """Return a worker's row of a result's arrival."""
    return moves(key, (at, start, "memory"), worker=worker)[0]


def leaving(key: str, at: float, stimulus: str) -> dict[str, Any]:
    """Return the scheduler's row of a result that leaves memory."""
    return moves(key, (at, "memory", "released"), stimulus_id=stimulus)[0]


def test_the_scheduler_knows_what_was_lost(tmp_path: Path) -> None:
    """Rows that the killed worker could not write neither hide a lost result nor invent one.

    A task on another worker, which waited for a lost result, neither ran there nor was lost.
    """
    events = [
        {"time": T0, "worker": at, "name": at[6], "action": "add", "reason": "2 threads"}
        for at in (W, V)
    ]
    removed = {"worker": W, "action": "remove", "reason": "unexpected: cleanup"}
    events.append({"time": T0 + 5 * SECOND, **removed, "stimulus_id": REMOVAL})
    scheduler = Process(new_run(tmp_path), "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", events)
    on_v = [(3, "released", "waiting"), (3, "waiting", "processing")]
    ended = [(5, "processing", "released"), (5, "released", "waiting")]
    transitions = [
        *(row for key in ("known", "cut", "released", "copied") for row in life(key, 1, 4, W)),
        *life("freed", 1, 4, V),
        leaving("released", 4.9, "client-releases-keys-1"),
        *(leaving(key, 5, REMOVAL) for key in ("known", "cut", "freed")),
        # The recorder knows only which worker the removal was about.
        *moves("reader", *on_v, worker=V),
        *moves("reader", ended[0], stimulus_id=REMOVAL, worker=W),
        *(moves(key, ended[1], stimulus_id=REMOVAL)[0] for key in ("known", "cut", "reader")),
    ]
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    scheduler.end()
    on_w = [arrival(W, key, 4, "executing") for key in ("known", "released", "copied")]
    Process(tmp_path, "worker-1", address=W, name="w").write("worker_transitions", on_w)
    other = Process(tmp_path, "worker-2", address=V, name="v")
    arrived = [arrival(V, "freed", 4, "executing"), arrival(V, "copied", 4.5, "flight")]
    other.write("worker_transitions", arrived)
    other.end()
    [post_mortem] = why(open_run(tmp_path)).post_mortems
    lost = post_mortem.lost
    assert sorted(lost.keys) == ["cut", "known"]
    assert (lost.n_held, lost.n_lost, lost.n_scattered) == (3, 2, 0)
    assert lost.lost_bytes == 16
    assert lost.n_again == 2
    attempts = post_mortem.attempts
    assert (attempts.running, attempts.unknown, attempts.waiting) == (0, 0, 0)

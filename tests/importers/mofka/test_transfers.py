"""Transfers: duplicates, two ends of one transfer, bytes, and fetches that look like compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows
from tests.support import coupler_files as coupler
from tests.support.coupler_files import T0, W1, W2, life, transfer, write
from tests.support.coupler_runs import (
    X,
    finding,
    import_folder,
    imported_run,
    one,
    received,
    run_of,
    seconds,
    sent,
)


def test_resent_transfers_are_counted_and_set_apart(folder: Path) -> None:
    """Rows that differ only in time are one transfer; duplicates are kept with file and line."""
    run = imported_run(folder)
    assert import_folder(folder).resent == 2
    assert one(run, "select count(*) from transfer_ends") == 2
    query = """
        select r.line, e.line as first from transfer_resends r
        join transfer_ends e using (process, number) order by 1
    """
    assert rows(run, query) == [{"line": 4, "first": 3}, {"line": 5, "first": 2}]
    assert seconds(run, "select time from transfer_resends where line = 5") == [21.0]
    line = finding(run, "worker_transfer.csv")
    assert "2 of 4 rows are in the tables" in line
    assert "2 repeat a transfer" in line


@pytest.mark.parametrize(
    "other",
    [
        {"who": "tcp://10.0.0.9:1"},
        {"keys": "{('x', 0): 101}"},
        {"type": "outgoing_transfer"},
        {"called_from": "tcp://10.0.0.9:1"},
        {"total": 101},
        {"bandwidth": 1.5},
        {"start": T0 + 12.000001},
    ],
)
def test_a_transfer_that_differs_is_no_resend(other: dict[str, Any], tmp_path: Path) -> None:
    """Rows that differ in any column except time are two transfers."""
    run = run_of(tmp_path, worker_transfer=[received(), received(**other), received(time=T0 + 30)])
    assert one(run, "select count(*) from transfer_ends") == 2
    assert rows(run, "select line from transfer_resends") == [{"line": 4}]


def test_two_ends_are_one_transfer(folder: Path) -> None:
    """The rows of both ends are one transfer from source to destination, seen by both."""
    run = imported_run(folder)
    columns = "source, destination, total_bytes, compressed_bytes, seen_by, n_keys"
    assert rows(run, f"select {columns} from transfers") == [
        {
            "source": W2,
            "destination": W1,
            "total_bytes": 100,
            "compressed_bytes": 50,
            "seen_by": "both",
            "n_keys": 1,
        }
    ]


def test_the_total_is_not_repeated_for_each_key(tmp_path: Path) -> None:
    """A transfer of three keys has one total, and each key has its own bytes."""
    keys = {X: 1, "b": 20, ("c", 1, 2): 300}
    run = run_of(tmp_path, worker_transfer=[transfer(keys, T0, T0 + 1)])
    assert one(run, "select sum(total_bytes)::int from transfers") == 321
    assert rows(run, "select n_keys, total_bytes from transfers") == [
        {"n_keys": 3, "total_bytes": 321}
    ]
    found = rows(run, "select key, nbytes from transfer_keys order by nbytes")
    assert [(row["key"], row["nbytes"]) for row in found] == [
        (str(key), n) for key, n in keys.items()
    ]


def test_the_same_data_sent_twice_is_two_transfers(tmp_path: Path) -> None:
    """Two transfers of the same keys between the same ends are paired in their order."""
    later = {"start": T0 + 15, "stop": T0 + 15.5}
    run = run_of(
        tmp_path,
        worker_transfer=[received(), received(**later), sent(**later, middle=None), sent()],
    )
    assert rows(run, "select seen_by from transfers") == [{"seen_by": "both"}] * 2
    assert one(run, "select sum(total_bytes)::int from transfers") == 200


def test_a_transfer_to_a_client_has_no_destination(tmp_path: Path) -> None:
    """An outgoing row without a peer was sent to a client."""
    run = run_of(tmp_path, worker_transfer=[sent(who=None)])
    assert rows(run, "select source, destination, seen_by from transfers") == [
        {"source": W2, "destination": None, "seen_by": "source"}
    ]


def test_a_transfer_that_only_one_end_reported_is_found(tmp_path: Path) -> None:
    """If the other end reported other transfers, check finds that this one is missing there."""
    other = sent(keys="{'z': 5}", who=None)
    run = run_of(tmp_path, worker_transfer=[received(), other])
    assert "1 transfer not reported by the sender" in finding(
        run, "missing", "which reported others"
    )


def test_a_total_that_is_not_the_sum_is_found(tmp_path: Path) -> None:
    """A transfer whose total is not the sum of its keys is counted by check."""
    run = run_of(tmp_path, worker_transfer=[received(total=99)])
    assert "1 transfer whose total" in finding(run, "is not the sum of")


def test_a_transfer_is_not_called_compute(folder: Path) -> None:
    """begins and ends of Y are those of a fetch; its compute time is from the worker's events."""
    run = imported_run(folder)
    query = "select action, seconds, source from phases where key = 'y-1' order by start"
    assert rows(run, query) == [
        {"action": "transfer", "seconds": 0.5, "source": W2},
        {"action": "executing", "seconds": 0.125, "source": None},
    ]
    assert rows(run, "select key, compute_seconds, transfer_seconds from tasks") == [
        {"key": "('x', 0)", "compute_seconds": 1.0, "transfer_seconds": 0.0},
        {"key": "y-1", "compute_seconds": 0.125, "transfer_seconds": 0.5},
    ]


@pytest.mark.parametrize(
    ("apart", "action"),
    [(0, "transfer"), (9e-6, "transfer"), (2e-5, "compute"), (-9e-6, "transfer")],
)
def test_the_same_start_is_within_ten_microseconds(
    apart: float, action: str, tmp_path: Path
) -> None:
    """An interval is a transfer if a transfer to the same worker began within 1e-5 s of it."""
    begins = T0 + 10 + apart
    run = run_of(
        tmp_path,
        scheduler_transition=life("a", T0 + 10, T0 + 11, W1, begins=begins)
        + life("b", T0 + 10, T0 + 11, W2, begins=begins),
        worker_transfer=[transfer({"d": 8}, T0 + 10, T0 + 10.5)],
    )
    assert rows(run, "select key, action from phases order by key") == [
        {"key": "a", "action": action},
        {"key": "b", "action": "compute"},
    ]


def test_without_transfers_compute_may_be_a_fetch(tmp_path: Path) -> None:
    """Without the transfers' file, check notes that compute may be a fetch."""
    run = run_of(tmp_path, scheduler_transition=life("a", T0, T0 + 1, W1))
    assert "note" in finding(run, "cannot be separated from")


@pytest.mark.long
def test_many_keys_per_transfer_do_not_multiply_their_cell(tmp_path: Path) -> None:
    """A row's cell is not copied for each of its keys: 60 MB of cells would be 24 GB."""
    sizes = {("x" * 60, i): 8 for i in range(400)}
    made = [transfer(sizes, T0 + i, T0 + i + 0.5) for i in range(2000)]
    run = imported_run(write(tmp_path / "csv", {"worker_transfer": made}))
    assert len(run["transfer_end_keys"]) == 800_000


def test_ends_that_are_far_apart_are_two_transfers(tmp_path: Path) -> None:
    """Two ends are one transfer if they are near each other in time; the nearest pair first."""

    def ends(at: list[float], **more: Any) -> list[coupler.Row]:
        return [transfer({X: 100}, T0 + t, T0 + t + 0.5, **more) for t in at]

    out = {"type": "outgoing_transfer", "called_from": W2, "who": W1}
    made = ends([0, 100, 200]) + ends([100.25, 200.25, 5000], **out)
    run = imported_run(write(tmp_path / "csv", {"worker_transfer": made}))
    seen = rows(run, "select epoch(start)::bigint as t, seen_by from transfers order by start")
    assert [(row["t"] - int(T0), row["seen_by"]) for row in seen] == [
        (0, "destination"),
        (100, "both"),
        (200, "both"),
        (5000, "source"),
    ]

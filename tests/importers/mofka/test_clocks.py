"""Clocks of workers, names of workers, and times that cannot be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from tests.conftest import rows
from tests.support.coupler_files import T0, W1, W2, life, worker, write
from tests.support.coupler_runs import (
    SHIFT,
    Y,
    example_files,
    imported_run,
    one,
    received,
    run_of,
    seconds,
    sent,
)


def test_the_shift_of_a_worker_is_measured_and_used(folder: Path) -> None:
    """A worker's `time` is shifted to the scheduler's clock; start and stop are on it already."""
    run = imported_run(folder)
    query = "select process, offset_seconds from clock_offsets"
    assert rows(run, query) == [{"process": f"worker-{W2}", "offset_seconds": SHIFT}]
    assert run.clock_offsets_ns == {f"worker-{W2}": int(SHIFT * 1e9)}
    executing = "select time from worker_transitions where key = '(''x'', 0)' order by time"
    raw = open_run(run.path, align=False)
    assert seconds(raw, executing) == [10 - SHIFT, 11 - SHIFT]
    assert seconds(run, executing) == [10, 11]
    for table in ("time", "start", "stop"):
        query = f"select \"{table}\" as time from transfer_ends where worker = '{W2}'"
        assert seconds(run, query) == [{"time": 12.75, "start": 12, "stop": 12.5}[table]]
    assert seconds(run, "select time from worker_transitions where key = 'y-1' order by 1") == [
        12.5,
        12.625,
    ]
    assert seconds(run, "select time from scheduler_transitions order by line limit 1") == [9.5]
    assert seconds(run, "select time from transfer_resends where line = 4") == [20 + SHIFT]


def test_the_shift_is_the_median_of_all(tmp_path: Path) -> None:
    """One outlier does not shift a worker; incoming rows are no measurements."""
    measured = [sent(middle=T0 + 12.25 - s, keys=str({s: 8})) for s in (2.0, 2.1, 1.9, -30.0, 2.01)]
    run = run_of(tmp_path, worker_transfer=[received(middle=T0), *measured, sent(middle=None)])
    assert one(run, "select count(*) from clock_offsets") == len(measured)
    assert run.clock_offsets_ns == {f"worker-{W2}": 2_000_000_000}


def test_a_measurement_of_years_is_one(tmp_path: Path) -> None:
    """A middle that is years off, as of a clock that was never set, is a measurement too."""
    run = run_of(tmp_path, worker_transfer=[sent(middle=0.5)])
    assert one(run, "select offset_seconds from clock_offsets") == pytest.approx(T0 + 11.75)
    assert run.check().findings


def test_measurements_that_contradict_each_other_shift_nothing(tmp_path: Path) -> None:
    """A shift smaller than the spread of its measurements is not applied."""
    measured = [sent(middle=T0 + 12.25 - s, keys=str({s: 8})) for s in (-3.0, -1.0, 0.5, 3.0, 4.0)]
    run = run_of(tmp_path, worker_transfer=measured)
    assert run.clock_offsets_ns == {}


def test_a_time_later_than_its_report_is_kept(tmp_path: Path) -> None:
    """A row whose ends is later than its time is kept: the two are of different clocks."""
    run = run_of(tmp_path, scheduler_transition=life("a", T0, T0 + 9, W1, time=T0 + 1))
    assert rows(run, "select compute_seconds, outcome from attempts") == [
        {"compute_seconds": 9.0, "outcome": "memory"}
    ]


def test_names_of_workers_become_addresses(tmp_path: Path) -> None:
    """Workers that report by name are identified with the addresses that their peers report."""
    made = example_files()
    for role in ("worker_transition", "worker_transfer"):
        for row in made[role]:
            row["called_from"] = {W1: 0, W2: "two"}[row["called_from"]]
    named = imported_run(write(tmp_path / "named" / "csv", made))
    plain = imported_run(write(tmp_path / "plain" / "csv", example_files()))
    for query in (
        "select source, destination, seen_by, total_bytes from transfers",
        "select worker, n_attempts, compute_seconds from workers order by worker",
        "select key, worker, compute_seconds, transfer_seconds from attempts order by attempt",
        "select action, seconds from phases order by start, action",
    ):
        assert rows(named, query) == rows(plain, query)
    names = rows(named, "select address, name from processes where role = 'worker'")
    assert {(row["address"], row["name"]) for row in names} == {(W1, "0"), (W2, "two")}
    assert not any("silent" in f.text for f in named.check().findings)


def test_names_without_an_address_are_found(tmp_path: Path) -> None:
    """If a name cannot be resolved, check notes it and reports no silent worker."""
    made = example_files()
    del made["worker_transfer"]
    for row in made["worker_transition"]:
        row["called_from"] = {W1: 0, W2: 1}[row["called_from"]]
    texts = [f.text for f in imported_run(write(tmp_path / "csv", made)).check().findings]
    assert any("known only by name" in text for text in texts)
    assert not any("silent" in text for text in texts)


def test_impossible_times_are_found(tmp_path: Path) -> None:
    """A row years away from all others, and an end before its start, are kept and found."""
    made = example_files()
    made["worker_transition"].append(worker(Y, "memory", "released", 1_000_000_000.0, W1))
    made["worker_transfer"].append(received(start=T0 + 9, stop=T0 + 8))
    texts = [f.text for f in imported_run(write(tmp_path / "csv", made)).check().findings]
    assert any("more than a month away" in text for text in texts)
    assert any("an end before the start" in text for text in texts)

"""Damaged events in ``consumer.o``, and events that are missing altogether."""

from __future__ import annotations

from pathlib import Path

from dask_strata import open_run
from dask_strata.capture import TaskState
from dask_strata.schema.values import SCHEDULER_STATES, WORKER_STATES
from tests.conftest import rows, runs_in
from tests.support.coupler_files import (
    T0,
    W1,
    W2,
    added,
    damaged,
    scheduler,
    transfer,
    worker,
    write,
)
from tests.support.coupler_runs import (
    consumer,
    executed,
    finding,
    findings,
    import_folder,
    imported_run,
    invoke,
    one,
    received,
    run_of,
    seconds,
)


def test_damaged_events_are_salvaged_and_marked(folder: Path) -> None:
    """Events that lack the last digits of their time are in the tables, marked, with their line."""
    lost = scheduler(("z", 1), "released", "waiting", T0 + 5.123456)
    moved = transfer({("z", 1): 7, "q": 8}, T0 + 30, T0 + 31) | {"time": T0 + 31.654321}
    literal = dict(moved, keys={("z", 2): 9})
    seen = worker("z-3", "ready", "executing", T0 + 5.123456)
    consumer(folder, damaged(lost), damaged(moved), damaged(literal), damaged(seen))
    done = import_folder(folder)
    run = open_run(done.path, align=False)
    assert (done.salvaged, done.lost, done.set_aside) == (4, 0, 0)
    query = "select key, file, line, salvaged from scheduler_transitions where salvaged"
    assert rows(run, query) == [
        {"key": "('z', 1)", "file": "consumer.o", "line": 2, "salvaged": True}
    ]
    (time,) = seconds(run, "select time from scheduler_transitions where salvaged")
    assert 5.12 < time <= 5.123456
    query = "select line, n_keys, total_bytes from transfer_ends where salvaged order by line"
    assert rows(run, query) == [
        {"line": 3, "n_keys": 2, "total_bytes": 15},
        {"line": 4, "n_keys": 1, "total_bytes": 15},
    ]
    assert rows(run, "select key, line from worker_transitions where salvaged") == [
        {"key": "z-3", "line": 5}
    ]
    assert run.task(("z", 1)).state == "waiting"
    assert "4 rows salvaged" in finding(run, "note consumer.o")
    assert "4 of 4 rows are in the tables" in finding(run, "ok consumer.o")


def test_no_salvage(folder: Path, tmp_path: Path) -> None:
    """With --no-salvage, damaged events are lost and counted by kind."""
    lost = scheduler("z", "released", "waiting", T0 + 5.123456)
    consumer(folder, damaged(lost), damaged(received()))
    done = invoke("import", folder, "-o", tmp_path / "runs", "--no-salvage")
    assert done.exit_code == 0
    assert "2 events lost before the import" in done.stdout
    (run,) = runs_in(tmp_path / "runs")
    assert one(run, "select count(*) from scheduler_transitions where salvaged") == 0
    assert "1 scheduler transitions of consumer.o" in finding(run, "missing", "scheduler trans")
    assert "1 transfers of consumer.o" in finding(run, "missing", "transfers of")


def test_events_that_cannot_be_salvaged_are_counted_by_kind(folder: Path) -> None:
    """Events that lack more than digits are lost; check reports them by kind."""
    event = scheduler("z", "released", "waiting", T0 + 5.123456)
    consumer(
        folder,
        damaged(event, lost=14),
        damaged(event | {"start": None}),
        damaged(received(time=T0 + 13.123456, keys="{open('x'): 1}")),
        damaged(received(time=T0 + 13.123456, type="sideways")),
        damaged(received(time=T0 + 13.123456, keys="{'\\ud800': 1}")),
        damaged(worker("k", "\ud800", "b", T0 + 0.123456)),
        damaged(worker("k", "a", "b", T0 + 0.123456), lost=17),
        "data failure:  {'topic': 'all', 'message': {'action': 'replicate', 'workers': [<Work\n",
        "data failure:  \ufffd'key': data failure:  {'what': 1}\n",
        "data failure:\n",
    )
    done = import_folder(folder)
    run = open_run(done.path)
    assert (done.salvaged, done.lost) == (0, 11)
    kinds = rows(run, "select what, count from losses where count is not null order by what")
    assert kinds == [
        {"what": "events of an unknown kind of consumer.o", "count": 2},
        {"what": "fragments of events of consumer.o", "count": 2},
        {"what": "log events of consumer.o", "count": 1},
        {"what": "scheduler transitions of consumer.o", "count": 1},
        {"what": "transfers of consumer.o", "count": 3},
        {"what": "worker transitions of consumer.o", "count": 2},
    ]
    assert not run.check().ok
    assert "0 of 11 rows" in finding(run, "ok consumer.o")


def test_a_salvaged_transfer_may_be_a_resend(tmp_path: Path) -> None:
    """A damaged duplicate of a transfer is a resend, also without the CSV file."""
    folder = write(tmp_path / "csv", {"worker": [added(W1, T0)]})
    consumer(folder, *(damaged(received(time=T0 + s)) for s in (13.123456, 40.123456)))
    done = import_folder(folder)
    run = open_run(done.path)
    assert (done.salvaged, done.resent) == (2, 1)
    assert rows(run, "select line, file from transfer_resends") == [
        {"line": 3, "file": "consumer.o"}
    ]
    assert rows(run, "select rows, kept, resent from imports where file = 'consumer.o'") == [
        {"rows": 2, "kept": 1, "resent": 1}
    ]


def test_a_consumer_without_failures_lost_nothing(folder: Path) -> None:
    """A consumer's output without damaged events is a file without rows, and no loss."""
    consumer(folder)
    run = imported_run(folder)
    assert run.check().ok
    assert "0 of 0 rows" in finding(run, "consumer.o")


def test_a_silent_host_is_named(tmp_path: Path) -> None:
    """Declared workers of a host that reported nothing, though peers mention them, are found."""
    silent = [f"tcp://10.0.0.9:{port}" for port in (1, 2)]
    idle = "tcp://10.0.0.8:1"
    run = run_of(
        tmp_path,
        worker_transition=executed("a", T0, T0 + 1, W1),
        worker_transfer=[received(who=silent[0]), received(who=silent[0], start=T0)],
        worker=[added(address, T0) for address in (W1, *silent, idle)],
    )
    host = finding(run, "missing", "silent host 10.0.0.9")
    assert "no rows from its 2 workers" in host
    assert "2 transfers with 1 of them" in host
    assert all(address in host for address in silent)
    assert "may have had no tasks" in finding(run, "note", "silent host 10.0.0.8")
    assert not [line for line in findings(run) if "10.0.0.2" in line]


def test_a_host_with_one_reporting_worker_is_not_silent(tmp_path: Path) -> None:
    """If one of two workers reported, check names the other worker, not the host."""
    other = "tcp://10.0.0.2:4999"
    run = run_of(
        tmp_path,
        worker_transition=executed("a", T0, T0 + 1, W1),
        worker=[added(W1, T0), added(other, T0)],
    )
    assert f"({other})" in finding(run, "no rows from 1 of 2 workers on 10.0.0.2")


def test_chain_breaks_are_counted_by_kind(tmp_path: Path) -> None:
    """A transition whose start is not the finish of the one before it is a chain break."""
    steps = [("released", "waiting"), ("waiting", "ready"), ("executing", "memory")]
    broken = [worker(k, a, b, T0 + i, W1) for k in "ab" for i, (a, b) in enumerate(steps)]
    again = [worker("a", "released", "waiting", T0 + 9, W1)]
    elsewhere = [worker("a", "executing", "memory", T0 + 2, W2)]
    seen = [
        scheduler("a", "released", "waiting", T0),
        scheduler("a", "memory", "forgotten", T0 + 1),
    ]
    run = run_of(
        tmp_path,
        worker_transition=[*again, *broken, *elsewhere],
        scheduler_transition=seen,
    )
    line = finding(run, "note workers", "chain break")
    assert "3 chain breaks" in line
    assert "ready|executing->memory 2, memory|released->waiting 1" in line
    assert "waiting|memory->forgotten 1" in finding(run, "note scheduler", "chain break")


def test_an_unknown_state_is_kept_and_reported(tmp_path: Path) -> None:
    """A state that Dask lacks is kept as text and counted; all of Dask's states are known."""
    on_workers = [worker(f"k-{s}", s, s, T0) for s in WORKER_STATES]
    on_scheduler = [scheduler(f"k-{s}", s, s, T0) for s in SCHEDULER_STATES]
    run = run_of(
        tmp_path,
        worker_transition=[*on_workers, worker("a", "ready", "teleported", T0)],
        scheduler_transition=[
            *on_scheduler,
            *(scheduler("a", "gone", "gone", T0 + i) for i in range(2)),
        ],
    )
    states = "select finish_state as s from worker_transitions where key = 'a'"
    assert rows(run, states) == [{"s": "teleported"}]
    unknown = [line for line in findings(run) if "not one of Dask's" in line]
    assert len(unknown) == 2
    assert "state teleported (1 time)" in finding(run, "note worker:", "teleported")
    assert "state gone (4 times)" in finding(run, "note scheduler:", "gone")


def test_the_enum_and_the_schema_name_the_same_states() -> None:
    """`TaskState` of the older objects has exactly the states that check accepts."""
    assert {state.value for state in TaskState} == {*SCHEDULER_STATES, *WORKER_STATES}
    assert len(set(SCHEDULER_STATES)) == len(SCHEDULER_STATES)
    assert len(set(WORKER_STATES)) == len(WORKER_STATES)

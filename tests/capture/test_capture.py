"""The older tool's objects, over runs with known rows."""

from __future__ import annotations

import ast
import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster, scheduler
from distributed import worker_state_machine as machine
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_strata
from dask_strata import capture, open_run
from dask_strata.capture import (
    EventSource,
    EventTypeEnum,
    SchedulerEvent,
    StimulusType,
    TaskHandler,
    TaskState,
    TransferTypeEnum,
    WorkerEvent,
    WXferEvent,
)
from dask_strata.capture.reference import reference
from dask_strata.capture.states import plain
from dask_strata.capture.writers import FORMATS
from dask_strata.errors import UnknownTaskError
from dask_strata.report.formats import write
from dask_strata.report.words import spreadsheet_text
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run, small_run

START = datetime(2026, 11, 18, 11, 6, 40, tzinfo=timezone.utc)
X0 = "('x', 0)"
TUPLE = f"\x00tuple\x00{X0}"


def at(seconds: float) -> datetime:
    """Return a time of the synthetic runs."""
    return START + timedelta(seconds=seconds)


def change(key: str, seconds: float, before: str, after: str) -> dict[str, Any]:
    """Return a row of a worker."""
    return {
        "time": T0 + int(seconds * SECOND),
        "worker": "tcp://w:1",
        "key": key,
        "start_state": before,
        "finish_state": after,
    }


def end(number: int, direction: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Return one end of a transfer of 2 s, reported by w:1."""
    start = T0 + int(seconds * SECOND)
    return {
        "number": number,
        "end": direction,
        "start": start,
        "stop": start + 2 * SECOND,
        "worker": "tcp://w:1",
        "peer": "tcp://w:2",
        "total_bytes": 30,
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with all kinds of events, recorded and imported ones."""
    path = new_run(tmp_path / "r")
    scheduler = Process(path, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life(TUPLE, 1, 5, "tcp://w:1"))
    scheduler.write("scheduler_transitions", moves("late", (0.5, "released", "teleported")))
    worker = Process(path, "worker-1", address="tcp://w:1")
    worker.write("worker_transitions", [change(TUPLE, 1.5, "ready", "executing")])
    worker.write(
        "transfer_ends",
        [
            end(1, "outgoing", 6, n_keys=2, compressed_bytes=12),
            end(2, "incoming", 6, n_keys=2),
            end(
                3,
                "outgoing",
                7,
                peer=None,
                time=T0 + 9 * SECOND,
                middle=T0 + 6 * SECOND,
                duration_seconds=1.5,
                bandwidth=20.0,
            ),
        ],
    )
    worker.write(
        "transfer_end_keys",
        [
            {"number": n, "key": key, "nbytes": nbytes}
            for n in (1, 2)
            for key, nbytes in ((TUPLE, 10), ("only-moved", 20))
        ],
    )
    for process in (scheduler, worker):
        process.end()
    return path


@pytest.fixture
def handler(folder: Path) -> TaskHandler:
    """A handler of that run."""
    return TaskHandler(open_run(folder))


def test_tasks_are_in_order_of_first_appearance(handler: TaskHandler) -> None:
    """Tasks are in the order of their first events of any kind."""
    assert handler.return_names() == ["late", X0, "only-moved"]
    assert [task.name for task in handler.tasks] == handler.return_names()
    assert [*handler.tasks.keys()] == [name for name, _ in handler.tasks.items()]
    assert (len(handler.tasks), X0 in handler.tasks, "x" in handler.tasks) == (3, True, False)
    assert handler.tasks[-1].name == handler.tasks["only-moved"].name == "only-moved"
    assert [task.name for task in handler.tasks[:2]] == ["late", X0]


def test_a_task_has_its_events_in_time_order(handler: TaskHandler) -> None:
    """Events of scheduler, worker and transfers are merged, with times in UTC."""
    task = handler.get_task_by_name(X0)
    assert [(e.e_type, e.t_event) for e in task.events] == [
        (EventTypeEnum.SCHEDULER, at(0.9)),
        (EventTypeEnum.SCHEDULER, at(1)),
        (EventTypeEnum.WORKER, at(1.5)),
        (EventTypeEnum.SCHEDULER, at(5)),
        (EventTypeEnum.WORKER_TRANSFER, at(8)),
        (EventTypeEnum.WORKER_TRANSFER, at(8)),
    ]
    assert (task.t_start, task.t_end) == (at(0.9), at(8))
    assert (task.n_attempts, task.initiated) == (1, True)
    assert task.workers == ["tcp://w:1", "tcp://w:2"]
    assert task.events[3] == SchedulerEvent(
        t_event=at(5),
        t_begins=at(1),
        t_ends=at(5),
        start=TaskState.PROCESSING,
        finish=TaskState.MEMORY,
        source=EventSource("tcp://s:1", "s-5"),
        task_id=X0,
        action="compute",
        worker="tcp://w:1",
        nbytes=8,
    )
    assert task.events[2] == WorkerEvent(
        TaskState.READY, TaskState.EXECUTING, "tcp://w:1", at(1.5), X0
    )


def test_bytes_of_a_task_are_its_own(handler: TaskHandler) -> None:
    """A task has the bytes of its result, not those of others in the same transfer."""
    task = handler.get_task_by_name("only-moved")
    assert (task.bytes_in, task.bytes_out, task.initiated, task.n_attempts) == (20, 20, False, 0)
    assert [e.total for e in task.return_wxfer_events(TransferTypeEnum.INCOMING)] == [30]


def test_transfers_have_imported_or_derived_figures(handler: TaskHandler) -> None:
    """Imported figures are unchanged; for recorded runs they are derived."""
    incoming, outgoing, to_client = sorted(
        handler.return_all_wxfer_events(), key=lambda e: (e.t_event, e.transfer_type)
    )
    assert incoming.transfer_type is TransferTypeEnum.INCOMING
    assert (incoming.requestor, incoming.fulfiller) == ("tcp://w:2", "tcp://w:1")
    assert (incoming.middle, incoming.duration, incoming.bandwidth) == (at(7), 2.0, 15.0)
    assert (incoming.keys, outgoing.compressed) == ({X0: 10, "only-moved": 20}, 12)
    assert to_client == WXferEvent(
        start=at(7),
        stop=at(9),
        middle=at(6),
        duration=1.5,
        keys={},
        total=30,
        bandwidth=20.0,
        compressed=None,
        requestor=None,
        fulfiller="tcp://w:1",
        transfer_type=TransferTypeEnum.OUTGOING,
        t_event=at(9),
    )
    assert [*handler.return_all_wxfer_events(TransferTypeEnum.INCOMING)] == [incoming]


def test_each_event_is_returned_once(handler: TaskHandler) -> None:
    """A transfer of several results, and one of none, is one event among all events."""
    events = [*handler.return_all_events()]
    assert len(events) == len(set(events)) == handler.n_events == 8
    times = [e.t_event for e in events]
    assert times == sorted(times)


def test_a_task_prints_as_the_older_tool_had_it(handler: TaskHandler) -> None:
    """The text block is the older one, with zone, and the figures of the task at its end."""
    assert str(handler.get_task_by_name("only-moved")).splitlines()[10:] == [
        "\t\tWorker Transfer Event (Type: TransferTypeEnum.INCOMING)",
        "\t\t\tEvent time: 2026-11-18 11:06:48.000000+00:00",
        "\t\t\tRequestor (Them): tcp://w:2\tFulfiller (Me): tcp://w:1",
        (
            "\t\t\tStart: 2026-11-18 11:06:46.000000+00:00"
            "\tMiddle: 2026-11-18 11:06:47.000000+00:00"
            "\tEnd: 2026-11-18 11:06:48.000000+00:00\t(Duration: 2.0)"
        ),
        "\t\t\tTotal Transfer: 30",
        "\t\t\tAffiliated Keys:",
        "\t\t\t\t('x', 0)",
        "\t\t\t\tonly-moved",
        (
            "\tStart time: 2026-11-18 11:06:48.000000+00:00"
            "\tEnd time: 2026-11-18 11:06:48.000000+00:00"
        ),
        "\tWorkers: tcp://w:1, tcp://w:2",
        "\tAttempts: 0\tBytes in: 20\tBytes out: 20",
    ]
    assert str(handler.get_task_by_name("late")) == (
        "Task object for task late:\n"
        "\tEvent objects:\n"
        "\t\tScheduler Event for task late\n"
        "\t\t\tEvent time: 2026-11-18 11:06:40.500000+00:00\tBegin time: None\tEnd time: None\n"
        "\t\t\tStart: released\t\t\t\tFinish: teleported\n"
        "\t\t\tSource: \n"
        "\t\t\t\ttcp://s:1\n"
        "\tStart time: 2026-11-18 11:06:40.500000+00:00"
        "\tEnd time: 2026-11-18 11:06:40.500000+00:00\n"
        "\tWorkers: \n"
        "\tAttempts: 0\tBytes in: 0\tBytes out: 0\n"
    )


def test_a_transfer_is_not_called_work(tmp_path: Path) -> None:
    """An interval of a transfer is marked; a computation is preferred if both were reported."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    fetch = ["transfer", T0, SECOND, "tcp://w:2"]
    scheduler.write(
        "scheduler_transitions",
        [
            *moves("one", (3, "processing", "memory"), startstops=[fetch]),
            *moves(
                "two",
                (3, "processing", "memory"),
                startstops=[fetch, ["compute", T0 + SECOND, SECOND, None]],
            ),
        ],
    )
    scheduler.end()
    one, two = (task.events[0] for task in TaskHandler(open_run(folder)).tasks)
    assert (one.action, one.t_begins, two.action, two.t_begins) == (
        "transfer",
        at(0),
        "compute",
        at(1),
    )
    assert "End time: 2026-11-18 11:06:41.000000+00:00 (of a transfer)\n" in str(one)


def test_an_unknown_state_is_kept_and_counted(handler: TaskHandler) -> None:
    """A state that Dask lacks is text, never an error."""
    assert handler.get_task_by_name("late").events[0].finish == "teleported"
    assert handler.unknown_states() == {"teleported": 1}


def test_all_of_dasks_states_are_known() -> None:
    """Every state that this version of Dask has is a member."""
    on_scheduler, on_workers = get_args(scheduler.TaskStateState), get_args(machine.TaskStateState)
    assert "processing" in on_scheduler
    assert "executing" in on_workers
    assert {*on_scheduler, *on_workers} <= {state.value for state in TaskState}


@given(st.text())
def test_no_state_is_refused(text: str) -> None:
    """Any text is a state: the member that is equal to it, or itself."""
    assert TaskState.of(text) == text


def stimuli_in_source(package: Path) -> set[str]:
    """Return the beginnings of all stimulus ids that the code of Dask makes."""
    found: set[str] = set()
    for file in package.rglob("*.py"):
        if "tests" in file.parts or file.name == "utils_test.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            values: list[ast.AST | None] = [node]  # ids can be arguments without a name
            if isinstance(node, ast.Call):
                values += [k.value for k in node.keywords if k.arg == "stimulus_id"]
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                values += [v for k, v in pairs if getattr(k, "value", None) == "stimulus_id"]
            elif isinstance(node, ast.Assign):
                values += [node.value] if "stimulus_id" in ast.unparse(node.targets) else []
            found |= {text for v in values if (text := id_of(v, named=v is not node))}
    return found


def id_of(value: ast.AST | None, *, named: bool) -> str | None:
    """Return an id that an expression makes, with a time of 1.5; None for other expressions."""
    if isinstance(value, ast.BoolOp):
        return id_of(value.values[-1], named=named)
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and named:
        return value.value
    if isinstance(value, ast.JoinedStr) and len(value.values) == 2:
        start, end = value.values
        if isinstance(start, ast.Constant) and (named or ast.unparse(end).count("{time()}")):
            return f"{start.value}1.5"
    return None


def test_all_of_dasks_stimuli_are_known() -> None:
    """Every stimulus id that the code of this version of Dask makes is of a member's kind."""
    ids = stimuli_in_source(Path(scheduler.__file__).parent)
    assert {"task-finished-1.5", "steal-1.5", "stimulus-retry-1.5", "worker-connect-1.5"} <= ids
    assert not {i for i in ids if not isinstance(StimulusType.of(i), StimulusType)}
    assert len({StimulusType.of(i) for i in ids}) >= 40
    assert StimulusType.of(scheduler.STIMULUS_ID_UNSET) is StimulusType.UNSET


def test_stimuli_of_a_cluster_are_known(tmp_path: Path) -> None:
    """Events of a recorded cluster have the kinds of stimuli, by Dask's own log of transitions."""
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        with dask_strata.record(tmp_path, client=client) as run:
            assert client.submit(abs, -1, key="positive").result() == 1
            client.submit(int, "no number", key="bad").exception()
            client.scatter([1, 2])
        log = cluster.scheduler.transition_log
        logged = {(str(t.key), t.stimulus_id.rpartition("-")[0]) for t in log}
    handler = TaskHandler(run)
    events = [e for e in handler.return_all_events() if isinstance(e, SchedulerEvent)]
    assert all(isinstance(e.stimulus_type, StimulusType) for e in events)
    assert {(e.key, plain(e.stimulus_type)) for e in events} == logged
    assert StimulusType.TASK_ERRED in {e.stimulus_type for e in events if e.key == "bad"}
    frame = handler.to_df()[EventTypeEnum.SCHEDULER]
    assert {*frame["stimulus_type"]} == {e.stimulus_type for e in events}


@given(st.text())
def test_no_stimulus_is_refused(text: str) -> None:
    """Any text is a stimulus id; its kind is a text, too."""
    assert isinstance(StimulusType.of(text), str)
    assert StimulusType.of(f"task-finished-{abs(hash(text)) / 7}") is StimulusType.TASK_FINISHED


@pytest.mark.parametrize("zone", [timezone.utc, ZoneInfo("Asia/Kathmandu")])
def test_a_handler_can_be_filled_later(zone: tzinfo) -> None:
    """Without a run, all answers are those of the added events; naive times are in the zone."""
    handler = TaskHandler(tz=zone)
    assert (len(handler.tasks), [*handler.return_all_events()], handler.n_events) == (0, [], 0)
    assert (handler.return_names(), handler.unknown_states()) == ([], {})
    naive = datetime(2026, 11, 18, 11, 6, 41)  # noqa: DTZ001  the subject of this test
    source = EventSource("tcp://s:1", "task-finished-1.5")
    done = SchedulerEvent(naive, naive, naive, TaskState.PROCESSING, TaskState.MEMORY, source, "a")
    moved = WXferEvent(
        naive, naive, naive, 1.0, {"a": 1, "b": 2}, 3, 3.0, None, "x", "y",
        TransferTypeEnum.INCOMING, naive - timedelta(seconds=1),
    )  # fmt: skip
    later = datetime(2030, 1, 1, tzinfo=timezone.utc)
    for event in (done, moved, WorkerEvent("odd", TaskState.READY, "w", later, "b")):
        handler.add_event(event)
    assert handler.return_names() == ["a", "b"]
    assert [task.name for task in handler.tasks] == [*handler.tasks.keys()] == ["a", "b"]
    aware = naive.replace(tzinfo=zone)
    task = handler.get_task_by_name("a")
    assert (task.t_start, task.t_end) == (aware - timedelta(seconds=1), aware)
    assert task.events[1] == replace(done, t_event=aware, t_begins=aware, t_ends=aware)
    assert handler.get_task_by_name("b").t_end == later
    assert handler.n_events == len([*handler.return_all_events()]) == 3
    assert handler.unknown_states() == {"odd": 1}
    frame = handler.to_df()[EventTypeEnum.SCHEDULER]
    assert frame["t_begins"].tolist() == [aware]
    with pytest.raises(UnknownTaskError):
        handler.get_task_by_name("c")
    with pytest.raises(TypeError, match="not str"):
        handler.add_event("a")


def test_naive_times_can_be_added_to_a_run(handler: TaskHandler) -> None:
    """An added event without a zone sorts among those of the run, which have one."""
    naive = at(2).replace(tzinfo=None)
    handler.add_event(WorkerEvent(TaskState.READY, TaskState.MEMORY, "w", naive, X0))
    times = [e.t_event for e in handler.get_task_by_name(X0).events]
    assert at(2) in times
    assert times == sorted(times)
    times = [e.t_event for e in handler.return_all_events()]
    assert times == sorted(times)


def test_a_filled_handler_is_fast() -> None:
    """Adding an event does not search through the tasks that were added before."""
    handler = TaskHandler()
    for i in range(20_000):
        handler.add_event(WorkerEvent(TaskState.READY, TaskState.MEMORY, "w", at(i), f"t-{i}"))
    assert handler.get_task_by_name("t-19999").t_start == at(19_999)


def test_transfers_compare_as_in_the_older_tool(handler: TaskHandler) -> None:
    """The older tool's methods of transfers exist."""
    transfer = next(handler.return_all_wxfer_events(TransferTypeEnum.INCOMING))
    assert (transfer.n_tasks(), transfer.is_only_1_task()) == (2, False)
    assert transfer.return_key_names() == [transfer.get_key_name(), transfer.get_key_name(1)]
    other = replace(transfer, fulfiller="tcp://elsewhere:1")
    assert transfer.identical_except_fulfiller(other)
    assert not transfer.identical_except_requestor(other)
    assert not transfer.identical_except_fulfiller(transfer)
    assert not transfer.identical_except_fulfiller(replace(other, total=1))
    assert transfer.identical_except_requestor(replace(transfer, requestor=None))


def test_a_task_that_is_not_there_is_named(handler: TaskHandler) -> None:
    """The error about an unknown task contains its name."""
    with pytest.raises(UnknownTaskError, match="The run has no task nowhere"):
        handler.get_task_by_name("nowhere")


def test_two_keys_with_one_text_are_two_tasks(tmp_path: Path) -> None:
    """A text key and a tuple key with the same text are two tasks; the type selects one."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    for key, start in ((TUPLE, 1), (X0, 2)):
        scheduler.write("scheduler_transitions", life(key, start, 5, "tcp://w:1"))
    scheduler.end()
    handler = TaskHandler(open_run(folder))
    assert handler.return_names() == [X0, X0]
    with pytest.raises(UnknownTaskError, match="More than one"):
        handler.get_task_by_name(X0)
    assert handler.get_task_by_name(X0, key_type="str").t_start == at(1.9)
    with pytest.raises(UnknownTaskError, match="More than one"):
        handler.add_event(WorkerEvent("a", "b", None, at(1), X0))


def test_added_events_are_the_handlers_own(folder: Path, handler: TaskHandler) -> None:
    """An event that is added is in its tasks, in time order, and not in the run."""
    moved = WXferEvent(
        at(2), at(3), at(2), 1.0, {X0: 1, "new": 2}, 3, 3.0, None, "a", "b",
        TransferTypeEnum.INCOMING, at(3),
    )  # fmt: skip
    handler.add_event(moved)
    handler.add_event(WorkerEvent(TaskState.READY, "odd", "w", at(4), "new"))
    assert handler.return_names() == ["late", X0, "only-moved", "new"]
    assert handler.get_task_by_name(X0).events[3] is moved
    assert [e.t_event for e in handler.tasks[3].events] == [at(3), at(4)]
    events = [*handler.return_all_events()]
    assert len(events) == handler.n_events == 10
    assert [e.t_event for e in events] == sorted(e.t_event for e in events)
    assert len(handler.to_df()[EventTypeEnum.WORKER_TRANSFER]) == 4
    assert TaskHandler(open_run(folder)).return_names() == ["late", X0, "only-moved"]


def test_data_frames_have_one_row_an_event(handler: TaskHandler) -> None:
    """Frames have the older columns, times and states as objects, and count bytes once."""
    found = handler.to_df()
    transfers = found[EventTypeEnum.WORKER_TRANSFER]
    assert transfers["total"].sum() == 90
    assert transfers["key"].tolist()[:2] == [X0, X0]
    assert json.loads(transfers["keys"][0]) == {X0: 10, "only-moved": 20}
    assert transfers["transfer_type"][0] is TransferTypeEnum.OUTGOING
    scheduler = found[EventTypeEnum.SCHEDULER]
    assert scheduler["finish"].tolist()[0] == "teleported"
    assert scheduler["finish"].tolist()[-1] is TaskState.MEMORY
    assert scheduler["t_event"].tolist() == [at(0.5), at(0.9), at(1), at(5)]
    assert found[EventTypeEnum.WORKER]["ip"].tolist() == ["tcp://w:1"]


def test_times_can_be_in_another_zone(folder: Path) -> None:
    """A handler with a zone gives the same moments in that zone."""
    handler = TaskHandler(open_run(folder), tz=ZoneInfo("Asia/Kathmandu"))
    task = handler.get_task_by_name(X0)
    assert task.t_start == at(0.9)
    assert "Start time: 2026-11-18 16:51:40.900000+05:45\t" in str(task)
    times = handler.to_df()[EventTypeEnum.WORKER]["t_event"]
    assert str(times[0]) == "2026-11-18 16:51:41.500000+05:45"


def test_an_empty_run_has_no_tasks(tmp_path: Path) -> None:
    """Without any event all answers are empty, and every file is whole."""
    folder = new_run(tmp_path / "r")
    Process(folder, "scheduler-1").end()
    handler = TaskHandler(open_run(folder))
    assert (len(handler.tasks), [*handler.tasks], [*handler.return_all_events()]) == (0, [], [])
    for form in FORMATS:
        write(handler, form, tmp_path / form)
    assert (tmp_path / "txt").read_text() == ""
    assert json.loads((tmp_path / "json").read_text()) == []
    assert pq.read_table(tmp_path / "parquet").num_rows == 0


def test_every_form_has_every_event(handler: TaskHandler, tmp_path: Path) -> None:
    """JSON, CSV and Parquet have the same events as the objects."""
    for form in FORMATS:
        write(handler, form, tmp_path / form)
    tasks = json.loads((tmp_path / "json").read_text())
    assert [task["name"] for task in tasks] == handler.return_names()
    assert [len(task["events"]) for task in tasks] == [len(t.events) for t in handler.tasks]
    assert tasks[2]["events"][0]["keys"] == {X0: 10, "only-moved": 20}
    with (tmp_path / "csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == handler.n_events
    assert sum(int(row["total"] or 0) for row in rows) == 90
    table = pq.read_table(tmp_path / "parquet")
    assert table["t_event"].to_pylist() == [e.t_event for e in handler.return_all_events()]
    assert table["kind"].to_pylist() == [row["kind"] for row in rows]
    assert (tmp_path / "txt").read_text() == "".join(map(str, handler.tasks))


keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(keys, st.integers(0, 10**7)), min_size=1, max_size=40))
def test_any_keys_and_times_come_back(tmp_path_factory, changes: list[tuple[str, int]]) -> None:
    """Whatever the keys and the order of rows, each task gets its own events in time order."""
    tmp_path = tmp_path_factory.mktemp("any")
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1")
    worker.write("worker_transitions", [change(k, t / 1e6, "ready", "memory") for k, t in changes])
    worker.end()
    handler = TaskHandler(open_run(folder))
    expected: dict[str, list[int]] = {}
    for key, micro in changes:
        expected.setdefault(key, []).append(T0 // 1000 + int(micro / 1e6 * SECOND) // 1000)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    found = {
        task.name: [(e.t_event - epoch) // timedelta(microseconds=1) for e in task.events]
        for task in handler.tasks
    }
    assert found.keys() == expected.keys()
    for key, times in expected.items():
        assert found[key] == pytest.approx(sorted(times), abs=1)
        assert handler.get_task_by_name(key).name == key
    write(handler, "json", tmp_path / "json")
    written = json.loads((tmp_path / "json").read_text(encoding="utf-8"))
    assert {task["name"] for task in written} == expected.keys()
    write(handler, "csv", tmp_path / "csv")
    with (tmp_path / "csv").open(newline="", encoding="utf-8") as file:
        assert sorted(r["key"] for r in csv.DictReader(file)) == sorted(
            spreadsheet_text(k) for k, _ in changes
        )


def test_tasks_of_one_row_have_an_order(tmp_path: Path) -> None:
    """Tasks that only one transfer records are ordered by key, in each reading the same."""
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1")
    worker.write(
        "transfer_ends",
        [{"number": 1, "end": "incoming", "start": T0, "stop": T0 + SECOND, "n_keys": 300}],
    )
    names = [f"key-{i:03}" for i in range(300)]
    worker.write(
        "transfer_end_keys", [{"number": 1, "key": k, "nbytes": 1} for k in reversed(names)]
    )
    worker.end()
    for _ in range(3):
        assert [task.name for task in TaskHandler(open_run(folder)).tasks] == names


def test_a_key_cannot_begin_a_block_of_its_own(tmp_path: Path) -> None:
    """Only the blocks of tasks begin at the beginning of a line, whatever is in the keys."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    evil = "a\nTask object for task b:"
    scheduler.write("scheduler_transitions", life(evil, 1, 2, "tcp://w:1"))
    scheduler.end()
    (task,) = TaskHandler(open_run(folder)).tasks
    assert [line for line in str(task).splitlines() if not line.startswith("\t")] == [
        "Task object for task a"
    ]


def test_pages_do_not_show(tmp_path: Path) -> None:
    """With more events than are made at a time, each task still has its own."""
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1")
    hot = [change("hot", 1 + i / 1e3, "ready", "memory") for i in range(5000)]
    few = [
        change(f"t-{i}", i / 100 + j / 1e4, "ready", "memory") for i in range(3000) for j in (0, 1)
    ]
    worker.write("worker_transitions", hot + few)
    worker.end()
    handler = TaskHandler(open_run(folder))
    sizes = {task.name: len(task.events) for task in handler.tasks}
    assert sizes.pop("hot") == 5000
    assert set(sizes.values()) == {2}
    assert len(sizes) == 3000
    assert all({e.key for e in task.events} == {task.name} for task in handler.tasks)


def test_data_frames_without_pandas_say_what_to_install(tmp_path: Path) -> None:
    """Where pandas is not installed, the error names it; all else works."""
    folder = small_run(tmp_path / "r")
    (tmp_path / "pandas.py").write_text("raise ImportError('No module named pandas')\n")
    code = (
        "from dask_strata import open_run, StrataError\n"
        "from dask_strata.capture import TaskHandler\n"
        f"handler = TaskHandler(open_run({str(folder)!r}))\n"
        "print(len(handler.tasks))\n"
        "try:\n    handler.to_df()\nexcept StrataError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "2"
    assert "needs pandas" in done.stdout


def test_documentation_has_all_attributes() -> None:
    """docs/capture.md has a table for each class, with all its attributes, methods and members."""
    text = (Path(__file__).parents[2] / "docs" / "capture.md").read_text(encoding="utf-8")
    assert text.endswith(reference())
    sections = {part.partition("\n")[0]: part for part in text.split("### ")[1:]}
    classes = [getattr(capture, name) for name in capture.__all__]
    for cls in (cls for cls in classes if isinstance(cls, type)):
        names = {name for name in vars(cls) if not name.startswith("_")}
        names |= set(getattr(cls, "__dataclass_fields__", ()))
        assert names
        rows = sections[cls.__name__].splitlines()
        listed = {row.split("`")[1].removesuffix("()") for row in rows if row.startswith("| `")}
        assert names <= listed, cls
        assert not [row for row in rows if row.startswith("|") and "|  |" in row]

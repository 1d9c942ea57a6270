"""``dask-strata import``: files of the Mofka-Dask coupler as a run, with all their traps."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result
from dask_strata.schema.states import SCHEDULER_STATES, WORKER_STATES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_strata import Run, open_run
from dask_strata.capture import TaskState
from dask_strata.cli import cli
from dask_strata.errors import ImportedDataError, UnknownTaskError, UsageError
from dask_strata.importers.mofka.importer import Imported, find_files, import_files
from dask_strata.store.limits import COUNT
from tests.conftest import rows, runs_in, wait_until
from tests.support import coupler_files as coupler
from tests.support.coupler_files import (
    COLUMNS,
    T0,
    W1,
    W2,
    added,
    damaged,
    life,
    put,
    scheduler,
    text,
    transfer,
    worker,
    write,
)

X, Y = ("x", 0), "y-1"

#: How far the clock of W2 is behind, and what its `middle` tells.
SHIFT = 2.0


def executed(key: Any, start: float, stop: float, where: str) -> list[coupler.Row]:
    """Return a worker's rows of a task that it executed."""
    return [
        worker(key, "ready", "executing", start, where),
        worker(key, "executing", "memory", stop, where),
    ]


def sent(**more: Any) -> coupler.Row:
    """Return W2's row of sending X to W1: its clock is behind, by what `middle` shows."""
    start, stop = T0 + 12, T0 + 12.5
    row = {
        "type": "outgoing_transfer",
        "called_from": W2,
        "who": W1,
        "middle": (start + stop) / 2 - SHIFT,
        "compressed": 50,
        "time": stop + 0.25 - SHIFT,
    }
    return transfer({X: 100}, start, stop, **(row | more))


def received(**more: Any) -> coupler.Row:
    """Return W1's row of the same transfer."""
    return transfer({X: 100}, T0 + 12, T0 + 12.5, **more)


def files() -> dict[str, list[coupler.Row]]:
    """Return rows of all files: X ran on W2 and went to W1, where Y needed it."""
    return {
        "scheduler_transition": [
            *life(X, T0 + 10, T0 + 11, W2),
            *life(Y, T0 + 12, T0 + 12.5, W1),
        ],
        "worker_transition": [
            *executed(X, T0 + 10 - SHIFT, T0 + 11 - SHIFT, W2),
            *executed(Y, T0 + 12.5, T0 + 12.625, W1),
        ],
        "worker_transfer": [received(), sent(), sent(time=T0 + 20), received(time=T0 + 21)],
        "worker": [added(W1, T0), added(W2, T0 + 0.5)],
        "client": [{"client": "Client-1", "action": "add", "time": T0 + 1}],
        "graph": [
            {
                "client": "Client-1",
                "keys": str({Y}),
                "dependencies": str({X: set(), Y: {X}}),
                "time": T0 + 2,
            }
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files."""
    return write(tmp_path / "csv", files())


def importing(folder: Path, **options: Any) -> Imported:
    """Import a folder, into `runs` beside it."""
    return import_files(find_files(folder), folder.parent / "runs", name=folder.name, **options)


def imported(folder: Path, *, align: bool = True) -> Run:
    """Import a folder and open the run."""
    return open_run(importing(folder).path, align=align)


def made_of(tmp_path: Path, **by_role: Iterable[coupler.Row]) -> Run:
    """Import some files and open the run."""
    return imported(write(tmp_path / "csv", by_role))


def call(*arguments: object) -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def said(run: Run) -> list[str]:
    """Return what `check` finds, each as one line with its severity."""
    return [f"{f.severity} {f.process}: {f.text}" for f in run.check().findings]


def finding(run: Run, *words: str) -> str:
    """Return the one finding of `check` with all these words."""
    (found,) = (line for line in said(run) if all(word in line for word in words))
    return found


def one(run: Run, query: str) -> Any:
    """Return the one value that a query answers."""
    (row,) = rows(run, query)
    (value,) = row.values()
    return value


def seconds(run: Run, query: str) -> list[float]:
    """Return the times of a query in seconds since T0."""
    return [row["time"].timestamp() - T0 for row in rows(run, query)]


# A run like any other.


def test_the_command_makes_a_run(folder: Path, tmp_path: Path) -> None:
    """The command ends with 0, names the run, and the folder of runs has that run and no more."""
    done = call("import", folder, "-o", tmp_path / "runs")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    (run,) = runs_in(tmp_path / "runs")
    assert done.stdout == f"{run.path}  18 rows, 2 transfers resent and counted once\n"
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [run.path.name]
    assert (run.manifest.name, run.state) == ("csv", "imported")
    assert run.manifest.imported_from == str(folder)
    assert {p.name for p in run.path.iterdir()} == {"run.json", "parquet", "segments"}


def test_it_has_the_same_tables_as_a_recorded_run(folder: Path) -> None:
    """Tasks, attempts, transfers, workers and the graph are what the files say."""
    run = imported(folder)
    assert rows(run, "select key, key_type, state, worker, n_attempts from tasks") == [
        {
            "key": "('x', 0)",
            "key_type": "tuple",
            "state": "memory",
            "worker": W2,
            "n_attempts": 1,
        },
        {"key": "y-1", "key_type": "str", "state": "memory", "worker": W1, "n_attempts": 1},
    ]
    assert rows(run, "select worker, outcome, thread, nbytes from attempts order by start") == [
        {"worker": W2, "outcome": "memory", "thread": 140234, "nbytes": 28},
        {"worker": W1, "outcome": "memory", "thread": 140234, "nbytes": 28},
    ]
    assert rows(run, "select key, dependency from graph_edges") == [
        {"key": "y-1", "dependency": "('x', 0)"}
    ]
    assert rows(run, "select key from graph_tasks where requested") == [{"key": "y-1"}]
    assert rows(run, "select client, action from clients") == [
        {"client": "Client-1", "action": "connect"}
    ]
    assert rows(run, "select n_tasks, n_keys, client from submissions") == [
        {"n_tasks": 2, "n_keys": 1, "client": "Client-1"}
    ]
    assert rows(run, "select worker, host, n_attempts from workers order by worker") == [
        {"worker": W1, "host": "10.0.0.2", "n_attempts": 1},
        {"worker": W2, "host": "10.0.0.3", "n_attempts": 1},
    ]
    assert run.check().ok


COMMANDS = [
    ["show"],
    ["map"],
    ["tasks"],
    ["tasks", "--sort", "compute_seconds"],
    ["check"],
    ["query", "select count(*) from tasks"],
]


def test_every_command_works_on_it(folder: Path, tmp_path: Path) -> None:
    """show, map, tasks, story, query, check, compact and list take it as any run."""
    run = imported(folder)
    for name, *options in [*COMMANDS, ["story", "y-1"], ["story", "('x', 0)"], ["compact"]]:
        done = call(name, run.path, *options)
        assert done.exit_code == 0, (name, done.output)
    assert "y-1" in call("tasks", run.path).stdout
    assert "imported" in call("show", run.path).stdout
    assert "worker_transfer.csv" in call("check", run.path).stdout
    story = call("story", run.path, "('x', 0)").stdout
    assert W2 in story
    assert "executing" in story
    listed = call("list", tmp_path / "runs")
    assert listed.exit_code == 0
    assert "imported" in listed.stdout
    again = open_run(run.path)
    assert one(again, "select count(*) from tasks") == 2
    assert again.check().ok


def test_the_python_side_works_on_it(folder: Path) -> None:
    """Tables as Arrow, pandas and Polars; a task by its key, tuple or text."""
    run = imported(folder)
    assert list(run.tasks.to_pandas()["key"]) == ["('x', 0)", "y-1"]
    assert len(run.transfers.to_polars()) == len(run.transfers.to_arrow()) == 1
    task = run.task(X)
    assert (task.key, task.state) == ("('x', 0)", "memory")
    assert run.task("('x', 0)").facts == task.facts
    assert [t["total_bytes"] for t in task.transfers] == [100]
    assert run.task(Y).dependencies == ["('x', 0)"]
    assert W2 in str(task)
    with pytest.raises(UnknownTaskError):
        run.task(("x", 1))


ROLES = list(COLUMNS)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_any_subset_of_files_is_a_run(n: int, tmp_path: Path) -> None:
    """Whatever is there is imported, and each file that is not is named by check, no other."""
    everything = files()
    for subset in itertools.combinations(ROLES, n):
        folder = write(tmp_path / "-".join(subset), {role: everything[role] for role in subset})
        run = imported(folder)
        given_rows = sum(len(everything[role]) for role in subset)
        assert one(run, "select sum(rows)::int from imports") == given_rows
        lines = said(run)
        absent = [line for line in lines if "there is no such file" in line]
        assert len(absent) == len(ROLES) - n
        for role in set(ROLES) - set(subset):
            assert [line for line in absent if f"{role}.csv" in line]
        assert bool([line for line in lines if line.startswith("missing")]) == (n < len(ROLES))
        keys = {row["key"] for row in rows(run, "select key from tasks")}
        assert keys <= {"('x', 0)", "y-1"}


@pytest.mark.parametrize("role", ROLES)
def test_commands_work_on_a_run_of_one_file(role: str, tmp_path: Path) -> None:
    """With one file alone, no command fails: 1 from check says what is missing."""
    run = made_of(tmp_path, **{role: files()[role]})
    for name, *options in COMMANDS:
        done = call(name, run.path, *options)
        assert done.exit_code == (1 if name == "check" else 0), (name, done.output)
    assert call("list", run.path.parent).exit_code == 0


def test_any_order_of_columns_and_either_coupler(tmp_path: Path) -> None:
    """The order of columns and the coupler's age change nothing but where a row came from."""
    usual = imported(write(tmp_path / "usual", files()), align=False)
    new = imported(write(tmp_path / "new", files(), new=True), align=False)
    for role, rows_ in files().items():
        put(tmp_path / "turned" / f"{role}.csv", text(role, rows_, COLUMNS[role][::-1]))
    turned = imported(tmp_path / "turned", align=False)
    assert (tmp_path / "new" / "graph.csv").read_text().startswith(",action,client")
    assert (tmp_path / "turned" / "graph.csv").read_text().startswith(",time,dep")
    for table in ("tasks", "attempts", "transfers", "workers", "submissions", "graph_edges"):
        found = {run: run[table].to_arrow().to_pylist() for run in (usual, new, turned)}
        assert found[new] == found[usual], table
        assert found[turned] == found[usual], table
        assert found[usual], table
    assert new.check().ok
    assert turned.check().ok


def test_newer_couplers_add_workers_without_an_address(tmp_path: Path) -> None:
    """`add_worker` without an address is kept as it is, and is no worker."""
    write(tmp_path / "csv", files(), new=True)
    newer = [{"action": "add_worker", "stimulus_id": f"s-{i}", "time": T0 + i} for i in range(2)]
    put(tmp_path / "csv" / "worker.csv", text("worker", newer, new=True))
    run = imported(tmp_path / "csv")
    assert rows(run, "select worker, action, stimulus_id from worker_events") == [
        {"worker": None, "action": "add", "stimulus_id": "s-0"},
        {"worker": None, "action": "add", "stimulus_id": "s-1"},
    ]
    assert [row["worker"] for row in rows(run, "select worker from workers order by 1")] == [W1, W2]
    assert run.check().ok
    assert "2 workers came without an address" in finding(run, "note", "address")


def test_workers_csv_is_worker_csv(folder: Path) -> None:
    """Both names are accepted; both at once are not."""
    (folder / "worker.csv").rename(folder / "workers.csv")
    run = imported(folder)
    assert one(run, "select count(*) from worker_events where file = 'workers.csv'") == 2
    assert run.check().ok
    put(folder / "worker.csv", text("worker", []))
    with pytest.raises(ImportedDataError, match=r"both worker\.csv and workers\.csv"):
        find_files(folder)


def test_each_row_says_where_it_is_from(folder: Path) -> None:
    """File and line of every row of every table are those of the file."""
    run = imported(folder, align=False)
    tables = {
        "scheduler_transition": ["scheduler_transitions"],
        "worker_transition": ["worker_transitions"],
        "worker_transfer": ["transfer_ends", "transfer_resends"],
        "worker": ["worker_events"],
        "client": ["clients"],
        "graph": ["submissions"],
    }
    for role, names in tables.items():
        lines = (folder / f"{role}.csv").read_text().splitlines()
        at = lines[0].split(",").index("time")
        found = {}
        for name in names:
            for row in rows(run, f"select file, line, salvaged, time from {name}"):
                assert row["file"] == f"{role}.csv"
                assert not row["salvaged"]
                found[row["line"]] = row["time"].timestamp()
        reader = csv.reader(lines[1:])
        assert found == {number: float(cells[at]) for number, cells in enumerate(reader, 2)}


def test_lines_count_ends_of_line_in_cells(tmp_path: Path) -> None:
    """A key with an end of line in it moves the lines of the rows behind it."""
    run = made_of(
        tmp_path, worker_transition=[worker("a\nb", "ready", "executing", T0)] * 2, worker=[]
    )
    assert rows(run, "select key, line from worker_transitions order by line") == [
        {"key": "a\nb", "line": 2},
        {"key": "a\nb", "line": 4},
    ]


def test_two_imports_are_two_runs(folder: Path, tmp_path: Path) -> None:
    """Importing again makes another run; several folders at once make a run each."""
    write(tmp_path / "other", files())
    first = imported(folder)
    done = call("import", folder, tmp_path / "other", "-o", tmp_path / "runs", "--name", "n")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 2
    assert len({run.manifest.run_id for run in runs_in(tmp_path / "runs")}) == 3
    assert one(first, "select count(*) from tasks") == 2


# One task, one key.


TRICKY = [
    ("save_file-331f", 0, 0, 0, 0),
    "('x', 1)",
    "NA",
    "null",
    "nan",
    "1",
    "1.0",
    "None",
    "a,b",
    'say "hi"',
    "it's",
    "back\\slash",
    "two\nlines",
    "é☃😀",
    " spaced ",
    "#",
    ("it's", "q\"'", -1),
    ("nested", ("a", 1), 2.5),
]


@pytest.mark.parametrize("key", TRICKY, ids=ascii)
def test_a_task_has_one_key_in_all_files(key: Any, tmp_path: Path) -> None:
    """The scheduler, a worker, a transfer and the graph speak of one task, by one text."""
    run = made_of(
        tmp_path,
        scheduler_transition=life(key, T0 + 10, T0 + 11, W2),
        worker_transition=executed(key, T0 + 10, T0 + 11, W2),
        worker_transfer=[transfer({key: 8}, T0 + 12, T0 + 13)],
        graph=[{"keys": str({key}), "dependencies": str({key: set()}), "time": T0}],
    )
    (task,) = rows(run, "select key, n_attempts from tasks")
    assert task == {"key": str(key), "n_attempts": 1}
    for table in (
        *("scheduler_transitions", "worker_transitions", "transfer_end_keys", "transfer_keys"),
        *("graph_tasks", "tasks", "attempts"),
    ):
        found = rows(run, f"select distinct key, key_type from {table}")
        assert found == [{"key": str(key), "key_type": found[0]["key_type"]}], table
    assert run.task(str(key)).state == "memory"
    if isinstance(key, tuple):
        assert run.task(key).facts == run.task(str(key)).facts


def test_prefixes_are_dasks_own(tmp_path: Path) -> None:
    """A prefix is the scheduler's, or what Dask makes of the key where there is no such row."""
    run = made_of(
        tmp_path,
        scheduler_transition=[scheduler("inc-1", "released", "waiting", T0, prefix="mine")],
        worker_transition=executed(("sum-1234abcd", 0), T0, T0 + 1, W1),
    )
    assert rows(run, "select key, prefix from tasks order by key") == [
        {"key": "('sum-1234abcd', 0)", "prefix": "sum"},
        {"key": "inc-1", "prefix": "mine"},
    ]


# Trap 1: resent transfers.


def test_resent_transfers_are_counted_and_set_apart(folder: Path) -> None:
    """Rows equal in all but time are one transfer; the others are kept with file and line."""
    run = imported(folder)
    assert importing(folder).resent == 2
    assert one(run, "select count(*) from transfer_ends") == 2
    query = """
        select r.line, e.line as first from transfer_resends r
        join transfer_ends e using (process, number) order by 1
    """
    assert rows(run, query) == [{"line": 4, "first": 3}, {"line": 5, "first": 2}]
    assert seconds(run, "select time from transfer_resends where line = 5") == [21.0]
    line = finding(run, "worker_transfer.csv")
    assert "2 of 4 rows are in the tables" in line
    assert "2 told again" in line


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
    """Any column but time tells two transfers apart."""
    run = made_of(tmp_path, worker_transfer=[received(), received(**other), received(time=T0 + 30)])
    assert one(run, "select count(*) from transfer_ends") == 2
    assert rows(run, "select line from transfer_resends") == [{"line": 4}]


# Trap 1 and the issue: two ends are one transfer, and bytes are counted once.


def test_two_ends_are_one_transfer(folder: Path) -> None:
    """What both ends told of is one transfer from source to destination, seen by both."""
    run = imported(folder)
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
    """A transfer of three keys has its total once, and each key its own bytes."""
    keys = {X: 1, "b": 20, ("c", 1, 2): 300}
    run = made_of(tmp_path, worker_transfer=[transfer(keys, T0, T0 + 1)])
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
    run = made_of(
        tmp_path,
        worker_transfer=[received(), received(**later), sent(**later, middle=None), sent()],
    )
    assert rows(run, "select seen_by from transfers") == [{"seen_by": "both"}] * 2
    assert one(run, "select sum(total_bytes)::int from transfers") == 200


def test_a_transfer_to_a_client_has_no_destination(tmp_path: Path) -> None:
    """An outgoing row without a peer was sent to a client."""
    run = made_of(tmp_path, worker_transfer=[sent(who=None)])
    assert rows(run, "select source, destination, seen_by from transfers") == [
        {"source": W2, "destination": None, "seen_by": "source"}
    ]


def test_a_transfer_of_which_one_end_told_is_reported(tmp_path: Path) -> None:
    """If the other end told of other transfers, its silence on this one is said."""
    other = sent(keys="{'z': 5}", who=None)
    run = made_of(tmp_path, worker_transfer=[received(), other])
    assert "1 transfer of which the sender" in finding(run, "missing", "told nothing")


def test_a_total_that_is_not_the_sum_is_said(tmp_path: Path) -> None:
    """A transfer whose total is not the sum of its keys is counted by check."""
    run = made_of(tmp_path, worker_transfer=[received(total=99)])
    assert "1 transfer whose total" in finding(run, "is not the sum of")


# Trap 2: two clocks.


def test_the_shift_of_a_worker_is_measured_and_used(folder: Path) -> None:
    """`time` of a worker's rows is put on the scheduler's clock; start and stop are there."""
    run = imported(folder)
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
    """One measurement far off does not shift a worker; incoming rows measure nothing."""
    measured = [sent(middle=T0 + 12.25 - s, keys=str({s: 8})) for s in (2.0, 2.1, 1.9, -30.0, 2.01)]
    run = made_of(tmp_path, worker_transfer=[received(middle=T0), *measured, sent(middle=None)])
    assert one(run, "select count(*) from clock_offsets") == len(measured)
    assert run.clock_offsets_ns == {f"worker-{W2}": 2_000_000_000}


def test_a_measurement_of_years_is_one(tmp_path: Path) -> None:
    """A middle that is years off, as of a clock never set, is measured like any other."""
    run = made_of(tmp_path, worker_transfer=[sent(middle=0.5)])
    assert one(run, "select offset_seconds from clock_offsets") == pytest.approx(T0 + 11.75)
    assert run.check().findings


def test_measurements_that_contradict_each_other_shift_nothing(tmp_path: Path) -> None:
    """A shift that is smaller than its measurements are apart is none."""
    measured = [sent(middle=T0 + 12.25 - s, keys=str({s: 8})) for s in (-3.0, -1.0, 0.5, 3.0, 4.0)]
    run = made_of(tmp_path, worker_transfer=measured)
    assert run.clock_offsets_ns == {}


# Trap 3: begins and ends that are a transfer.


def test_a_transfer_is_not_called_compute(folder: Path) -> None:
    """begins and ends of Y are those of a fetch: its compute time is what its worker executed."""
    run = imported(folder)
    query = "select action, seconds, source from phases where key = 'y-1' order by start"
    assert rows(run, query) == [
        {"action": "transfer", "seconds": 0.5, "source": W2},
        {"action": "executing", "seconds": 0.125, "source": None},
    ]
    assert rows(run, "select key, compute_seconds, transfer_seconds from tasks") == [
        {"key": "('x', 0)", "compute_seconds": 1.0, "transfer_seconds": None},
        {"key": "y-1", "compute_seconds": 0.125, "transfer_seconds": 0.5},
    ]


@pytest.mark.parametrize(
    ("apart", "action"),
    [(0, "transfer"), (9e-6, "transfer"), (2e-5, "compute"), (-9e-6, "transfer")],
)
def test_the_same_start_is_within_ten_microseconds(
    apart: float, action: str, tmp_path: Path
) -> None:
    """An interval is a transfer if one to that worker began within 1e-5 s; another's is not."""
    begins = T0 + 10 + apart
    run = made_of(
        tmp_path,
        scheduler_transition=life("a", T0 + 10, T0 + 11, W1, begins=begins)
        + life("b", T0 + 10, T0 + 11, W2, begins=begins),
        worker_transfer=[transfer({"d": 8}, T0 + 10, T0 + 10.5)],
    )
    assert rows(run, "select key, action from phases order by key") == [
        {"key": "a", "action": action},
        {"key": "b", "action": "compute"},
    ]


def test_without_transfers_that_cannot_be_told_and_is_said(tmp_path: Path) -> None:
    """Without the transfers' file, check says that compute may be a fetch."""
    run = made_of(tmp_path, scheduler_transition=life("a", T0, T0 + 1, W1))
    assert "note" in finding(run, "cannot be told from")


def test_a_time_later_than_its_report_is_kept(tmp_path: Path) -> None:
    """ends is often later than time: two clocks, and no reason to refuse the row."""
    run = made_of(tmp_path, scheduler_transition=life("a", T0, T0 + 9, W1, time=T0 + 1))
    assert rows(run, "select compute_seconds, outcome from attempts") == [
        {"compute_seconds": 9.0, "outcome": "memory"}
    ]


# Trap 4: events lost on the way.


def consumer(folder: Path, *lines: str) -> Path:
    """Write a consumer's output with these lines between others."""
    return put(folder / "consumer.o", "\n" + "".join(lines) + "\nTotal time taken = 152.74s\n")


def test_damaged_events_are_salvaged_and_marked(folder: Path) -> None:
    """Events that lack last digits of their time are in the tables, marked, with their line."""
    lost = scheduler(("z", 1), "released", "waiting", T0 + 5.123456)
    moved = transfer({("z", 1): 7, "q": 8}, T0 + 30, T0 + 31) | {"time": T0 + 31.654321}
    literal = dict(moved, keys={("z", 2): 9})
    seen = worker("z-3", "ready", "executing", T0 + 5.123456)
    consumer(folder, damaged(lost), damaged(moved), damaged(literal), damaged(seen))
    done = importing(folder)
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


def test_nothing_is_salvaged_if_that_is_not_wanted(folder: Path, tmp_path: Path) -> None:
    """With --no-salvage such events are lost, and counted by kind."""
    lost = scheduler("z", "released", "waiting", T0 + 5.123456)
    consumer(folder, damaged(lost), damaged(received()))
    done = call("import", folder, "-o", tmp_path / "runs", "--no-salvage")
    assert done.exit_code == 0
    assert "2 events lost before it came here" in done.stdout
    (run,) = runs_in(tmp_path / "runs")
    assert one(run, "select count(*) from scheduler_transitions where salvaged") == 0
    assert "1 scheduler transitions of consumer.o" in finding(run, "missing", "scheduler trans")
    assert "1 transfers of consumer.o" in finding(run, "missing", "transfers of")


def test_events_that_cannot_be_salvaged_are_counted_by_kind(folder: Path) -> None:
    """What lacks more than digits is lost: counted by kind, and named missing by check."""
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
    done = importing(folder)
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
    """A damaged event that tells again of a transfer is a resend, without the CSV file too."""
    folder = write(tmp_path / "csv", {"worker": [added(W1, T0)]})
    consumer(folder, *(damaged(received(time=T0 + s)) for s in (13.123456, 40.123456)))
    done = importing(folder)
    run = open_run(done.path)
    assert (done.salvaged, done.resent) == (2, 1)
    assert rows(run, "select line, file from transfer_resends") == [
        {"line": 3, "file": "consumer.o"}
    ]
    assert rows(run, "select rows, kept, resent from imports where file = 'consumer.o'") == [
        {"rows": 2, "kept": 1, "resent": 1}
    ]


def test_a_consumer_without_failures_lost_nothing(folder: Path) -> None:
    """An output of the consumer without such lines is no finding but a file of no rows."""
    consumer(folder)
    run = imported(folder)
    assert run.check().ok
    assert "0 of 0 rows" in finding(run, "consumer.o")


# Traps 5 and 6, unknown states.


def test_a_silent_host_is_named(tmp_path: Path) -> None:
    """Declared workers of a host that reported nothing, though peers heard of them, are named."""
    silent = [f"tcp://10.0.0.9:{port}" for port in (1, 2)]
    idle = "tcp://10.0.0.8:1"
    run = made_of(
        tmp_path,
        worker_transition=executed("a", T0, T0 + 1, W1),
        worker_transfer=[received(who=silent[0]), received(who=silent[0], start=T0)],
        worker=[added(address, T0) for address in (W1, *silent, idle)],
    )
    host = finding(run, "missing", "silent host 10.0.0.9")
    assert "none of its 2 workers reported anything" in host
    assert "2 transfers with 1 of them" in host
    assert all(address in host for address in silent)
    assert "may have had nothing to do" in finding(run, "note", "silent host 10.0.0.8")
    assert not [line for line in said(run) if "10.0.0.2" in line]


def test_a_host_of_which_some_spoke_is_not_silent(tmp_path: Path) -> None:
    """Where one of two workers reported, the other is named, not the host."""
    other = "tcp://10.0.0.2:4999"
    run = made_of(
        tmp_path,
        worker_transition=executed("a", T0, T0 + 1, W1),
        worker=[added(W1, T0), added(other, T0)],
    )
    assert f"({other})" in finding(run, "1 of 2 workers on 10.0.0.2 reported nothing")


def test_chain_breaks_are_counted_by_kind(tmp_path: Path) -> None:
    """A transition that does not start where the last one at that place ended is a break."""
    steps = [("released", "waiting"), ("waiting", "ready"), ("executing", "memory")]
    broken = [worker(k, a, b, T0 + i, W1) for k in "ab" for i, (a, b) in enumerate(steps)]
    again = [worker("a", "released", "waiting", T0 + 9, W1)]
    elsewhere = [worker("a", "executing", "memory", T0 + 2, W2)]
    seen = [
        scheduler("a", "released", "waiting", T0),
        scheduler("a", "memory", "forgotten", T0 + 1),
    ]
    run = made_of(
        tmp_path,
        worker_transition=[*again, *broken, *elsewhere],
        scheduler_transition=seen,
    )
    line = finding(run, "note workers", "chain break")
    assert "3 chain breaks" in line
    assert "ready|executing->memory 2, memory|released->waiting 1" in line
    assert "waiting|memory->forgotten 1" in finding(run, "note scheduler", "chain break")


def test_rows_are_put_in_order_of_time(tmp_path: Path) -> None:
    """Rows of several workers are not sorted in the file; that breaks no chain and no task."""
    ordered = life("a", T0 + 1, T0 + 2, W1)
    run = made_of(
        tmp_path,
        scheduler_transition=ordered[::-1],
        worker_transition=executed("a", T0 + 1, T0 + 2, W1)[::-1],
    )
    assert rows(run, "select state, n_attempts, compute_seconds from tasks") == [
        {"state": "memory", "n_attempts": 1, "compute_seconds": 1.0}
    ]
    assert not [line for line in said(run) if "chain break" in line]


def test_an_unknown_state_is_kept_and_reported(tmp_path: Path) -> None:
    """A state that Dask has not is kept as text, and counted; all of Dask's are known."""
    dasks = [worker(f"k-{s}", s, s, T0) for s in WORKER_STATES]
    told = [scheduler(f"k-{s}", s, s, T0) for s in SCHEDULER_STATES]
    run = made_of(
        tmp_path,
        worker_transition=[*dasks, worker("a", "ready", "teleported", T0)],
        scheduler_transition=[*told, *(scheduler("a", "gone", "gone", T0 + i) for i in range(2))],
    )
    states = "select finish_state as s from worker_transitions where key = 'a'"
    assert rows(run, states) == [{"s": "teleported"}]
    unknown = [line for line in said(run) if "none of Dask's" in line]
    assert len(unknown) == 2
    assert "state teleported (1 time)" in finding(run, "note worker:", "teleported")
    assert "state gone (4 times)" in finding(run, "note scheduler:", "gone")


def test_the_enum_and_the_schema_name_the_same_states() -> None:
    """TaskState of the older objects has exactly Dask's states that check knows."""
    assert {state.value for state in TaskState} == {*SCHEDULER_STATES, *WORKER_STATES}
    assert len(set(SCHEDULER_STATES)) == len(SCHEDULER_STATES)
    assert len(set(WORKER_STATES)) == len(WORKER_STATES)


# Trap 8: bad input.


def test_rows_that_cannot_be_understood_are_kept_aside(folder: Path, tmp_path: Path) -> None:
    """Exit status 1, one line that says where; their bytes as they were; table set_aside; check."""
    bad = [
        b"9,only,three\n",
        b"10,k,ready,memory,w,soon\n",
        b"11,k\xff,a,b,w,1\n",
        b"12,\0,a,b,w,1\n",
    ]
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes() + b"".join(bad))
    done = call("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    (run,) = runs_in(tmp_path / "runs")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"4 rows could not be understood and were set aside in {run.path}/aside")
    assert (run.path / "aside" / "worker_transition.csv").read_bytes() == b"".join(bad)
    assert rows(run, "select file, line, lines, reason from set_aside order by line") == [
        {"file": path.name, "line": 6, "lines": 1, "reason": "it has 3 cells, the header 6"},
        {"file": path.name, "line": 7, "lines": 1, "reason": "time is no time"},
        {"file": path.name, "line": 8, "lines": 1, "reason": "it is not UTF-8"},
        {"file": path.name, "line": 9, "lines": 1, "reason": "it has NUL bytes"},
    ]
    assert "first line 7" in finding(run, "missing", "time is no time")
    assert "4 of 8 rows are in the tables" in finding(run, "ok worker_transition.csv")
    assert not run.check().ok
    assert one(run, "select count(*) from worker_transitions") == 4
    assert call("query", run.path, "from set_aside").exit_code == 0


def test_strict_refuses_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """With --strict such a row ends the import with its file, line and reason; no run is made."""
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes() + b"9,only,three\n")
    done = call("import", "--strict", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert f"{path}, line 6: it has 3 cells" in done.stderr
    assert "Traceback" not in done.output
    assert not (tmp_path / "runs").exists()


def cut_at(where: str) -> Callable[[bytes], bytes]:
    """Return how to cut a file behind the last time that some bytes are in it."""
    return lambda data: data[: data.rindex(where.encode()) + len(where)]


@pytest.mark.parametrize(
    ("role", "cut", "reason"),
    [
        ("worker_transition", cut_at("executing,mem"), "the file ends in the middle of it"),
        ("worker_transition", cut_at(",1713"), "the file ends in the middle of it"),
        ("worker_transition", cut_at(",1713553310.6"), None),
        ("worker_transfer", cut_at("\"{('x'"), "the file ends in the middle of it"),
        ("graph", cut_at("('x', 0"), "the file ends in the middle of it"),
        (
            "scheduler_transition",
            cut_at("tcp://10.0.0.1:8786,"),
            "the file ends in the middle of it",
        ),
    ],
    ids=["row", "number", "digits", "transfer", "quoted cell", "cells"],
)
def test_a_file_that_ends_in_the_middle(
    role: str, cut: Callable[[bytes], bytes], reason: str | None, folder: Path
) -> None:
    """A row, quoted cell or number that is cut is set aside; lost digits only mark the row."""
    path = folder / f"{role}.csv"
    whole = path.read_bytes()
    path.write_bytes(cut(whole))
    assert len(path.read_bytes()) < len(whole)
    done = importing(folder)
    run = open_run(done.path)
    n = one(run, f"select rows from imports where file = '{path.name}'")
    assert n == len(files()[role])
    if reason is None:
        assert (done.set_aside, done.salvaged) == (0, 1)
        query = "select max(line) as line from worker_transitions where salvaged"
        assert one(run, query) == 5
        assert "1 row salvaged" in finding(run, "note", path.name)
    else:
        assert (done.set_aside, done.salvaged) == (1, 0)
        assert reason in finding(run, "missing", path.name)
        kept = (run.path / "aside" / path.name).read_bytes()
        assert kept == path.read_bytes().rpartition(b"\n")[2] + b"\n"


@pytest.mark.parametrize("role", ROLES)
def test_a_file_with_only_a_header(role: str, folder: Path) -> None:
    """A file without rows is a file without rows: that is no loss."""
    put(folder / f"{role}.csv", text(role, []))
    run = imported(folder)
    assert "0 of 0 rows" in finding(run, f"ok {role}.csv")
    assert call("show", run.path).exit_code == 0


NO_FILES = [b"", b"\n", b"\xef\xbb\xbf", b"\0\0", b"a\rb\rc", b"\x89PNG\r\n"]


@pytest.mark.parametrize(
    ("role", "data"),
    [
        *itertools.product(["worker_transfer", "graph"], NO_FILES),
        *itertools.product(ROLES[:2] + ROLES[3:5], [b"", b"\x89PNG\r\n"]),
    ],
    ids=repr,
)
def test_a_file_that_is_none(role: str, data: bytes, folder: Path) -> None:
    """An empty file, or one of anything, is said to be no such file; the others are imported."""
    put(folder / f"{role}.csv", data)
    run = imported(folder)
    lines = said(run)
    assert [line for line in lines if line.startswith("missing") and f"{role}.csv:" in line]
    assert [line.split(":")[0] for line in lines if line.startswith("ok ")] == [
        f"ok {name}.csv" for name in sorted(ROLES)
    ]


@pytest.mark.parametrize(
    ("role", "column"),
    [(role, column) for role in ROLES for column in COLUMNS[role]],
)
def test_a_missing_column(role: str, column: str, folder: Path) -> None:
    """Without a column that is needed the rows are set aside, and why; others are not missed."""
    columns = [c for c in COLUMNS[role] if c != column]
    put(folder / f"{role}.csv", text(role, files()[role], columns))
    done = importing(folder)
    run = open_run(done.path)
    needed = {
        "scheduler_transition": {"key", "start", "finish", "time"},
        "worker_transition": {"key", "start", "finish", "time"},
        "worker_transfer": {"start", "stop", "keys", "type", "time"},
        "graph": {"dependencies", "time"},
    }.get(role, {"time"})
    if column in needed:
        assert done.set_aside == len(files()[role])
        reasons = rows(run, "select what, reason from losses")
        assert {"what": f"{role}.csv", "reason": f"has no column {column}"} in reasons
        assert rows(run, "select distinct file, reason from set_aside") == [
            {"file": f"{role}.csv", "reason": f"its file has no column {column}"}
        ]
    else:
        assert done.set_aside == 0
    assert len(run.tasks) == len(run.tasks.to_pandas()) <= 2


def test_unknown_columns_are_named(folder: Path) -> None:
    """A column that nobody knows is left out, and said with the number of its rows."""
    given_rows = [row | {"mood": "good"} for row in files()["client"]]
    put(folder / "client.csv", text("client", given_rows, [*COLUMNS["client"], "mood"]))
    run = imported(folder)
    assert "1 column mood of client.csv: its meaning is not known" in finding(run, "mood")
    assert one(run, "select columns from imports where file = 'client.csv'") == json.dumps(
        ["", *COLUMNS["client"], "mood"]
    )


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "soon", "", "-5", "1e300", "NaT", "1_700_000_000"]
)
@pytest.mark.parametrize("column", ["time", "begins"])
def test_what_is_no_time_where_one_belongs(column: str, value: str, tmp_path: Path) -> None:
    """NaN, infinity and text are no times; an empty cell is none where one may lack."""
    kept, bad = life("kept", T0, T0 + 1, W1), life("bad", T0, T0 + 1, W1)[-1]
    folder = write(tmp_path / "csv", {"scheduler_transition": [bad | {column: value}, *kept]})
    done = importing(folder)
    run = open_run(done.path)
    fine = column == "begins" and not value
    assert done.set_aside == (0 if fine else 1)
    assert run.task("kept").state == "memory"
    if not fine:
        reason = "is empty" if not value else "is no time"
        assert rows(run, "select line, reason from set_aside") == [
            {"line": 2, "reason": f"{column} {reason}"}
        ]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "[('x', 0)]",
        "['x']",
        "{}",
        "{'x'}",
        "{'x': 'y'}",
        "{'x': -1}",
        "{'x': 1.5}",
        "nan",
        "garbage",
        "{'x': 1",
        "{'x': " + "9" * 5000 + "}",
        "{'\\ud800': 1}",
        "{" * 1000,
        "{x: 1 for x in 'ab'}",
    ],
    ids=lambda cell: cell[:12],
)
def test_keys_cells_that_are_none(cell: str, tmp_path: Path) -> None:
    """A keys cell that is a list, blank or garbage sets its row aside, and only that."""
    folder = write(
        tmp_path / "csv",
        {
            "worker_transfer": [received(keys=cell), received()],
            "graph": [
                {"keys": "set()", "dependencies": cell if cell != "{}" else "{'a'}", "time": T0},
                {"keys": "set()", "dependencies": "{'a': set()}", "time": T0},
            ],
        },
    )
    done = importing(folder)
    run = open_run(done.path)
    assert done.set_aside == 2
    assert rows(run, "select file, line from set_aside order by file") == [
        {"file": "graph.csv", "line": 2},
        {"file": "worker_transfer.csv", "line": 2},
    ]
    assert one(run, "select count(*) from transfers") == 1
    assert rows(run, "select key from graph_tasks") == [{"key": "a"}]


def test_a_cell_that_is_code_is_not_run(tmp_path: Path) -> None:
    """An expression in any cell that once was evaluated makes no file, and is set aside."""
    evil = f"{{open({str(tmp_path / 'made')!r}, 'w'): 1}}"
    evil_set = f"{{open({str(tmp_path / 'made')!r}, 'w')}}"
    folder = write(
        tmp_path / "csv",
        {
            "scheduler_transition": [scheduler(evil, "released", "waiting", T0)],
            "worker_transfer": [received(keys=evil)],
            "graph": [
                {"keys": evil_set, "dependencies": "{'a': set()}", "time": T0},
                {"keys": "{'a'}", "dependencies": f"{{'a': {evil_set}}}", "time": T0},
            ],
        },
    )
    consumer(folder, damaged(received(keys=evil)))
    done = importing(folder)
    assert (done.set_aside, done.lost) == (3, 1)
    run = open_run(done.path)
    assert call("story", run.path, evil).exit_code == 0
    assert call("show", run.path).exit_code == 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\n\n"),
        lambda data: data + b"\n\n",
    ],
    ids=["BOM", "CRLF", "empty lines", "empty lines at the end"],
)
def test_other_ways_to_write_a_file_change_nothing(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A byte order mark, CRLF and empty lines are no part of the rows."""
    usual = imported(write(tmp_path / "usual", files()))
    other = write(tmp_path / "other", files())
    for path in other.iterdir():
        path.write_bytes(change(path.read_bytes()))
    run = imported(other)
    assert run.check().ok
    for table in ("tasks", "attempts", "transfers", "graph_edges", "clients"):
        columns = usual[table].to_arrow().column_names
        columns = [c for c in columns if c not in {"line", "seq", "submission"}]
        left, right = (r[table].to_arrow().select(columns).to_pylist() for r in (usual, run))
        assert left == right
        assert left


def test_worker_names_may_be_anything(tmp_path: Path) -> None:
    """called_from is an int or any text elsewhere: a worker all the same, with its tasks."""
    names = [
        "0",
        "7",
        "my worker",
        "SLURMCluster-1",
        'é, "q"',
        "tcp://[::1]:80",
        "tcp://[",
        "ucx://h",
    ]
    run = made_of(
        tmp_path,
        worker_transition=[
            row
            for i, name in enumerate(names)
            for row in executed(f"k-{i}", T0 + i, T0 + i + 1, name)
        ],
    )
    found = rows(run, "select worker, compute_seconds from attempts order by start")
    assert [row["worker"] for row in found] == names
    for command in ("show", "map", "check"):
        assert call(command, run.path).exit_code in {0, 1}


# Nothing half done.


def test_a_folder_without_such_files(tmp_path: Path) -> None:
    """A folder with none of the files is an error that says which were expected."""
    put(tmp_path / "csv" / "other.csv", "a,b\n1,2\n")
    consumer(tmp_path / "csv")
    done = call("import", tmp_path / "csv", "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert "none of the coupler's files" in done.stderr
    assert "scheduler_transition.csv" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["nowhere", "csv/worker.csv"])
def test_what_is_no_folder(name: str, folder: Path, tmp_path: Path) -> None:
    """A file, or nothing, instead of a folder is a mistake of the call, of all folders at once."""
    done = call("import", folder, tmp_path / name, "-o", tmp_path / "runs")
    assert done.exit_code == 2
    assert str(tmp_path / name) in done.stderr
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError):
        find_files(tmp_path / name)


@pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe", "loop"])
def test_a_file_that_cannot_be_read(kind: str, folder: Path, tmp_path: Path) -> None:
    """Something else under the name of a file is an error that names it; no run is made."""
    path = folder / "worker.csv"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "loop" else tmp_path / "nowhere")
    done = call("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.output
    assert not list(tmp_path.glob("runs/*"))
    assert not list(tmp_path.glob("runs/.*"))


def test_a_folder_of_runs_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    """Where the run cannot be made, that is said in two lines, and the files are untouched."""
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    put(tmp_path / "file", "")
    for runs in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        done = call("import", folder, "-o", runs)
        assert done.exit_code == 1
        assert f"{runs} cannot be written" in done.stderr
        assert "Give another folder with -o" in done.stderr
        assert len(done.stderr.splitlines()) == 2
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A folder whose import takes long: all its times are texts, in one file of many rows."""
    text_rows = text("worker_transition", executed("k", T0, T0 + 1, W1), new=True).split("\n")
    iso = "\n".join([*[row for row in text_rows[1:] if "+00:00" in row] * 500_000, ""])
    put(tmp_path / "csv" / "worker_transition.csv", text_rows[0] + "\n" + iso)
    return tmp_path / "csv"


def stopped(endless: Path, runs: Path, number: int) -> tuple[int, str]:
    """Import in a process, send it a signal once its folder is there, and return how it ended."""
    runs.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dask_strata", "import", str(endless), "-o", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: list(runs.glob(".import-*/parquet")), what="the folder of the import")
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_an_interrupt_leaves_nothing(endless: Path, tmp_path: Path) -> None:
    """Ctrl-C during an import leaves no folder behind, and no traceback on the screen."""
    status, output = stopped(endless, tmp_path / "runs", signal.SIGINT)
    assert status == 130
    assert "Traceback" not in output
    assert not list((tmp_path / "runs").iterdir())


def test_a_kill_leaves_nothing_that_looks_like_a_run(
    endless: Path, tmp_path: Path, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """After kill -9 there is no run in the list; importing again works."""
    status, _ = stopped(endless, tmp_path / "runs", signal.SIGKILL)
    assert status == -signal.SIGKILL
    left = [p.name for p in (tmp_path / "runs").iterdir()]
    assert [name for name in left if name.startswith(".import-")] == left != []
    assert not runs_in(tmp_path / "runs")
    listed = strata("list", tmp_path / "runs")
    assert (listed.returncode, listed.stdout) == (1, "")
    assert "There is no run in" in listed.stderr
    write(tmp_path / "small", {"worker": [added(W1, T0)]})
    strata("import", tmp_path / "small", "-o", tmp_path / "runs", check=True)
    assert len(runs_in(tmp_path / "runs")) == 1


# Any tables.

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=8
) | st.sampled_from(["NA", "null", "nan", "1", "a,b", '"', "'", "\n", "{'a': 1}", "#", "None"])
KEYS = TEXTS | st.tuples(TEXTS, st.integers(0, 9)) | st.tuples(TEXTS, st.integers(), TEXTS)
TIMES = st.integers(0, 4 * 10**15).map(lambda us: us / 10**6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
#: What is larger cannot be reckoned with: it is null, and told of (`tests/fuzz/test_bombs.py`).
SECONDS = st.floats(-float(COUNT), float(COUNT))
INTS = st.integers(0, 2**53)
STATES = st.sampled_from([*SCHEDULER_STATES, *WORKER_STATES, "teleported"]) | TEXTS
ADDRESSES = st.sampled_from([W1, W2, "0", "my worker"]) | TEXTS


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return these values, or none."""
    return st.none() | values


def row_of(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[coupler.Row]:
    """Return rows with these columns."""
    return st.fixed_dictionaries(columns)


EVENTS = {
    "scheduler_transition": row_of(
        key=KEYS,
        thread=maybe(INTS),
        worker=maybe(ADDRESSES),
        prefix=maybe(TEXTS),
        group=maybe(TEXTS),
        start=STATES,
        finish=STATES,
        stimulus_id=maybe(TEXTS),
        called_from=maybe(ADDRESSES),
        begins=maybe(TIMES),
        ends=maybe(TIMES),
        duration=maybe(SECONDS),
        size=maybe(INTS),
        time=TIMES,
    ),
    "worker_transition": row_of(
        key=KEYS, start=STATES, finish=STATES, called_from=maybe(ADDRESSES), time=TIMES
    ),
    "worker_transfer": row_of(
        start=TIMES,
        stop=TIMES,
        middle=maybe(TIMES),
        duration=maybe(SECONDS),
        keys=st.dictionaries(KEYS, INTS, min_size=1, max_size=3),
        total=maybe(INTS),
        bandwidth=maybe(FLOATS),
        who=maybe(ADDRESSES),
        type=st.sampled_from(["incoming_transfer", "outgoing_transfer"]),
        called_from=maybe(ADDRESSES),
        time=TIMES,
        compressed=maybe(INTS),
    ),
    "worker": row_of(
        worker=maybe(ADDRESSES),
        action=st.sampled_from(["add", "remove"]),
        stimulus_id=maybe(TEXTS),
        time=TIMES,
    ),
    "client": row_of(client=TEXTS, action=st.sampled_from(["add", "remove"]), time=TIMES),
    "graph": row_of(
        client=maybe(TEXTS),
        keys=st.frozensets(KEYS, max_size=3).map(set),
        dependencies=st.dictionaries(KEYS, st.frozensets(KEYS, max_size=2).map(set), max_size=3),
        time=TIMES,
    ),
}


def numbered(role: str, given_rows: list[coupler.Row]) -> Iterator[tuple[int, coupler.Row]]:
    """Yield the rows of a file, each with the line that it begins at."""
    reader = csv.reader(io.StringIO(text(role, given_rows), newline=""))
    next(reader)
    for row in given_rows:
        yield reader.line_num + 1, row
        next(reader)


def values(run: Run, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of a recorded table in the order of the file, times in nanoseconds."""
    found = run[table].to_arrow()
    if "line" in found.column_names:
        found = found.sort_by("line")
    plain = [
        found[c].cast(pa.int64()) if pa.types.is_timestamp(found[c].type) else found[c]
        for c in columns
    ]
    return list(zip(*(c.to_pylist() for c in plain), strict=True))


def ns(value: float | None) -> int | None:
    """Return a time as it is to come back."""
    return None if value is None else coupler.nanoseconds(value)


@given(
    events=st.fixed_dictionaries(
        {}, optional={role: st.lists(rows_, max_size=4) for role, rows_ in EVENTS.items()}
    ).filter(bool),
    copies=st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=3),
    new=st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_tables_of_events_come_back(
    events: dict[str, list[coupler.Row]],
    copies: list[tuple[int, float]],
    new: bool,  # noqa: FBT001
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Events written as the coupler does are read back equal: values, keys, times, lines."""
    transfers = events.get("worker_transfer", [])
    transfers += [transfers[i] | {"time": time} for i, time in copies if i < len(transfers)]
    folder = write(tmp_path_factory.mktemp("any") / "csv", events, new=new)
    done = importing(folder)
    run = open_run(done.path, align=False)
    assert done.set_aside == 0
    assert done.rows == sum(map(len, events.values()))
    assert_scheduler_rows(run, events.get("scheduler_transition", []))
    assert_other_rows(run, events)
    assert_transfers(run, transfers)
    assert_graphs(run, events.get("graph", []))
    aligned = open_run(done.path)
    keys = values(aligned, "tasks", "key", "key_type", "life")
    assert len(keys) == len(set(keys))
    assert aligned.check().findings


def assert_scheduler_rows(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that the scheduler's rows are on record."""
    columns = ("line", "key", "start_state", "finish_state", "thread", "worker", "prefix", "group")
    columns += ("stimulus_id", "nbytes", "time")
    assert values(run, "scheduler_transitions", *columns) == [
        (
            *(line, str(r["key"]), r["start"], r["finish"], r["thread"], r["worker"]),
            *(r["prefix"], r["group"], r["stimulus_id"], r["size"], ns(r["time"])),
        )
        for line, r in numbered("scheduler_transition", given_rows)
    ]
    table = run.scheduler_transitions.to_arrow().sort_by("line")
    intervals = pc.list_flatten(table["startstops"])
    told = [r for r in given_rows if r["begins"] is not None and r["ends"] is not None]
    for name, column in (("start", "begins"), ("stop", "ends")):
        times = pc.struct_field(intervals, name).cast(pa.int64()).to_pylist()
        assert times == [ns(r[column]) for r in told]
    assert [p for (p,) in values(run, "scheduler_transitions", "process")] == [
        "scheduler" if r["called_from"] is None else f"scheduler-{r['called_from']}"
        for r in given_rows
    ]


def assert_other_rows(run: Run, events: dict[str, list[coupler.Row]]) -> None:
    """Assert that the rows of workers and clients are on record."""
    columns = ("line", "key", "start_state", "finish_state", "worker", "time")
    assert values(run, "worker_transitions", *columns) == [
        (line, str(r["key"]), r["start"], r["finish"], r["called_from"], ns(r["time"]))
        for line, r in numbered("worker_transition", events.get("worker_transition", []))
    ]
    assert values(run, "worker_events", "line", "worker", "action", "stimulus_id", "time") == [
        (line, r["worker"], r["action"], r["stimulus_id"], ns(r["time"]))
        for line, r in numbered("worker", events.get("worker", []))
    ]
    names = {"add": "connect", "remove": "disconnect"}
    assert values(run, "clients", "line", "client", "action", "time") == [
        (line, r["client"], names[r["action"]], ns(r["time"]))
        for line, r in numbered("client", events.get("client", []))
    ]


def without_sign(value: Any) -> Any:
    """Return a value; of the two zeros always the same."""
    return 0.0 if isinstance(value, (int, float)) and value == 0 else value


def assert_transfers(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that distinct transfers are on record, and the others apart."""
    first: dict[str, tuple[int, coupler.Row]] = {}
    again = []
    for line, row in numbered("worker_transfer", given_rows):
        identity = repr([(k, without_sign(row[k])) for k in sorted(row) if k != "time"])
        if identity in first:
            again.append((line, first[identity][0], ns(row["time"])))
        first.setdefault(identity, (line, row))
    columns = ("line", "end", "start", "stop", "middle", "duration_seconds", "total_bytes")
    columns += ("bandwidth", "peer", "worker", "time", "compressed_bytes", "n_keys")
    assert values(run, "transfer_ends", *columns) == [
        (
            *(line, r["type"].partition("_")[0], ns(r["start"]), ns(r["stop"]), ns(r["middle"])),
            *(r["duration"], r["total"], r["bandwidth"], r["who"], r["called_from"]),
            *(ns(r["time"]), r["compressed"], len({str(key) for key in r["keys"]})),
        )
        for line, r in first.values()
    ]
    number = {n: line for line, n in values(run, "transfer_ends", "line", "number")}
    found = values(run, "transfer_resends", "line", "number", "time")
    assert [(line, number[n], time) for line, n, time in found] == again
    keys = values(run, "transfer_end_keys", "number", "key", "nbytes")
    assert sorted((number[n], key, size) for n, key, size in keys) == sorted(
        (line, key, size)
        for line, r in first.values()
        for key, size in {str(key): size for key, size in r["keys"].items()}.items()
    )


def assert_graphs(run: Run, given_rows: list[coupler.Row]) -> None:
    """Assert that graphs are on record."""
    graphs = list(numbered("graph", given_rows))
    assert values(run, "submissions", "line", "submission", "client", "time") == [
        (line, f"graph-{line}", r["client"], ns(r["time"])) for line, r in graphs
    ]
    needs = {line: {str(k): v for k, v in r["dependencies"].items()} for line, r in graphs}
    assert sorted(values(run, "graph_tasks", "submission", "key", "requested")) == sorted(
        (f"graph-{line}", key, key in {str(k) for k in r["keys"]})
        for line, r in graphs
        for key in needs[line]
    )
    assert sorted(values(run, "graph_edges", "submission", "key", "dependency")) == sorted(
        (f"graph-{line}", key, needed)
        for line, _ in graphs
        for key, found in needs[line].items()
        for needed in {str(k) for k in found}
    )


# What a first reader with fresh eyes found.


def test_two_stray_quotes_cost_two_rows(tmp_path: Path) -> None:
    """Quotes that seem to enclose many rows do not swallow these."""
    lines = [f"{i},k-{i},released,waiting,{W1},{T0 + i}" for i in range(30)]
    lines[2], lines[15] = f'"{lines[2]}', f'"{lines[15]}'
    folder = tmp_path / "csv"
    folder.mkdir()
    header = ",key,start,finish,called_from,time"
    (folder / "worker_transition.csv").write_text("\n".join([header, *lines, ""]), "utf-8")
    done = importing(folder)
    assert (done.rows, done.set_aside) == (30, 2)
    found = rows(open_run(done.path), "select line from set_aside order by line")
    assert found == [{"line": 4}, {"line": 17}]


def test_many_keys_a_transfer_take_memory_for_keys_only(tmp_path: Path) -> None:
    """A row's cell is not copied for each of its keys: 60 MB of cells would be 24 GB."""
    sizes = {("x" * 60, i): 8 for i in range(400)}
    made = [transfer(sizes, T0 + i, T0 + i + 0.5) for i in range(2000)]
    run = imported(write(tmp_path / "csv", {"worker_transfer": made}))
    assert len(run["transfer_end_keys"]) == 800_000


def test_names_of_workers_become_addresses_where_the_other_end_tells(tmp_path: Path) -> None:
    """Workers that report by name are the workers that others know by address."""
    made = files()
    for role in ("worker_transition", "worker_transfer"):
        for row in made[role]:
            row["called_from"] = {W1: 0, W2: "two"}[row["called_from"]]
    named = imported(write(tmp_path / "named" / "csv", made))
    plain = imported(write(tmp_path / "plain" / "csv", files()))
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


def test_names_that_nobody_can_resolve_are_told(tmp_path: Path) -> None:
    """Without an address for a name, no worker is called silent."""
    made = files()
    del made["worker_transfer"]
    for row in made["worker_transition"]:
        row["called_from"] = {W1: 0, W2: 1}[row["called_from"]]
    texts = [f.text for f in imported(write(tmp_path / "csv", made)).check().findings]
    assert any("told by name" in text for text in texts)
    assert not any("silent" in text for text in texts)


def test_keys_of_numpy_are_taken_as_they_are_shown(tmp_path: Path) -> None:
    """A key with a number of NumPy's in it is one task in transfers and elsewhere."""
    shown = "('t', np.int64(0))"
    made = {
        "scheduler_transition": life(shown, T0 + 1, T0 + 2, W1),
        "worker_transfer": [transfer({}, T0 + 3, T0 + 4, keys=f"{{{shown}: 8}}", total=8)],
        "graph": [
            {
                "client": "c",
                "keys": f"{{{shown}}}",
                "dependencies": f"{{{shown}: set()}}",
                "time": T0,
            }
        ],
    }
    run = imported(write(tmp_path / "csv", made))
    assert rows(run, "select key, n_attempts from tasks") == [{"key": shown, "n_attempts": 1}]
    assert rows(run, "select key from transfer_keys") == [{"key": shown}]


def test_ends_that_are_far_apart_are_two_transfers(tmp_path: Path) -> None:
    """Two ends are one transfer if they are near each other in time, nearest first."""

    def ends(at: list[float], **more: Any) -> list[coupler.Row]:
        return [transfer({X: 100}, T0 + t, T0 + t + 0.5, **more) for t in at]

    out = {"type": "outgoing_transfer", "called_from": W2, "who": W1}
    made = ends([0, 100, 200]) + ends([100.25, 200.25, 5000], **out)
    run = imported(write(tmp_path / "csv", {"worker_transfer": made}))
    seen = rows(run, "select epoch(start)::bigint as t, seen_by from transfers order by start")
    assert [(row["t"] - int(T0), row["seen_by"]) for row in seen] == [
        (0, "destination"),
        (100, "both"),
        (200, "both"),
        (5000, "source"),
    ]


def test_workers_that_nobody_declared_are_workers(tmp_path: Path) -> None:
    """Who ran a task is a worker, with its attempts, without worker.csv too."""
    run = imported(
        write(tmp_path / "csv", {"scheduler_transition": life(Y, T0 + 1, T0 + 1.25, W1)})
    )
    found = rows(run, "select worker, host, n_attempts, compute_seconds from workers")
    assert found == [{"worker": W1, "host": "10.0.0.2", "n_attempts": 1, "compute_seconds": 0.25}]
    assert run.check().findings


def test_a_file_of_which_nothing_is_read_is_no_success(tmp_path: Path) -> None:
    """A file whose lines end in a bare CR has no rows for us: exit status 1, and it is named."""
    folder = write(tmp_path / "csv", files())
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r").replace(b"\r\r", b"\r"))
    done = call("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert "worker_transition.csv" in done.stderr


def test_times_that_cannot_be_are_told(tmp_path: Path) -> None:
    """A row years away from all others, and an end before its begin, are kept and told."""
    made = files()
    made["worker_transition"].append(worker(Y, "memory", "released", 1_000_000_000.0, W1))
    made["worker_transfer"].append(received(start=T0 + 9, stop=T0 + 8))
    texts = [f.text for f in imported(write(tmp_path / "csv", made)).check().findings]
    assert any("more than a month away" in text for text in texts)
    assert any("an end before its begin" in text for text in texts)

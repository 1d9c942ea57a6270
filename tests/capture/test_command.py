"""``dask-capture``, the older tool's command, on files of the coupler and on runs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from dask_strata.capture import StimulusType
from dask_strata.capture.command import command
from tests.support import coupler_files as coupler
from tests.support.shared_fixtures import FIXTURES, shared_fixture
from tests.support.synthetic import small_run

SCHEDULER = """\
,key,thread,worker,prefix,group,start,finish,stimulus_id,called_from,begins,ends,duration,size,time
0,inc-1,,,inc,inc,released,waiting,u-1,tcp://s:1,,,,,1713553298.5
1,inc-1,,,inc,inc,waiting,processing,u-1,tcp://s:1,,,,,1713553299.0000005
2,inc-1,9,tcp://w:1,inc,inc,processing,memory,t-1,tcp://s:1,1713553299.1,1713553299.2,0.1,28,1713553299.25
"""
WORKER = """\
,key,start,finish,called_from,time
0,inc-1,ready,teleported,tcp://w:1,1713553299.1
"""
TRANSFER = """\
,start,stop,middle,duration,keys,total,bandwidth,who,type,called_from,time,compressed
0,1713553300.0,1713553300.5,1713553300.25,0.5,{'inc-1': 28},28,56.0,tcp://w:2,outgoing_transfer,tcp://w:1,1713553300.6,12.0
1,1713553300.0,1713553300.5,1713553300.25,0.5,{'inc-1': 28},28,56.0,tcp://w:2,outgoing_transfer,tcp://w:1,1713553301.6,12.0
"""
FILES = {
    "scheduler_transition.csv": SCHEDULER,
    "worker_transition.csv": WORKER,
    "worker_transfer.csv": TRANSFER,
    "worker.csv": ",worker,action,stimulus_id,time\n0,tcp://w:1,add,,1713553296.0\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the coupler's files."""
    folder = tmp_path / "csv"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


def call(*arguments: object) -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(command, [str(a) for a in arguments])


def test_its_default_run_is_the_older_one(here: Path) -> None:
    """Without arguments the files in the current folder become compiled_tasks.txt."""
    done = call()
    assert (done.exit_code, done.stdout) == (0, "")
    text = (here / "compiled_tasks.txt").read_text()
    assert text.startswith(
        "Task object for task inc-1:\n"
        "\tEvent objects:\n"
        "\t\tScheduler Event for task inc-1\n"
        "\t\t\tEvent time: 2024-04-19 19:01:38.500000+00:00\tBegin time: None\tEnd time: None\n"
        "\t\t\tStart: released\t\t\t\tFinish: waiting\n"
        "\t\t\tSource: \n"
        "\t\t\t\ttcp://s:1\n"
    )
    assert text.endswith(
        "\tStart time: 2024-04-19 19:01:38.500000+00:00"
        "\tEnd time: 2024-04-19 19:01:40.600000+00:00\n"
        "\tWorkers: tcp://w:1, tcp://w:2\n"
        "\tAttempts: 1\tBytes in: 0\tBytes out: 28\n"
    )
    assert "compiled_tasks.txt: 1 task, 5 events" in done.stderr
    assert "1 resent transfer left out: duplicates" in done.stderr
    assert "teleported (1)" in done.stderr
    assert sorted(p.name for p in here.iterdir()) == sorted([*FILES, "compiled_tasks.txt"])


def test_the_older_flags_name_the_files(here: Path, tmp_path: Path) -> None:
    """Flags name files in any folder; files without a flag are read from the current folder."""
    for old, new in (("scheduler_transition.csv", "s.csv"), ("worker_transfer.csv", "x.csv")):
        (here / old).rename(tmp_path / new)
    done = call(
        *("-s", tmp_path / "s.csv", "--worker_xfer_file", tmp_path / "x.csv"),
        *("-f", "json", "--output_file", tmp_path / "out"),
    )
    assert done.exit_code == 0, done.stderr
    (task,) = json.loads((tmp_path / "out").read_text())
    assert len(task["events"]) == 5


def test_an_absent_default_file_is_reported(here: Path) -> None:
    """Any of the files is enough, and the missing files are named."""
    for name in FILES:
        if name != "worker_transition.csv":
            (here / name).unlink()
    done = call()
    assert done.exit_code == 0
    left_out = "Its events are left out."
    assert f"No such file: scheduler_transition.csv. {left_out}" in done.stderr
    assert f"No such file: workers.csv or worker.csv. {left_out}" in done.stderr
    assert "Worker Event for task inc-1" in (here / "compiled_tasks.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-s", "nowhere.csv"], 2, "No such file: nowhere.csv"),
        (["-f", "pickle"], 2, "pickle is not written"),
        (["-f", "yaml"], 2, "yaml"),
        (["--tz", "Europe/Pariss"], 2, "Did you mean Europe/Paris"),
        (["--tz", "../etc/passwd"], 2, "No such time zone: ../etc/passwd"),
        (["nowhere"], 2, "nowhere does not exist"),
        (["-s", "worker.csv", "."], 2, "A folder and files"),
        (["-o", "worker.csv"], 2, "one of the input files"),
        (["-o", "."], 2, "is not a file"),
        (["-o", "no/such/folder.txt"], 2, "no such folder: no/such"),
        (["-f", "df_csv", "-o", "worker.csv", "."], 2, "is not a folder"),
    ],
)
def test_usage_errors_are_one_sentence(arguments: list[str], status: int, message: str) -> None:
    """Each mistake has its exit status and a sentence, and creates no file."""
    before = sorted(Path.cwd().rglob("*"))
    done = call(*arguments)
    assert done.exit_code == status, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert sorted(Path.cwd().rglob("*")) == before


def test_no_file_at_all_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any of the files, the error lists the expected names."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = call()
    assert done.exit_code == 1
    assert "has none of the coupler's files: scheduler_transition.csv" in done.stderr
    assert not list(Path.cwd().iterdir())


def test_rows_that_cannot_be_understood_are_set_aside(here: Path) -> None:
    """The other rows are written with exit status 1; --strict writes nothing."""
    (here / "worker_transition.csv").write_text(WORKER + "1,inc-1,ready,memory,tcp://w:1,soon\n")
    done = call()
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("Incomplete: 1 row could not be understood")
    assert "Task object for task inc-1" in (here / "compiled_tasks.txt").read_text()
    beside = here / "compiled_tasks.txt.aside"
    assert "soon" in (beside / "worker_transition.csv").read_text()
    with (beside / "reasons.csv").open(newline="") as file:
        (reason,) = csv.DictReader(file)
    assert (reason["file"], reason["line"]) == ("worker_transition.csv", "3")
    (here / "compiled_tasks.txt").write_text("before")
    done = call("--strict")
    assert done.exit_code == 1
    assert (here / "compiled_tasks.txt").read_text() == "before"


def test_cells_are_never_run(here: Path, tmp_path: Path) -> None:
    """A cell that is an expression is set aside; it is not evaluated."""
    cell = f"{{open('{tmp_path / 'run'}', 'w'): 1}}"
    text = TRANSFER.splitlines()[1].replace("{'inc-1': 28}", f'"{cell}"')
    (here / "worker_transfer.csv").write_text(TRANSFER + text + "\n")
    done = call()
    assert (done.exit_code, "Incomplete: 1 row" in done.stderr) == (1, True)
    assert "open(" in (here / "compiled_tasks.txt.aside" / "worker_transfer.csv").read_text()
    assert not (tmp_path / "run").exists()


def test_frames_of_a_folder_have_the_older_names(here: Path, tmp_path: Path) -> None:
    """`-f df_csv -o OUT DIR` writes three files, with the older columns and the event time."""
    out = tmp_path / "new" / "out"
    done = call("-f", "df_csv", "-o", out, here)
    assert done.exit_code == 0, done.stderr
    names = ["SCHEDULER_df.csv", "WORKER_TRANSFER_df.csv", "WORKER_df.csv"]
    assert sorted(p.name for p in out.iterdir()) == names
    rows = list(csv.DictReader((out / "SCHEDULER_df.csv").open(newline="")))
    assert rows[2]["finish"] == "TaskState.MEMORY"
    assert rows[2]["t_begins"] == "2024-04-19 19:01:39.100000+00:00"
    assert rows[0]["t_event"] == "2024-04-19 19:01:38.500000+00:00"
    (transfer,) = csv.DictReader((out / "WORKER_TRANSFER_df.csv").open(newline=""))
    assert transfer["transfer_type"] == "TransferTypeEnum.OUTGOING"
    assert transfer["t_event"] == "2024-04-19 19:01:40.600000+00:00"
    (worker,) = csv.DictReader((out / "WORKER_df.csv").open(newline=""))
    assert worker["finish"] == "teleported"


def test_the_machines_time_zone_has_no_effect(here: Path, monkeypatch) -> None:
    """TZ does not change the output; --tz does."""
    call()
    first = (here / "compiled_tasks.txt").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "dask_strata.capture"],
        env={"TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert (here / "compiled_tasks.txt").read_bytes() == first
    assert call("--tz", "America/New_York").exit_code == 0
    assert "2024-04-19 15:01:38.500000-04:00" in (here / "compiled_tasks.txt").read_text()


def test_a_run_is_accepted_instead_of_files(here: Path, tmp_path: Path) -> None:
    """The folder of a recorded run yields the same kind of output."""
    done = call("-f", "parquet", "-o", tmp_path / "events.parquet", small_run(tmp_path / "r"))
    assert done.exit_code == 0, done.stderr
    assert pq.read_table(tmp_path / "events.parquet").num_rows == 6


def older(name: str) -> list[dict[str, str]]:
    """Return the rows of the older tool's own output for its own test input."""
    path = shared_fixture("wfmeta_dask_example_output") / f"{name}_df.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_older_tools_example_has_the_same_rows(tmp_path: Path) -> None:
    """On the older tool's input the rows are equal, except for duplicates and the time zone."""
    done = call("-f", "df_csv", "-o", tmp_path / "o", shared_fixture("wfmeta_dask_test_data"))
    assert done.exit_code == 0, done.stderr

    def written(name: str) -> list[dict[str, str]]:
        with (tmp_path / "o" / f"{name}_df.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    scheduler = older("SCHEDULER")
    assert [{c: row[c] for c in scheduler[0]} for row in written("SCHEDULER")] == scheduler
    same = ("start", "finish", "key", "ip")
    assert sorted([row[c] for c in same] for row in written("WORKER")) == sorted(
        [row[c] for c in same] for row in older("WORKER")
    )
    same = ("key", "total", "requestor", "fulfiller", "transfer_type")
    expected = {(moment(r["start"], 4), *(r[c] for c in same)) for r in older("WORKER_TRANSFER")}
    found = [(moment(r["start"], 0), *(r[c] for c in same)) for r in written("WORKER_TRANSFER")]
    assert len(expected) == len(found) == 56
    near = {(t + timedelta(microseconds=d), *rest) for t, *rest in found for d in (-1, 0, 1)}
    assert expected <= near


def moment(text: str, hours: int) -> datetime:
    """Return a time of the older output, which was written so many hours west of UTC."""
    time = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return time + timedelta(hours=hours)


@pytest.mark.parametrize("form", ["csv", "df_csv"])
def test_no_cell_is_a_formula(form: str, tmp_path: Path) -> None:
    """A key that a spreadsheet would run has an apostrophe in front, in both kinds of CSV."""
    rows = coupler.life("=cmd|' /C calc'!A0", coupler.T0, coupler.T0 + 1, coupler.W1)
    folder = coupler.write(tmp_path / "in", {"scheduler_transition": rows})
    done = call("-f", form, "-o", tmp_path / "out", folder)
    assert done.exit_code == 0, done.stderr
    out = tmp_path / "out"
    text = (out / "SCHEDULER_df.csv" if out.is_dir() else out).read_text()
    assert text.count("calc") == text.count("'=cmd|' /C calc'!A0") > 0


@pytest.mark.parametrize(
    "name",
    [
        "PMDA/D2024-04-19_19:01:00_R1_W8",
        "PMDA/D2024-04-19_19:01:02_R6_W8",
        "ImageProcessing/D2024-04-18_15:54:03_R7_W8",
        "XGBoost/D2024-04-19_17:14:53_R20_W8",
    ],
)
def test_real_files_become_one_block_a_task(name: str, tmp_path: Path) -> None:
    """All rows but resends are in the text, under one block a task, in time order."""
    folder = shared_fixture(name)
    expected = json.loads((FIXTURES / "expected.json").read_text())[name]
    done = call("-o", tmp_path / "o.txt", folder)
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "o.txt").read_text()
    names = re.findall(r"^Task object for task (.*):$", text, re.MULTILINE)
    assert len(names) == len(set(names))
    rows = expected["rows"]
    assert text.count("Scheduler Event for") == rows.get("scheduler_transition", 0)
    assert text.count("Worker Event for") == rows.get("worker_transition", 0)
    transfers = expected.get("transfer", {})
    assert text.count("Worker Transfer Event") == transfers.get("key_rows_distinct", 0)
    for block in text.split("Task object for task ")[1:]:
        times = re.findall(r"Event time: (\S+ \S+)", block)
        assert times == sorted(times)
    call("-f", "df_csv", "-o", tmp_path / "o", folder)
    with (tmp_path / "o" / "WORKER_TRANSFER_df.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    sums = {
        kind: sum(int(r["total"]) for r in found if r["transfer_type"].endswith(kind.upper()))
        for kind in ("incoming", "outgoing")
    }
    assert len(found) == transfers["distinct"]
    assert sums == {kind: transfers[f"bytes_{kind}_distinct"] for kind in sums}
    with (tmp_path / "o" / "SCHEDULER_df.csv").open(newline="") as file:
        kinds = {
            (r["stimulus_id"].rpartition("-")[0], r["stimulus_type"]) for r in csv.DictReader(file)
        }
    assert kinds == {(kind, f"StimulusType.{StimulusType.of(kind).name}") for kind, _ in kinds}

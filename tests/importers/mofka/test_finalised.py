"""Imported runs are finalised: every table and answer is as before, and nothing is lost."""

from __future__ import annotations

import cProfile
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import pytest

from dask_strata import open_run
from dask_strata.analysis.overview.stored import store_summary
from dask_strata.errors import StrataError
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.run.derived import STORED
from dask_strata.run.finalise import finalise
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.finalise import time_order
from tests.conftest import runs_in
from tests.support.coupler_files import T0, W2, life, write
from tests.support.coupler_runs import COMMANDS, Y, example_files, import_folder, invoke, sent
from tests.support.finalised import differences, plain
from tests.support.shared_fixtures import shared_fixture

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.long


@pytest.fixture
def imported(folder: Path) -> Path:
    """An imported run as the importer alone leaves it: one worker has another clock."""
    return import_folder(folder).path


def copied(run: Path) -> Path:
    """Return a copy of a run."""
    return Path(shutil.copytree(run, run.parent / "copy"))


@pytest.mark.parametrize(
    ("keys_per_bucket", "align"),
    [(1 << 18, True), (1, True), (1, False)],
)
def test_finalised_tables_are_equal(imported: Path, keys_per_bucket: int, *, align: bool) -> None:
    """Row for row; times of workers are shifted where they were before, or not at all."""
    run = copied(imported)
    done = finalise(run, keys_per_bucket=keys_per_bucket)
    assert done.problem is None
    now, then = open_run(run, align=align), open_run(imported, align=align)
    if align:
        assert now.clock_offsets_ns
        assert differences(run, imported) == []
    for name in TABLES:
        assert plain(now[name].to_arrow()) == plain(then[name].to_arrow()), name
    with dask.config.set(scheduler="synchronous"):
        for name in ("transfer_ends", "worker_transitions", "scheduler_transitions"):
            frame = now[name].to_dask()[["time", "process"]].compute()
            expected = then[name].to_pandas()[["time", "process"]]
            assert by_value(frame) == by_value(expected), name
    assert now.check().findings == then.check().findings


def by_value(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    """Return the rows in an order of their own."""
    return sorted(frame.astype(str).itertuples(index=False, name=None))


@pytest.mark.parametrize("fixture", ["PMDA/D2024-04-19_19:01:00_R1_W8", "wfmeta_dask_test_data"])
def test_finalised_tables_of_real_files_are_equal(fixture: str, tmp_path: Path) -> None:
    """Small folders of the coupler's files, in small buckets."""
    assert_equal(shared_fixture(fixture), tmp_path, 40)


@pytest.mark.release
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fixture", "keys_per_bucket"),
    [
        ("PMDA/D2024-04-19_19:01:02_R6_W8", 1 << 18),
        ("XGBoost/D2024-04-19_17:14:53_R20_W8", 100),
        ("ImageProcessing/D2024-04-18_15:54:03_R7_W8", 1000),
    ],
)
def test_finalised_tables_of_larger_files_are_equal(
    fixture: str, keys_per_bucket: int, tmp_path: Path
) -> None:
    """Larger folders of the coupler's files, in several buckets."""
    assert_equal(shared_fixture(fixture), tmp_path, keys_per_bucket)


def assert_equal(files: Path, tmp_path: Path, keys_per_bucket: int) -> None:
    """Assert that tables and findings of a folder's run do not change when it is finalised."""
    then = import_files(find_files(files), tmp_path / "runs", name="real").path
    now = copied(then)
    assert finalise(now, keys_per_bucket=keys_per_bucket).problem is None
    assert differences(now, then) == []
    assert open_run(now).check().findings == open_run(then).check().findings


@pytest.mark.parametrize("keys_per_bucket", [1 << 18, 3])
def test_transitions_are_stored_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_per_bucket: int
) -> None:
    """Also where the file has them in any order, and they are sorted in several groups."""
    monkeypatch.setattr(time_order, "ROWS_PER_GROUP", 7)
    files = example_files()
    rows = [row for i in range(7) for row in life(f"k-{i}", T0 + i % 3, T0 + i % 3 + 1, W2)]
    random.Random(0).shuffle(rows)
    files["scheduler_transition"] = rows
    then = import_folder(write(tmp_path / "csv", files)).path
    now = copied(then)
    finalise(now, keys_per_bucket=keys_per_bucket)
    assert differences(now, then) == []
    columns = ["time", "seq", "line"]
    found, expected = (
        open_run(run).scheduler_transitions.to_arrow().select(columns) for run in (now, then)
    )
    assert found.equals(expected)
    assert found["line"].to_pylist() != sorted(found["line"].to_pylist())
    finalise(now)  # rows that are in order already keep it
    assert open_run(now).scheduler_transitions.to_arrow().select(columns).equals(expected)


def test_the_import_finalises_and_commands_read_it(folder: Path, tmp_path: Path) -> None:
    """The command stores derived tables and the summary; compact repeats it."""
    done = invoke("import", folder, "-o", tmp_path / "runs")
    assert (done.exit_code, done.stderr) == (0, "")
    (run,) = runs_in(tmp_path / "runs")
    assert run._stored == STORED
    assert (run.path / "parquet" / "summary.json").exists()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [run.path.name]
    plain_run = import_folder(folder).path
    for command, *rest in [*COMMANDS, ["story", Y]]:
        found, expected = (invoke(command, path, *rest) for path in (run.path, plain_run))
        assert found.exit_code == expected.exit_code == 0, (command, found.output)
        shown = found.output.replace(str(run.path), "RUN")
        assert (
            shown.splitlines()[2:]
            == expected.output.replace(str(plain_run), "RUN").splitlines()[2:]
        )
    assert "imported" in invoke("list", tmp_path / "runs").output
    assert "Already compact" in invoke("compact", run.path).output
    assert "of imported Parquet, now" in invoke("compact", plain_run).output
    assert open_run(plain_run)._stored == STORED


@pytest.mark.release
def test_additions_count_before_and_after_they_are_merged(imported: Path, tmp_path: Path) -> None:
    """An addition makes the stored tables outdated: answers have its rows, compact merges it."""
    run = copied(imported)
    finalise(run)
    assert store_summary(run)
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.dump_stats(tmp_path / "it.pstat")
    assert add_files(imported, [tmp_path / "it.pstat"]).rows > 0
    shutil.copytree(imported / "additions", run / "additions")
    now, then = open_run(run), open_run(imported)
    assert len(then.functions.to_arrow()) > 0
    for name in TABLES:
        assert plain(now[name].to_arrow()) == plain(then[name].to_arrow()), name
    done = finalise(run)
    assert (done.additions, done.additions_kept) == (1, 0)
    assert not list((run / "additions").iterdir())
    assert differences(run, imported) == []
    assert open_run(run).check().findings == open_run(imported).check().findings


@pytest.mark.parametrize("table", ["tasks", "scheduler_transitions", "keys"])
def test_a_harmed_file_of_a_finalised_run_is_reported(imported: Path, table: str) -> None:
    """It costs its own table, or nothing if that is derived."""
    finalise(imported)
    tasks = plain(open_run(imported).tasks.to_arrow())
    path = imported / "parquet" / table / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    run = open_run(imported)
    assert any(table in f.text for f in run.check().missing)
    if table == "tasks":
        assert plain(run.tasks.to_arrow()) == tasks
        return
    assert len(run.scheduler_transitions.to_arrow()) == 0
    with pytest.raises(StrataError, match="cannot be read in full"):
        finalise(imported)


@pytest.mark.parametrize("harm", ["changed", "no index", "other index"])
def test_a_harmed_import_is_not_finalised(imported: Path, harm: str) -> None:
    """Its other rows would be lost: nothing is changed."""
    path = imported / "parquet" / "worker_transitions" / "part-0.parquet"
    index = imported / "parquet" / "index.json"
    if harm == "changed":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif harm == "no index":
        index.unlink()
    else:
        index.write_text("{}")
    before = {p: p.read_bytes() for p in imported.rglob("*") if p.is_file()}
    with pytest.raises(StrataError, match="cannot be read"):
        finalise(imported)
    assert {p: p.read_bytes() for p in imported.rglob("*") if p.is_file()} == before


def test_a_shifted_scheduler_is_read_as_before(tmp_path: Path) -> None:
    """Its transitions may have another order by its own clock: nothing derived is stored."""
    files = example_files()
    for row in files["scheduler_transition"]:
        del row["called_from"]
    here = W2.replace("10.0.0.3", "scheduler")
    files["worker_transfer"] = [sent(called_from=here)]
    done = invoke("import", write(tmp_path / "csv", files), "-o", tmp_path / "runs")
    (run,) = runs_in(tmp_path / "runs")
    assert "scheduler" in run.clock_offsets_ns
    assert done.exit_code == 0
    assert "the clock of scheduler is shifted" in done.stderr
    assert run._stored == set()
    assert "the clock of scheduler is shifted" in invoke("compact", run.path).output
    run = open_run(run.path)
    plain_run = open_run(import_folder(tmp_path / "csv").path)
    for name in TABLES.keys() - {"processes", "imports"}:
        assert plain(run[name].to_arrow()) == plain(plain_run[name].to_arrow()), name


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder of files with 3,000 tasks."""
    rows = [row for i in range(3000) for row in life(f"k-{i}", T0 + i, T0 + i + 1, W2)]
    return write(tmp_path / "many", example_files() | {"scheduler_transition": rows})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["keys", "tasks"])
def test_an_interrupt_while_finalising_leaves_the_run(
    many: Path, tmp_path: Path, number: int, moment: str
) -> None:
    """The run is whole without; compact finalises it later."""
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "dask_strata", "import", str(many), "-o", str(runs)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while child.poll() is None and not list(runs.glob(f"*/.parquet-*/{moment}")):
        time.sleep(0.001)
    child.send_signal(number)
    output = child.communicate()[0]
    (run,) = runs_in(runs)
    assert str(run.path) in output or number == signal.SIGKILL
    assert "Traceback" not in output
    assert len(run.tasks) == 3000 + 2  # and those that only workers had
    expected = import_folder(many).path
    for name in RECORDED.keys() - {"processes", "imports"}:
        assert plain(run[name].to_arrow()) == plain(open_run(expected)[name].to_arrow()), name
    finalise(run.path)
    assert open_run(run.path)._stored == STORED

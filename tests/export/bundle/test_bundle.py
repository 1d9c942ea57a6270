"""A bundle answers as the run's folder does, and leaves nothing behind."""

from __future__ import annotations

import gc
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dask_strata
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.cli import cli
from dask_strata.errors import UsageError
from dask_strata.report.page.page import write_page
from dask_strata.run.finalise import finalise
from dask_strata.schema import TABLES
from dask_strata.store.manifest import SEGMENTS
from dask_strata.store.summaries.summary_file import read_summary
from dask_strata.store.zipped import copy
from dask_strata.store.zipped.files import bundle_files
from tests.support.bundles import copies, small_bundle
from tests.support.finalised import differences
from tests.support.synthetic import Process, life, new_run, small_run

pytestmark = pytest.mark.long


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files of this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of a run of two tasks."""
    return small_bundle(tmp_path_factory.mktemp("made"))


@pytest.fixture
def small(made: Path, tmp_path: Path) -> Path:
    """Return a copy of this bundle, in a folder of its own."""
    (tmp_path / "runs").mkdir()
    return Path(shutil.copy(made, tmp_path / "runs"))


@pytest.fixture(scope="module")
def eventful_runs(eventful: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finalised run and its bundle, and in `others` that of its segments.

    The finalised run is the unpacked bundle of the segments: in a folder with segments the nanny,
    which was in this process, counts as alive.
    """
    runs = tmp_path_factory.mktemp("bundles")
    (runs / "others").mkdir()
    raw = runs / "others" / "raw.strata.zip"
    dask_strata.open_run(eventful).export(raw, to="bundle")
    with zipfile.ZipFile(raw) as archive:
        archive.extractall(runs / "eventful")
    (runs / "eventful" / "page.html").unlink()
    finalised = dask_strata.open_run(runs / "eventful")
    finalised.export(runs / "eventful.strata.zip", to="bundle")
    return runs


def answer(*arguments: object, status: int | None = 0) -> str:
    """Return the output of a command."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert status is None or done.exit_code == status, done.output
    return done.output


def test_every_table_is_equal(eventful_runs: Path, temporary: Path) -> None:
    """In content, order and schema, and so are the summary and the page."""
    folder = dask_strata.open_run(eventful_runs / "eventful")
    bundle = dask_strata.open_run(eventful_runs / "eventful.strata.zip")
    for name in TABLES:
        assert bundle[name].to_arrow().equals(folder[name].to_arrow(), check_metadata=True), name
    assert sum(len(bundle[name]) for name in TABLES) > 100
    expected = summary_of(folder)
    assert summary_of(bundle) == replace(expected, path=bundle.location)
    page = temporary / "page.html"
    write_page(dask_strata.open_run(eventful_runs / "eventful"), page)
    with zipfile.ZipFile(eventful_runs / "eventful.strata.zip") as archive:
        assert archive.read("page.html") == page.read_bytes()


def test_a_run_that_is_not_finalised_is_finalised_in_its_bundle(
    eventful: Path, eventful_runs: Path, tmp_path: Path
) -> None:
    """The tables are those of the segments, which are not in the bundle."""
    path = eventful_runs / "others" / "raw.strata.zip"
    assert differences(path, eventful) == []
    names = zipfile.ZipFile(path).namelist()
    assert not [name for name in names if name.startswith(SEGMENTS)]
    assert {"run.json", "page.html", "bundle.json", "parquet/summary.json"} <= set(names)
    assert list(tmp_path.iterdir()) == []


COMMANDS = [
    ["show"],
    ["show", "--json"],
    ["check"],
    ["map"],
    ["tasks"],
    ["tasks", "--by", "prefix", "--format", "json"],
    ["why"],
    ["jobs"],
    ["io"],
    ["chunks"],
    ["profile"],
    ["logs"],
    ["query", "select count(*) from scheduler_transitions"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_that_reads_takes_a_bundle(
    command: list[str], eventful_runs: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the output and exit status of the same command on the folder."""
    monkeypatch.chdir(eventful_runs)
    name, *options = command
    done = [
        CliRunner().invoke(cli, [name, run, *options])
        for run in ("eventful", "eventful.strata.zip")
    ]
    plain = [each.output.replace(".strata.zip", "") for each in done]
    assert "".join(plain[0].split()) == "".join(plain[1].split())
    assert plain[0]
    assert done[0].exit_code == done[1].exit_code
    del done  # it keeps what a failed command used
    gc.collect()
    assert copies(temporary) == []


def test_commands_about_one_task(eventful_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its story and its lineage."""
    monkeypatch.chdir(eventful_runs)
    key = dask_strata.open_run("eventful").rows("select key from tasks order by key limit 1")
    for name in ("story", "lineage"):
        folder, bundle = (
            answer(name, run, key[0]["key"]) for run in ("eventful", "eventful.strata.zip")
        )
        assert bundle.replace(".strata.zip", "") == folder


def test_report_and_export_of_a_bundle(
    eventful_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the name of the bundle, and a bundle of a bundle is equal but for its path."""
    monkeypatch.chdir(tmp_path)
    answer("report", eventful_runs / "eventful.strata.zip")
    with zipfile.ZipFile(eventful_runs / "eventful.strata.zip") as archive:
        page = archive.read("page.html").decode()
        folder, bundle = str(eventful_runs / "eventful"), eventful_runs / "eventful.strata.zip"
        assert (tmp_path / "eventful.html").read_text() == page.replace(folder, str(bundle))
        answer("export", bundle, "--to", "bundle", "-o", "again.strata.zip")
        with zipfile.ZipFile("again.strata.zip") as again:
            assert again.namelist() == archive.namelist()
            for name in set(again.namelist()) - {"page.html"}:
                assert again.read(name) == archive.read(name)


def test_a_bundle_is_not_replaced_by_its_own_export(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the default name, nor through a link, nor by a poorer bundle of itself."""
    before = small.read_bytes()
    (tmp_path / "link").symlink_to(small.parent)
    monkeypatch.chdir(small.parent)
    for arguments in (
        ["--to", "bundle", "--no-code"],
        ["--to", "wfformat", "-o", small.name],
        ["--to", "wfformat", "-o", tmp_path / "link" / small.name],
    ):
        refused = answer("export", small.name, *arguments, status=2)
        assert "is the bundle that is exported" in refused
    assert small.read_bytes() == before
    answer("export", small.name, "--to", "bundle", "-o", "other.strata.zip")


def test_compare(eventful_runs: Path, small: Path) -> None:
    """A bundle with a folder, and with itself; and all runs of a folder with bundles."""
    bundle = eventful_runs / "eventful.strata.zip"
    both = [answer("compare", small, run) for run in (eventful_runs / "eventful", bundle)]
    assert both[0].replace("eventful ", "") == both[1].replace("eventful ", "")
    refused = answer("compare", eventful_runs / "eventful", bundle, status=2)
    assert "given twice" in refused
    shutil.copytree(eventful_runs / "eventful", small.parent / "eventful")
    assert "A (eventful), B (small)" in answer("compare", small.parent)


def test_a_list_has_bundles_beside_folders(eventful_runs: Path, temporary: Path) -> None:
    """Their rows are equal, and nothing is copied for a finalised run."""
    rows = json.loads(answer("list", eventful_runs, "--format", "json"))
    folder, bundle = rows
    assert (folder.pop("number"), bundle.pop("number")) == (2, 1)
    assert (folder.pop("run"), bundle.pop("run")) == ("eventful", "eventful.strata.zip")
    assert bundle.pop("size_bytes") == (eventful_runs / "eventful.strata.zip").stat().st_size
    folder.pop("size_bytes")
    assert folder == bundle
    only = answer("list", eventful_runs / "eventful.strata.zip")
    assert "1 run; next: dask-strata show" in " ".join(only.split())
    assert read_summary(bundle_files(eventful_runs / "eventful.strata.zip"), verify=True)
    assert list(temporary.iterdir()) == []


def test_a_list_has_damaged_bundles_with_the_reason(small: Path, temporary: Path) -> None:
    """Other runs are listed all the same; other files are not runs."""
    small.with_name("cut.strata.zip").write_bytes(small.read_bytes()[:5000])
    small.with_name("other.zip").write_bytes(b"PK")
    rows = json.loads(answer("list", small.parent, "--format", "json"))
    assert [row["run"] for row in rows] == ["cut.strata.zip", "small.strata.zip"]
    assert "damaged or incomplete" in rows[0]["problem"]
    assert rows[1]["problem"] is None
    assert copies(temporary) == []


def test_commands_that_write_into_a_run_refuse_a_bundle(small: Path, tmp_path: Path) -> None:
    """As a wrong call, with the way to a folder; the bundle stays as it is."""
    path, before = small, small.read_bytes()
    log = tmp_path / "x.pstat"
    log.touch()
    for command in (
        ["compact", path],
        ["import", "--into", path, log],
        ["upload", path, "memory://bucket/runs"],
    ):
        output = " ".join(answer(*command, status=2).split())
        assert "is a bundle, which is only read" in output
        assert "unzip" in output
    with pytest.raises(UsageError, match="only read"):
        dask_strata.compact(path)
    assert path.read_bytes() == before


def test_the_copy_is_removed_with_the_last_run(small: Path, temporary: Path) -> None:
    """Two runs share it, tables that are in use keep it."""
    first = dask_strata.open_run(small)
    second: Any = dask_strata.open_run(small)
    assert first.path == second.path
    assert first.path.name == "small"
    table = second.tasks
    del first, second
    gc.collect()
    assert len(copies(temporary)) == 1
    assert len(table.to_arrow()) == 2
    del table
    gc.collect()
    assert copies(temporary) == []


def test_a_dask_dataframe_outlives_its_run(small: Path, temporary: Path) -> None:
    """Its partitions are read from the copy, which stays until the process ends."""
    frame = dask_strata.open_run(small).tasks.to_dask()
    gc.collect()
    assert sorted(frame.compute(scheduler="synchronous").key) == ["a-1", "b-1"]
    assert len(copies(temporary)) == 1
    copy._kept.clear()
    del frame
    gc.collect()
    assert copies(temporary) == []


def test_what_a_killed_process_leaves_is_removed(small: Path, temporary: Path) -> None:
    """By the next one that opens a bundle; the copy of a living process stays."""
    code = "import dask_strata, sys, time; run = dask_strata.open_run(sys.argv[1]); print('open'); "
    command = [sys.executable, "-u", "-c", code + "time.sleep(600)", str(small)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        [left] = copies(temporary)
        run = dask_strata.open_run(small)
        assert left in copies(temporary)
        del run
        process.send_signal(signal.SIGKILL)
        process.wait()
    gc.collect()
    assert copies(temporary) == [left]
    run = dask_strata.open_run(small)
    assert left not in copies(temporary)
    assert len(run.tasks) == 2


def test_a_process_removes_its_copies_at_its_end(small: Path, temporary: Path) -> None:
    """Also a command that fails."""
    for query, status in (("from tasks", 0), ("select nothing", 1)):
        command = [sys.executable, "-m", "dask_strata", "query", str(small), query]
        assert subprocess.run(command, capture_output=True, check=False).returncode == status
        assert copies(temporary) == []


def test_a_bundle_that_is_replaced_is_read_again(small: Path, eventful_runs: Path) -> None:
    """By a run that is open, when it is refreshed."""
    run = dask_strata.open_run(small)
    assert len(run.tasks) == 2
    assert not run.refresh()
    shutil.copy(eventful_runs / "eventful.strata.zip", small.with_name("new"))
    small.with_name("new").replace(small)
    assert run.refresh()
    assert len(run.tasks) == len(dask_strata.open_run(eventful_runs / "eventful").tasks) > 2
    small.unlink()
    assert not run.refresh()


def test_a_run_that_is_recorded(tmp_path: Path) -> None:
    """Its bundle has the rows so far, and is final: it does not count as being recorded."""
    folder = new_run(tmp_path / "growing")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    run = dask_strata.open_run(folder)
    assert run.state == "recording"
    path = tmp_path / "growing.strata.zip"
    done = run.export(path, to="bundle")
    assert any("still being recorded" in note for note in done.notes)
    scheduler.write("scheduler_transitions", life("b-1", 6, 7, "tcp://w:1"))
    bundle = dask_strata.open_run(path)
    assert bundle.state == "cut"
    assert [row["key"] for row in bundle.rows("select key from tasks")] == ["a-1"]
    assert read_summary(bundle_files(path), verify=True) is not None
    assert run.state == "recording"
    assert run.refresh()
    assert len(run.tasks) == 2


def test_better_definitions_go_to_the_cache(tmp_path: Path, cache: Path) -> None:
    """As for a folder that cannot be written."""
    run = small_run(tmp_path / "old")
    finalise(run)
    index = run / "parquet" / "index.json"
    facts = json.loads(index.read_text())
    facts["derived"]["tasks"]["version"] = "older"
    index.write_text(json.dumps(facts))
    dask_strata.open_run(run).export(tmp_path / "old.strata.zip", to="bundle")
    shutil.rmtree(cache, ignore_errors=True)
    bundle = dask_strata.open_run(tmp_path / "old.strata.zip")
    assert len(bundle.rows("select * from tasks")) == 2
    assert not (bundle.path / "derived").exists()
    assert list(cache.rglob("derived/*/index.json"))


def test_other_tools_read_a_bundle(small: Path, tmp_path: Path) -> None:
    """Python's own reader finds no error; unpacked, a bundle is a run's folder."""
    with zipfile.ZipFile(small) as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        archive.extractall(tmp_path / "unpacked")
    assert len(dask_strata.open_run(tmp_path / "unpacked").tasks) == 2
    assert "complete" in answer("check", tmp_path / "unpacked")


def test_a_view_of_a_run_has_no_bundle(tmp_path: Path) -> None:
    """A bundle has the tasks of all clients, and the clocks of all processes."""
    run = small_run(tmp_path / "small")
    with pytest.raises(UsageError, match="whole run"):
        dask_strata.open_run(run, align=False).export(tmp_path / "x.strata.zip", to="bundle")
    assert not (tmp_path / "x.strata.zip").exists()

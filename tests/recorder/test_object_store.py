"""A run that is recorded to an object store is equal to a local one, whatever is interrupted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import dask_strata
from dask_strata import Run, open_run
from dask_strata.cli import cli
from dask_strata.cli.recording import record_command
from dask_strata.schema import TABLES
from tests.cli.recorded import Script, Strata
from tests.conftest import assert_whole, rows, wait_until
from tests.support.deployment import PRELOAD, Deployment
from tests.support.elsewhere import deployed
from tests.support.object_store import ObjectStore
from tests.support.processes import ends

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.long

RUNS = "s3://bucket/lab/runs"

#: Waits in the middle until the test has created a file.
WORKFLOW = """
    import os, time
    from distributed import Client

    def wait(x):
        while not os.path.exists("go"):
            time.sleep(0.02)
        return x

    if __name__ == "__main__":
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            print(sum(client.gather(client.map(abs, range(-200, 0)))), flush=True)
            print("in the middle", flush=True)
            print(client.submit(wait, 7).result(), flush=True)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store that this process and those that it starts use."""
    made = ObjectStore()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DASK_DASK_STRATA__SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("DASK_DASK_STRATA__CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DASK_DASK_STRATA__UPLOAD_INTERVAL", "100ms")
    monkeypatch.setattr("dask_strata.store.copies.mirror.cache_folder", lambda: tmp_path / "cache")
    yield made
    made.stop()


def only_url(store: ObjectStore) -> str:
    """Return the URL of the one run in the store."""
    names = {name.partition("/")[0] for name in store.names(RUNS)}
    assert len(names) == 1, names
    return f"{RUNS}/{names.pop()}"


def only_spool(tmp_path: Path) -> Path:
    """Return the folder of the one run that was not uploaded completely."""
    found = [path.parent for path in (tmp_path / "spool").glob("*/*/run.json")]
    assert len(found) == 1, found
    return found[0]


def assert_nothing_spooled(tmp_path: Path) -> None:
    assert not list((tmp_path / "spool").rglob("*"))


def assert_equal(one: Run, other: Run) -> None:
    """Assert that two runs have the same rows in all tables, in the same order."""
    for name in TABLES:
        mine, theirs = one[name].to_arrow(), other[name].to_arrow()
        assert mine.equals(theirs), name


@pytest.fixture
def begun(script: Script, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the workflow under `dask-strata record`, and wait until its middle."""
    started = []

    def begin(*options: str) -> subprocess.Popen[str]:
        script(WORKFLOW)
        command = ("-m", "dask_strata", "record", "-o", RUNS, *options, "script.py")
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        for line in process.stdout or ():
            if line == "in the middle\n":
                return process
        pytest.fail(process.communicate()[1])

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def go_on(tmp_path: Path, process: subprocess.Popen[str]) -> str:
    """Let the workflow continue, and return what `record` printed."""
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "7\n"), err
    return err


def bundles(store: ObjectStore) -> int:
    return sum("/parts/" in name for name in store.names(RUNS))


def test_an_unchanged_script_is_recorded_to_the_store_and_read_from_it(
    store: ObjectStore, begun: Any, tmp_path: Path, strata: Strata
) -> None:
    """It is uploaded while it runs and whole at the end; nothing of it stays on this machine."""
    process = begun("--report")
    wait_until(lambda: bundles(store) > 2, what="uploads while the run goes on")
    url = only_url(store)
    now = open_run(url)
    wait_until(lambda: now.refresh() and len(now.tasks) >= 200, what="the tasks so far")
    assert now.state == "recording"
    err = go_on(tmp_path, process)
    assert f"uploaded to {url}" in err
    now.refresh()
    assert (now.state, len(now.tasks)) == ("complete", 201)
    assert_whole(now)
    names = store.names(url)
    assert "parquet/index.json" in names
    assert not {name for name in names if name.startswith(("parts/", "segments/"))}
    assert f"{url.rpartition('/')[2]}.html" in store.names(RUNS)
    assert_nothing_spooled(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"script.py", "go", "spool", "cache"}

    shutil.rmtree(tmp_path / "cache")
    listed = strata("list", RUNS, "--format", "json", check=True).stdout
    assert '"tasks": 201' in listed
    assert not (tmp_path / "cache").exists(), "a list needs no copies of finished runs"
    assert "nothing missing" in strata("show", url, check=True).stdout


@pytest.mark.release
def test_a_store_that_is_away_for_some_time_gets_the_whole_run(
    store: ObjectStore, begun: Any, tmp_path: Path
) -> None:
    process = begun()
    wait_until(lambda: bundles(store) > 1, what="uploads while the run goes on")
    store.stop()
    spool = only_spool(tmp_path)
    reported = "select 1 from losses where what = 'upload'"
    wait_until(lambda: rows(open_run(spool), reported), what="the interruption on record")
    store.start()
    before = bundles(store)
    wait_until(lambda: bundles(store) > before, what="the next upload")
    err = go_on(tmp_path, process)
    run = open_run(only_url(store))
    assert_whole(run)
    assert len(run.tasks) == 201
    assert err.count("cannot upload the run") == 1
    assert [f.text for f in run.check().findings if f.severity == "note" and "upload" in f.text]
    assert_nothing_spooled(tmp_path)


@pytest.mark.release
def test_an_upload_that_was_interrupted_at_the_end_is_continued(
    store: ObjectStore, begun: Any, tmp_path: Path, strata: Strata
) -> None:
    """Row for row, the run in the store is the one that was kept on this machine."""
    process = begun()
    store.stop()
    err = go_on(tmp_path, process)
    spool = only_spool(tmp_path)
    assert f"dask-strata upload {spool}" in err
    kept = shutil.copytree(spool, tmp_path / "kept" / spool.name)
    store.start()
    strata("upload", spool, check=True)
    assert_equal(open_run(kept), open_run(only_url(store)))
    assert_nothing_spooled(tmp_path)


@pytest.mark.release
def test_a_run_that_was_killed_is_in_the_store_until_its_last_upload_and_continued(
    store: ObjectStore, begun: Any, tmp_path: Path, strata: Strata
) -> None:
    process = begun("--no-compact")
    url = only_url(store)
    run = open_run(url)
    wait_until(lambda: run.refresh() and len(run.tasks) >= 200, what="the tasks so far")
    process.send_signal(signal.SIGKILL)
    assert ends(process)
    spool = only_spool(tmp_path)
    wait_until(lambda: open_run(spool).state == "cut", what="the end of the scheduler")
    strata("upload", spool, check=True)
    run.refresh()
    assert (run.state, bundles(store)) == ("cut", 0)
    assert len(run.tasks) >= 200
    assert_nothing_spooled(tmp_path)


@pytest.mark.release
def test_a_local_run_is_uploaded_and_uploaded_again(
    store: ObjectStore, client: Client, runs: Path, strata: Strata
) -> None:
    with dask_strata.record(runs, client=client) as local:
        client.gather(client.map(abs, range(50)))
    assert "uploaded now" in strata("upload", local.path, RUNS, check=True).stdout
    url = only_url(store)
    assert_equal(open_run(local.path), open_run(url))
    assert " 1 of them uploaded now" in strata("upload", local.path, RUNS, check=True).stdout
    strata("compact", local.path, check=True)
    strata("upload", local.path, RUNS, check=True)
    assert_equal(open_run(local.path), open_run(url))
    assert local.path.is_dir()


@pytest.mark.release
def test_a_running_cluster_is_recorded_to_the_store_from_its_client(
    store: ObjectStore, client: Client, tmp_path: Path
) -> None:
    with dask_strata.record(RUNS, client=client, upload_interval="100ms") as run:
        client.gather(client.map(abs, range(50)))
        wait_until(lambda: len(run.tasks) >= 50, what="the tasks while they are recorded")
    assert run.location == only_url(store)
    assert (run.state, len(run.tasks)) == ("complete", 50)
    assert_whole(run)
    assert bundles(store) == 0


@pytest.mark.release
def test_a_store_that_is_away_at_the_end_does_not_disturb_the_users_code(
    store: ObjectStore, client: Client, tmp_path: Path, strata: Strata
) -> None:
    with dask_strata.record(RUNS, client=client, spool=str(tmp_path / "spool")) as run:
        assert client.submit(abs, -1).result() == 1
        store.stop()
    spool = wait_until(lambda: only_spool(tmp_path), what="the spooled run")
    store.start()
    strata("upload", spool)  # the scheduler's own upload may have succeeded meanwhile
    run.refresh()
    assert (run.state, len(run.tasks)) == ("complete", 1)
    assert_whole(run)


@pytest.mark.release
@pytest.mark.parametrize("first", ["workers", "scheduler"])
def test_a_deployment_with_the_preload_finishes_its_upload_when_it_ends(
    store: ObjectStore, deployment: Deployment, tmp_path: Path, first: str
) -> None:
    deployment.environment["DASK_DASK_STRATA__RUNS"] = RUNS
    scheduler = deployment.scheduler(*PRELOAD)
    for _ in range(2):
        deployment.worker()
    with deployment.client() as client:
        client.wait_for_workers(2, timeout=60)
        assert sum(client.gather(client.map(abs, range(50)))) == 1225
    if first == "scheduler":
        deployment.end(scheduler)
    deployment.end_all()
    run = open_run(only_url(store))
    assert (run.state, len(run.tasks)) == ("complete", 50), deployment.output()
    assert_whole(run)
    assert bundles(store) == 0
    assert_nothing_spooled(tmp_path)


def test_a_cluster_without_a_store_works_and_is_not_recorded(
    store: ObjectStore, deployment: Deployment
) -> None:
    deployment.environment["DASK_DASK_STRATA__RUNS"] = "s3://none/runs"
    deployment.scheduler(*PRELOAD)
    deployment.worker()
    with deployment.client() as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
    output = deployment.output()
    assert output.count("dask-strata does not record: s3://none/runs") == 1
    deployment.end_all()


def test_ctrl_c_during_the_last_upload_names_the_command_that_continues(
    store: ObjectStore,
    tmp_path: Path,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dask_strata.cli.recording.finish_upload", interrupted)
    (tmp_path / "go").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        record_command(
            None, [str(script(WORKFLOW))], quiet=True, runs=RUNS, spool=str(tmp_path / "spool")
        )
    spool = only_spool(tmp_path)
    assert f"it was interrupted. It is kept; continue with: dask-strata upload {spool}\n" in (
        capfd.readouterr().err
    )
    assert CliRunner().invoke(cli, ["upload", str(spool)]).exit_code == 0
    assert_whole(open_run(only_url(store)))
    assert_nothing_spooled(tmp_path)


JOINING = """
import sys
from distributed import Client

with Client(sys.argv[1]) as client:
    print(sum(client.gather(client.map(abs, range(50)))))
"""


@pytest.mark.release
def test_the_copy_of_a_run_that_the_script_joined_is_uploaded_and_removed(
    store: ObjectStore, tmp_path: Path, script: Script, strata: Strata
) -> None:
    """The scheduler has another file system, and its run goes on after the script."""
    with deployed(tmp_path, "--preload", "dask_strata") as remote, remote.client() as client:
        client.wait_for_workers(2)
        address = client.scheduler.address
        done = strata("record", "-o", RUNS, script(JOINING), address, check=True)
        assert done.stdout == "1225\n"
        assert f"uploaded to {only_url(store)}" in done.stderr
        assert "not completely" not in done.stderr
        run = open_run(only_url(store))
        assert rows(run, "select count(*) as n from tasks") == [{"n": 50}]
        assert_nothing_spooled(tmp_path)

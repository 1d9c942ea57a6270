"""Permissions of runs: those that the setting `access` chooses, in each file and folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from dask_strata import open_run, record
from dask_strata.errors import SettingError
from dask_strata.importers.registry import add_files
from dask_strata.server.tar import tar_of
from dask_strata.store.compact import compact
from tests.support.coupler_files import write
from tests.support.coupler_runs import example_files, imported_run

pytestmark = pytest.mark.long


@pytest.fixture(params=[0, 0o022, 0o077, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask of this process, and so of the cluster in it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(run: Path) -> tuple[set[int], set[int]]:
    """Return the permissions of all folders and of all files of a run."""
    paths = [run, *run.rglob("*")]
    return tuple(
        {path.stat().st_mode & 0o777 for path in paths if path.is_dir() == folders}
        for folders in (True, False)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("access", ["owner", "group", "umask"])
def test_files_have_the_permissions_that_the_setting_chooses(
    runs: Path, umask: int, access: str
) -> None:
    """While it is recorded, when it is complete, once compacted: the setting decides."""
    folders, files = {
        "owner": (0o700, 0o600),
        "group": (0o750, 0o640),
        "umask": (0o777 & ~umask, 0o666 & ~umask),
    }[access]
    with (
        Client(n_workers=1, processes=False, dashboard_address=":0") as client,
        record(runs, client=client, access=access, yappi_clock="wall") as run,
    ):
        client.submit(sum, [1, 2]).result()
        (recording,) = runs.iterdir()
        assert modes(recording) == ({folders}, {files})
    assert (run.path / "profiles").is_dir()
    assert modes(run.path) == ({folders}, {files})
    compact(run.path)
    assert list(run.path.rglob("*.parquet"))
    assert modes(run.path) == ({folders}, {files})


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TRIED: only root can choose a group")
@pytest.mark.parametrize("access", ["owner", "group", "umask"])
def test_a_project_folder_passes_its_group_on(runs: Path, access: str) -> None:
    """In a folder with the set-group-ID bit, everything in a run belongs to the folder's group."""
    runs.mkdir(exist_ok=True)
    os.chown(runs, -1, 4242)
    runs.chmod(0o2770)
    with (
        Client(n_workers=1, processes=False, dashboard_address=":0") as client,
        record(runs, client=client, access=access, yappi_clock="wall") as run,
    ):
        client.submit(sum, [1, 2]).result()
    assert {path.stat().st_gid for path in [run.path, *run.path.rglob("*")]} == {4242}
    compact(run.path)
    assert {path.stat().st_gid for path in [run.path, *run.path.rglob("*")]} == {4242}


@pytest.mark.release
@pytest.mark.parametrize("umask", [0, pytest.param(0o022, marks=pytest.mark.long)], indirect=True)
def test_the_page_of_a_recording_has_the_permissions_of_the_run(
    tmp_path: Path, umask: int, strata: Callable[..., Any]
) -> None:
    """`record --report` writes the page beside the run's folder: it has all that the run has."""
    script = tmp_path / "script.py"
    script.write_text(
        "from distributed import Client\n"
        "with Client(n_workers=1, processes=False, dashboard_address=':0') as client:\n"
        "    client.submit(sum, [1, 2]).result()\n"
    )
    assert umask in {0, 0o022}
    strata("record", "-o", tmp_path / "runs", "--report", script, check=True)
    (page,) = (tmp_path / "runs").glob("*.html")
    assert page.stat().st_mode & 0o777 == 0o600


def test_an_extracted_archive_has_the_permissions_of_the_run(runs: Path, tmp_path: Path) -> None:
    """The archive of a run that only its owner can read is extracted as such a run."""
    with (
        Client(n_workers=1, processes=False, dashboard_address=":0") as client,
        record(runs, client=client) as run,
    ):
        client.submit(sum, [1, 2]).result()
    compact(run.path)
    archive = tmp_path / "run.tar"
    archive.write_bytes(b"".join(tar_of(run.path)))
    subprocess.run(["tar", "xf", archive, "-C", tmp_path], check=True, umask=0o022)
    extracted = tmp_path / run.path.name
    assert modes(extracted) == ({0o700}, {0o600})
    assert open_run(extracted).check().ok


def test_what_is_added_has_the_permissions_of_the_folder(runs: Path, tmp_path: Path) -> None:
    """A folder whose permissions the user changed keeps them, and later files get them."""
    with (
        Client(n_workers=1, processes=False, dashboard_address=":0") as client,
        record(runs, client=client, yappi_clock="wall") as run,
    ):
        client.submit(sum, [1, 2]).result()
    run.path.chmod(0o755)
    saved = next(run.path.glob("profiles/*.pstat")).rename(tmp_path / "worker.pstat")
    add_files(run.path, [saved])
    (added,) = (run.path / "additions").iterdir()
    assert modes(added) == ({0o755}, {0o644})
    assert (run.path / "segments").stat().st_mode & 0o777 == 0o700


def test_an_imported_run_is_the_owners(tmp_path: Path) -> None:
    """Folders of imported runs are 0700, their files 0600."""
    run = imported_run(write(tmp_path / "csv", example_files()))
    assert modes(run.path) == ({0o700}, {0o600})


ANOTHER_USER = """
import os, sys
from pathlib import Path
from dask_strata.recorder.pipeline.comm import open_sink
os.setuid(65534)
(name,) = os.listdir(sys.argv[1])
run_id = name.rpartition("-")[2]
sink = open_sink(Path(sys.argv[1], name), "worker-0a1b2c3d", run_id, print, b"")
print(sink.transport)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TRIED: only root can become another user")
@pytest.mark.parametrize(("access", "transport"), [("owner", "comm"), ("umask", "file")])
def test_another_user_sends_records_to_the_scheduler(access: str, transport: str) -> None:
    """A worker of another user does not fail: its records travel over Dask's connections."""
    before = os.umask(0)
    try:
        with tempfile.TemporaryDirectory() as runs:
            Path(runs).chmod(0o755)
            with (
                Client(n_workers=1, processes=False, dashboard_address=":0") as client,
                record(runs, client=client, access=access),
            ):
                client.submit(sum, [1, 2]).result()
            done = subprocess.run(
                [sys.executable, "-c", ANOTHER_USER, runs],
                check=False, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
    finally:
        os.umask(before)
    assert done.stdout.strip() == transport, done.stderr


def test_a_wrong_value_is_an_error() -> None:
    """The error names the values that there are."""
    with pytest.raises(SettingError, match="owner, group or umask"):
        record("runs", access="everyone")

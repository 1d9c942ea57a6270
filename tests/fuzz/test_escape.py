"""Runs that lead out of their folder: links, pipes and invalid names."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_strata import open_run
from dask_strata.cli import cli
from dask_strata.errors import NotARunError, StrataError
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.compact import compact
from dask_strata.store.manifest import find_runs
from dask_strata.store.reader import fingerprint
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two processes and two tasks."""
    return small_run(tmp_path / "runs" / "r")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Another run, next to the folder of runs: nothing of it may be read or changed."""
    folder = small_run(tmp_path / "outside")
    compact(folder)
    small_run(tmp_path / "more")
    shutil.copytree(tmp_path / "more" / "segments", folder / "segments", dirs_exist_ok=True)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def index_of(run: Path) -> dict:
    return json.loads((run / "parquet" / "index.json").read_text())


def rewrite(run: Path, /, **changes: object) -> None:
    path = run / "parquet" / "index.json"
    path.write_text(json.dumps({**index_of(run), **changes}))


def missing(run: Path) -> str:
    """Return the output of `check`, which must exit with 1 and without a traceback."""
    done = CliRunner().invoke(cli, ["check", str(run)])
    assert done.exit_code == 1, done.output
    assert "mistake" not in done.output
    return done.output


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    previous = Path.cwd()  # the path of a socket must be short
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(previous)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_device_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


NOT_A_FILE = [make_pipe, make_socket, make_loop, make_device_link, Path.mkdir]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("segments/worker-9.seg", make) for make in NOT_A_FILE),
        *(("parquet/worker_events/part-9.parquet", make) for make in NOT_A_FILE),
        ("parquet/x", make_pipe),
        ("additions/x", make_loop),
    ],
)
def test_an_entry_that_is_not_a_file_is_named_and_skipped(
    run: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Pipes, devices, sockets and links are not opened; `check` names them."""
    path = run / name
    if name.startswith("parquet"):
        compact(run)
    path.parent.mkdir(exist_ok=True)
    make(path)
    opened = open_run(run)
    assert len(opened["tasks"]) == 2
    assert path.name in missing(run)
    with pytest.raises(StrataError, match="cannot be compacted"):
        compact(run)
    assert os.path.lexists(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", NOT_A_FILE)
def test_a_manifest_that_is_not_a_file_is_refused(run: Path, make: Callable[[Path], None]) -> None:
    """A pipe or link in the place of run.json is refused, and `list` shows the reason."""
    (run / "run.json").unlink()
    make(run / "run.json")
    with pytest.raises(NotARunError, match=r"run\.json is a"):
        open_run(run)
    done = CliRunner().invoke(cli, ["list", str(run.parent), "--format", "json"])
    assert "run.json is a" in json.loads(done.stdout)[0]["problem"]


@pytest.mark.parametrize(
    "name", ["segments", "parquet", "additions", "parquet/scheduler_transitions"]
)
def test_folders_that_are_links_are_not_followed(run: Path, outside: Path, name: str) -> None:
    """A folder that is a link to one of another run is neither read nor written."""
    compact(run)
    (outside / "additions").mkdir()
    path = run / name
    if path.exists():
        shutil.rmtree(path)
    path.symlink_to(outside / name)
    before = everything(outside)
    opened = open_run(run)
    assert len(opened["scheduler_transitions"]) == (0 if "parquet" in name else 6)
    assert "symbolic link" in missing(run)
    with pytest.raises(StrataError):
        compact(run)
    if name == "additions":
        with pytest.raises(StrataError, match="symbolic link"):
            Addition(run)
    assert everything(outside) == before
    assert fingerprint(run)


def test_files_that_are_links_are_not_read(run: Path, outside: Path) -> None:
    """A segment or Parquet that is a link to one of another run is not read."""
    compact(run)
    (run / "segments" / "worker-7.seg").symlink_to(outside / "segments" / "worker-1.seg")
    part = run / "parquet" / "worker_events" / "part-1.parquet"
    part.symlink_to(outside / "parquet" / "worker_events" / "part-0.parquet")
    opened = open_run(run)
    assert "worker-7" not in opened["processes"].to_arrow()["process"].to_pylist()
    found = missing(run)
    assert "worker-7.seg" in found
    assert "part-1.parquet" in found


ESCAPES = ["../../../outside", "..", ".", "", "/tmp", "a/b", "x\0y", "../outside/segments/worker-1"]


@pytest.mark.parametrize("part", ["segments", "additions", "tables"])
def test_an_index_deletes_nothing_outside(run: Path, outside: Path, part: str) -> None:
    """An index with names that lead out of the run is refused; nothing is deleted."""
    compact(run)
    facts = index_of(run)
    before = everything(outside)
    ended = {"size": (outside / "segments" / "worker-1.seg").stat().st_size, "end_reason": "x"}
    for name in ESCAPES:
        changes = {
            "segments": [{**facts["segments"][0], "process": name, **ended}],
            "additions": [name],
            "tables": {name: 1},
        }
        rewrite(run, **{**facts, part: changes[part]})
        with pytest.raises(StrataError):
            compact(run)
        assert everything(outside) == before
        assert (run / "run.json").is_file()
    assert "index.json cannot be read" in missing(run)
    assert len(open_run(run)["tasks"]) == 2


def test_additions_that_are_outside_are_not_deleted(run: Path, outside: Path) -> None:
    """Compaction deletes additions of the run only, also if the index names others."""
    compact(run)
    (run / "additions").symlink_to(outside.parent)
    rewrite(run, additions=["outside"])
    before = everything(outside)
    with pytest.raises(StrataError):
        compact(run)
    assert everything(outside) == before


def test_a_link_to_a_run_is_a_run(run: Path, tmp_path: Path) -> None:
    """A link that the user made to a whole run, or to a folder of runs, is followed."""
    (tmp_path / "latest").symlink_to(run)
    (tmp_path / "all").symlink_to(run.parent)
    assert len(open_run(tmp_path / "latest")["tasks"]) == 2
    assert [p.name for p in find_runs(tmp_path / "all")] == ["r"]


def test_segments_with_invalid_names_are_named(run: Path) -> None:
    """A segment whose name is not text, or has control characters, is skipped and named."""
    data = (run / "segments" / "worker-1.seg").read_bytes()
    for name in (b"worker-\xff.seg", b"worker-\x1b[31m.seg", b"w" * 240 + b".seg"):
        with open(os.fsencode(run) + b"/segments/" + name, "wb") as file:  # noqa: PTH123  bytes
            file.write(data)
    found = missing(run)
    assert "\\udcff" in found
    assert "\x1b[31m" not in found
    assert len(open_run(run)["tasks"]) == 2

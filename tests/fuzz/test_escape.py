"""A run's folder that leads elsewhere: links, pipes and names that are none."""

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
from dask_strata.store.reader import find_runs, fingerprint
from tests.support.synthetic import small_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two processes and two tasks."""
    return small_run(tmp_path / "runs" / "r")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Another run, beside the folder of runs, which nothing may come from."""
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


def rewrite(run: Path, **changes: object) -> None:
    path = run / "parquet" / "index.json"
    path.write_text(json.dumps({**index_of(run), **changes}))


def missing(run: Path) -> str:
    """Return what `check` says is missing; it ends with 1 and without a traceback."""
    done = CliRunner().invoke(cli, ["check", str(run)])
    assert done.exit_code == 1, done.output
    assert "mistake" not in done.output
    return done.output


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()  # a socket's path is short
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_device_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


STRANGE = [make_pipe, make_socket, make_loop, make_device_link, Path.mkdir]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("segments/worker-9.seg", make) for make in STRANGE),
        *(("parquet/worker_events/part-9.parquet", make) for make in STRANGE),
        ("parquet/x", make_pipe),
        ("additions/x", make_loop),
    ],
)
def test_what_is_no_file_is_named_and_costs_only_itself(
    run: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Pipes, devices, sockets and links are not waited on nor followed; check names them."""
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
@pytest.mark.parametrize("make", STRANGE)
def test_a_manifest_that_is_no_file_is_refused(run: Path, make: Callable[[Path], None]) -> None:
    """What is in the place of run.json and is no file is refused, and listed with the reason."""
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
    """A folder of a run that is a link to another run's gives nothing, and nothing goes there."""
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
    said = missing(run)
    assert "worker-7.seg" in said
    assert "part-1.parquet" in said


ESCAPES = ["../../../outside", "..", ".", "", "/tmp", "a/b", "x\0y", "../outside/segments/worker-1"]


@pytest.mark.parametrize("part", ["segments", "additions", "tables"])
def test_an_index_deletes_nothing_outside(run: Path, outside: Path, part: str) -> None:
    """Names in an index that lead out of the run refuse the index; nothing is deleted."""
    compact(run)
    facts = index_of(run)
    before = everything(outside)
    ended = {"size": (outside / "segments" / "worker-1.seg").stat().st_size, "end_reason": "x"}
    for name in ESCAPES:
        named = {
            "segments": [{**facts["segments"][0], "process": name, **ended}],
            "additions": [name],
            "tables": {name: 1},
        }
        rewrite(run, **{**facts, part: named[part]})
        with pytest.raises(StrataError):
            compact(run)
        assert everything(outside) == before
        assert (run / "run.json").is_file()
    assert "index.json cannot be read" in missing(run)
    assert len(open_run(run)["tasks"]) == 2


def test_additions_that_are_outside_are_not_deleted(run: Path, outside: Path) -> None:
    """Compaction takes in additions of the run alone, also if the index names others."""
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


def test_names_of_segments_that_are_no_text_are_named(run: Path) -> None:
    """A segment whose name is no text, or has marks for terminals, is left out and named."""
    data = (run / "segments" / "worker-1.seg").read_bytes()
    for name in (b"worker-\xff.seg", b"worker-\x1b[31m.seg", b"w" * 240 + b".seg"):
        with open(os.fsencode(run) + b"/segments/" + name, "wb") as file:  # noqa: PTH123  bytes
            file.write(data)
    said = missing(run)
    assert "\\udcff" in said
    assert "\x1b[31m" not in said
    assert len(open_run(run)["tasks"]) == 2

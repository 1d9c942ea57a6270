"""Tags and notes beside a run: `dask-strata tag`, and who counts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import compact, open_run
from dask_strata.analysis.compare import compare
from dask_strata.analysis.list import list_run
from dask_strata.errors import StrataError, UsageError
from dask_strata.store.manifest import Manifest
from dask_strata.store.summaries.files import list_files
from dask_strata.store.summaries.notes import NOTES, Notes, change_notes, read_notes
from dask_strata.store.summaries.summary_file import read_summary
from tests.support.synthetic import T0, Process, life, small_run

Strata = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(scope="module")
def finalised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finalised run with its summary."""
    folder = small_run(tmp_path_factory.mktemp("tag") / "r")
    compact(folder)
    list_run(folder)
    return folder


@pytest.fixture
def run(finalised: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finalised, tmp_path / "runs" / "r"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a run except its notes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != NOTES
    }


def test_tags_are_added_and_removed_and_nothing_else_changes(run: Path, strata: Strata) -> None:
    """The record, its check and the stored summary stay; `list` shows the tags."""
    before = contents(run)
    check = strata("check", run).stdout
    assert strata("tag", run, "fast", "size=big", check=True).stdout == "tags  fast, size=big\n"
    done = strata("tag", run, "new", "fast", "--remove", "size=big", "--note", "a\nb", check=True)
    assert done.stdout == "tags  fast, new\nnote  a\n      b\n"
    assert contents(run) == before
    assert strata("check", run).stdout == check
    assert read_summary(list_files(run), verify=True) is not None
    (row,) = json.loads(strata("list", run.parent, "--format", "json", check=True).stdout)
    assert (row["tags"], row["note"]) == ("fast, new", "a\nb")
    assert "fast, new" in strata("list", run.parent, check=True).stdout
    assert strata("tag", run, "--note", "", check=True).stdout == "tags  fast, new\n"


def test_the_file_is_written_whole_with_the_permissions_of_the_run(run: Path) -> None:
    """A link in its place is replaced, not followed; no temporary file is left."""
    run.chmod(0o750)
    target = run.parent / "other"
    target.write_text("untouched")
    change_notes(run, add=["a"])
    assert (run / NOTES).stat().st_mode & 0o777 == 0o640
    (run / NOTES).unlink()
    (run / NOTES).symlink_to(target)
    with pytest.raises(StrataError, match="cannot be read"):
        change_notes(run, add=["a"])
    assert target.read_text() == "untouched"
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_simultaneous_commands_lose_no_tag(run: Path) -> None:
    """Each of many adds its own."""
    threads = [
        threading.Thread(target=change_notes, args=(run,), kwargs={"add": [f"t{i}"]})
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_notes(run).tags) == sorted(f"t{i}" for i in range(12))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({"format": 2, "tags": [], "note": ""}),
        json.dumps({"format": 1, "tags": "abc", "note": ""}),
        json.dumps({"format": 1, "tags": [1], "note": ""}),
        json.dumps({"format": 1, "tags": ["\x1b[31m"], "note": ""}),
        json.dumps({"format": 1, "tags": ["a" * 101], "note": ""}),
        json.dumps({"format": 1, "tags": [f"t{i}" for i in range(51)], "note": ""}),
        json.dumps({"format": 1, "tags": [], "note": "\x1b[31m"}),
        json.dumps({"format": 1, "tags": [], "note": "x" * 70_000}),
    ],
)
def test_a_file_of_another_form_is_refused(run: Path, content: str) -> None:
    """A list shows the run without its notes, and `tag` does not overwrite the file."""
    (run / NOTES).write_text(content)
    assert list_run(run)["tags"] == ()
    assert list_run(run)["problem"] is None
    with pytest.raises(StrataError, match="cannot be read"):
        change_notes(run, add=["a"])
    assert (run / NOTES).read_text() == content


@pytest.mark.parametrize(
    "change",
    [
        {"add": ["a,b"]},
        {"add": [" "]},
        {"add": ["a" * 101]},
        {"add": ["a\x1b"]},
        {"add": [f"t{i}" for i in range(51)]},
        {"remove": ["absent"]},
        {"note": "x" * 4001},
        {"note": "\x1b[31m"},
    ],
)
def test_wrong_tags_are_refused(run: Path, change: dict[str, Any]) -> None:
    """Nothing is written."""
    with pytest.raises(UsageError):
        change_notes(run, **change)
    assert not (run / NOTES).exists()
    assert read_notes(run) == Notes()


def tagged(folder: Path, tags: str) -> Path:
    """Make a run that was recorded with tags."""
    Manifest(folder.name, "synthetic", T0, "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    scheduler.write("config", [{"name": "dask_strata.tags", "value": tags}])
    scheduler.end()
    Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=2).end()
    return folder


def test_tags_of_a_recording_and_later_ones_count_together(tmp_path: Path) -> None:
    """In the list, and as groups of a comparison."""
    a = tagged(tmp_path / "a", '["fast", "size=big"]')
    b, c = (tagged(tmp_path / name, "[]") for name in "bc")
    change_notes(a, add=["x=1", "fast"])
    change_notes(b, add=["fast", "size=big", "x=2"])
    assert list_run(a)["tags"] == ("fast", "size=big", "x=1")
    assert list_run(b)["tags"] == ("fast", "size=big", "x=2")
    found = compare(a, b, c, by="tag")
    assert [group.name for group in found.groups] == ["tag fast", "tag none"]
    assert [[run.name for run in group.runs] for group in found.groups] == [["a", "b"], ["c"]]
    found = compare(open_run(a), b, by="tag.x")
    assert [group.name for group in found.groups] == ["tag.x 1", "tag.x 2"]


def test_places_that_cannot_be_tagged(run: Path, tmp_path: Path, strata: Strata) -> None:
    """A URL, a bundle, and a folder of something else have an error with advice."""
    for place in ("s3://bucket/runs/r", str(tmp_path)):
        done = strata("tag", place, "a")
        assert done.returncode in {1, 2}
        assert "Traceback" not in done.stderr
    assert not (tmp_path / NOTES).exists()
    strata("export", run, "--to", "bundle", "-o", tmp_path / "r.strata.zip", check=True)
    done = strata("tag", tmp_path / "r.strata.zip", "a")
    assert done.returncode == 2
    assert "folder" in done.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(run: Path, strata: Strata) -> None:
    """The error states the file."""
    run.chmod(0o500)
    done = strata("tag", run, "a")
    assert done.returncode == 1
    assert NOTES in done.stderr


def test_a_copy_of_the_folder_has_its_tags(run: Path, tmp_path: Path) -> None:
    """They are a file beside the record."""
    change_notes(run, add=["a"], note="why")
    shutil.copytree(run, tmp_path / "copy")
    assert read_notes(tmp_path / "copy") == Notes(("a",), "why")

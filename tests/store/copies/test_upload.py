"""Uploaded bundles, uploaded files and the copy that is read: equal to the run at each step."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from dask_strata import Run, open_run
from dask_strata.analysis.list import list_runs, table_of
from dask_strata.cli import cli
from dask_strata.cli.uploading import finish_upload
from dask_strata.errors import NotARunError, StrataError
from dask_strata.schema import TABLES
from dask_strata.server.run_cache import RunCache
from dask_strata.store.compact import compact
from dask_strata.store.copies import mirror
from dask_strata.store.copies.bundle import bundle_name, decode_bundle, encode_bundle
from dask_strata.store.copies.growth import Part
from dask_strata.store.copies.mirror import remove_old_copies
from dask_strata.store.copies.place import Object, RemotePlace
from dask_strata.store.copies.upload import begin_upload, note_destination, upload_run
from tests.conftest import wait_until
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of copies."""
    monkeypatch.setattr(mirror, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def runs() -> RemotePlace:
    """A place in fsspec's memory, which is the same throughout the process."""
    return RemotePlace(f"memory://{uuid4().hex}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_run(tmp_path / "local" / "2026-a-run")


def assert_equal(one: Run, other: Run) -> None:
    for name in TABLES:
        assert one[name].to_arrow().equals(other[name].to_arrow()), name


def test_a_run_that_grows_is_read_while_it_is_uploaded(
    run: Path, tmp_path: Path, runs: RemotePlace
) -> None:
    growing = tmp_path / "growing" / run.name
    (growing / "segments").mkdir(parents=True)
    shutil.copy(run / "run.json", growing)
    place = runs / run.name
    upload = begin_upload(growing, place)
    seen, steps = 0, 7
    whole = {path.name: path.read_bytes() for path in (run / "segments").iterdir()}
    for step in range(1, steps + 1):
        for name, data in whole.items():
            (growing / "segments" / name).write_bytes(data[: len(data) * step // steps])
        while upload.upload_new():
            pass
        copy = open_run(place.url)
        rows = sum(len(copy[name]) for name in ("scheduler_transitions", "worker_transitions"))
        assert rows >= seen
        seen = rows
    assert seen
    assert_equal(open_run(run), copy)
    assert {name.partition("/")[0] for name in place.objects()} == {"run.json", "parts"}


@pytest.mark.release
def test_the_place_of_a_finished_run_is_a_runs_folder(run: Path, runs: RemotePlace) -> None:
    place = runs / run.name
    upload = begin_upload(run, place)
    while upload.upload_new():
        pass
    opened = open_run(place.url)
    assert_equal(open_run(run), opened)
    first = finish_upload(run, place.url, 0)
    assert (first.uploaded, finish_upload(run, place.url, 0).uploaded) == (first.files, 1)
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert set(place.objects()) == {*files, "list.json"}
    opened.refresh()
    assert_equal(open_run(run), opened)

    compact(run)
    finish_upload(run, place.url, 0)
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert set(place.objects()) == {*files, "list.json"}
    opened.refresh()
    assert not list(opened.path.glob("segments/*"))
    assert_equal(open_run(run), opened)


def test_only_a_spool_is_removed_after_the_upload(
    run: Path, tmp_path: Path, runs: RemotePlace
) -> None:
    place = runs / run.name
    finish_upload(run, place.url, 0)
    assert run.is_dir()
    note_destination(run, place.url)
    (run.parent / ".hidden").touch()
    finish_upload(run, place.url, 0)
    assert [path.name for path in run.parent.iterdir()] == [".hidden"], "the user's folder stays"
    spool = tmp_path / "dask-strata-x1y2"
    run = small_run(spool / run.name)
    note_destination(run, place.url)
    finish_upload(run, place.url, 0)
    assert not spool.exists()


def test_the_current_folder_is_uploaded_by_its_name(
    run: Path, runs: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    done = CliRunner().invoke(cli, ["upload", ".", runs.url])
    assert done.exit_code == 0, done.output
    assert "run.json" in (runs / run.name).objects()


def test_the_list_of_finished_runs_is_read_without_their_tables(
    run: Path, runs: RemotePlace, cache: Path
) -> None:
    finish_upload(run, (runs / run.name).url, 0)
    (runs / "something-else").write("readme", b"")
    expected = list_runs(run.parent).to_pylist()
    assert list_runs(runs.url).to_pylist() == expected
    assert list_runs((runs / run.name).url).to_pylist() == expected
    assert not (cache / run.name).exists()
    (runs / run.name).write("list.json", json.dumps({"name": ["x"], "start": 7}).encode())
    assert list_runs(runs.url).to_pylist()[0]["tasks"] == expected[0]["tasks"]


def test_another_run_is_not_replaced(run: Path, tmp_path: Path, runs: RemotePlace) -> None:
    place = runs / run.name
    upload_run(run, place, {})
    other = tmp_path / "other" / run.name
    shutil.copytree(run, other)
    facts = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**facts, "run": "ffffffff"}))
    with pytest.raises(StrataError, match="another run"):
        upload_run(other, place, {})


def test_a_place_without_a_run_is_not_one(runs: RemotePlace) -> None:
    with pytest.raises(NotARunError, match="not a run"):
        open_run((runs / "nothing").url)


def test_a_place_that_is_no_run_is_not_listed_whole(
    runs: RemotePlace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket can have millions of objects of something else."""
    (runs / "data").write("a/b", b"x")
    monkeypatch.setattr(RemotePlace, "objects", None)
    assert list_runs(runs.url).num_rows == 0
    with pytest.raises(NotARunError, match="not a run"):
        open_run((runs / "data").url)
    assert not list(cache.rglob("*"))


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    run: Path, runs: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        finish_upload(run, (runs / name).url, 0)
    read = RemotePlace.read

    def refuse(place: RemotePlace, name: str, start: int, stop: int) -> bytes:
        if place.url.endswith("/one"):
            raise StrataError("Access denied.")
        return read(place, name, start, stop)

    monkeypatch.setattr(RemotePlace, "read", refuse)
    rows = list_runs(runs.url).to_pylist()
    assert [(row["run"], row["problem"]) for row in rows] == [
        ("one", "Access denied."),
        ("two", None),
    ]


def test_a_bundle_brings_no_more_bytes_than_its_listed_size(
    run: Path, runs: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free disk space is compared with the listed sizes."""
    place = runs / run.name
    segment = next((run / "segments").iterdir())
    parts = [Part(f"segments/{segment.name}", 0, segment.read_bytes())]
    place.write("run.json", (run / "run.json").read_bytes())
    place.write(bundle_name(0), encode_bundle(parts))
    listed = RemotePlace.objects

    def small(place: RemotePlace) -> dict[str, Object]:
        found = listed(place)
        return found | {bundle_name(0): Object(30, found[bundle_name(0)].modified_ns)}

    monkeypatch.setattr(RemotePlace, "objects", small)
    assert not list(open_run(place.url).path.glob("segments/*"))


def test_a_copy_in_use_is_not_removed(
    run: Path, runs: RemotePlace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_upload(run, (runs / run.name).url, 0)
    path = open_run((runs / run.name).url).path
    monkeypatch.setattr(mirror, "_IN_USE_SECONDS", -60)
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_old_copies(cache, 0)
        assert path.is_dir()
    remove_old_copies(cache, 0)
    assert not path.exists()
    assert not lock.exists()


def test_a_process_that_waits_for_a_copy_that_is_removed_makes_it_anew(
    run: Path, runs: RemotePlace
) -> None:
    finish_upload(run, (runs / run.name).url, 0)
    opened = open_run((runs / run.name).url)
    lock = opened.path.with_name(f".{opened.path.name}.lock")
    refreshing = threading.Thread(target=opened.refresh)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refreshing.start()
        wait_until(lambda: "-> FLOCK" in Path("/proc/locks").read_text(), what="the thread waits")
        shutil.rmtree(opened.path)
        lock.unlink()
    refreshing.join(30)
    assert lock.exists()
    assert_equal(open_run(run), opened)


HOSTILE = ("../out", "/out", "segments/../../out", "segments/a/../../../out", "other/x", "parquet")


def test_names_that_lead_out_of_the_copy_are_ignored(
    run: Path, runs: RemotePlace, tmp_path: Path
) -> None:
    place = runs / run.name
    place.write("run.json", (run / "run.json").read_bytes())
    parts = [Part(name, 0, b"x", 1, 1) for name in HOSTILE]
    segment = next((run / "segments").iterdir())
    parts.append(Part(f"segments/{segment.name}", 0, segment.read_bytes()))
    place.write(bundle_name(0), encode_bundle(parts))
    place.write(bundle_name(1), b"not a bundle")
    place.write("segments/..seg", b"x")
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    opened = open_run(place.url)
    assert {p.name for p in opened.path.rglob("*") if p.is_file() and p.name[0] != "."} == {
        "run.json",
        segment.name,
    }
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == before


def test_a_run_that_is_larger_than_the_disk_is_not_fetched(
    run: Path, runs: RemotePlace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_run(run, runs / run.name, {})
    monkeypatch.setattr(mirror, "_SPACE", 0)
    with pytest.raises(StrataError, match="whose disk has"):
        open_run((runs / run.name).url)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name[0] != "."]


def test_the_server_reads_runs_at_a_url(run: Path, runs: RemotePlace, cache: Path) -> None:
    finish_upload(run, (runs / run.name).url, 0)
    served = RunCache(runs.url)
    assert served.count() == 1
    [listed] = list_runs(run.parent).to_pylist()
    assert table_of(served.rows()).to_pylist() == [listed | {"number": None}]
    assert not list(cache.glob(f"*/{run.name}"))
    assert_equal(open_run(run), served.run(run.name))
    assert served.mark(run.name) == served.mark(run.name)
    for name in ("nothing", "..", ""):
        with pytest.raises(NotARunError):
            served.path(name)


def test_commands_read_a_run_at_a_url(run: Path, runs: RemotePlace, tmp_path: Path) -> None:
    finish_upload(run, (runs / run.name).url, 0)
    url = (runs / run.name).url
    for name in ("show", "check", "tasks", "map"):
        local, found = (CliRunner().invoke(cli, [name, place]) for place in (str(run), url))
        assert found.exit_code == local.exit_code, found.output
        assert found.output.replace(url, str(run)) == local.output
    page = tmp_path / "page.html"
    assert CliRunner().invoke(cli, ["report", url, "-o", str(page)]).exit_code == 0
    assert url in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xff\xff\xff",
        (4).to_bytes(4, "big") + b"[[]]",
        (20).to_bytes(4, "big") + b'[["run.json",0,9,0]]',
        (22).to_bytes(4, "big") + b'[["run.json",0,9,9,1]]',
        (23).to_bytes(4, "big") + b'[["run.json",0,-1,9,1]]',
        (2).to_bytes(4, "big") + b"{1",
    ],
)
def test_a_damaged_bundle_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError):
        decode_bundle(b"dask-strata parts 1\n" + damage)


def test_the_copies_that_were_not_used_for_longest_are_removed(
    run: Path, runs: RemotePlace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name in ("old", "new"):
        upload_run(run, runs / name, {})
        paths.append(open_run((runs / name).url).path)
    remove_old_copies(cache, 0)
    assert all(path.is_dir() for path in paths), "copies in use stay"
    monkeypatch.setattr(mirror, "_IN_USE_SECONDS", -60)
    sizes = [sum(f.lstat().st_blocks * 512 for f in path.rglob("*")) for path in paths]
    remove_old_copies(cache, sizes[1])
    assert [path.is_dir() for path in paths] == [False, True]
    assert (paths[1].parent.stat().st_mode | paths[1].stat().st_mode) & 0o077 == 0

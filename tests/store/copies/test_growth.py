"""A copy that is made in parts while a run grows equals the run, byte for byte."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.store.copies.growth import Part, Position, positions, read_growth, write_part
from dask_strata.store.safe_files import RefusedError
from dask_strata.store.segments.frames import FRAME_OVERHEAD, Batch, Encoder

SEGMENTS = ("segments/scheduler-00000001.seg", "segments/worker-00000002.seg")
OTHERS = ("run.json", "profiles/a.pstat", "additions/x/tasks/part.parquet", "parquet/index.json")
STEPS = ("frame", "half a frame", "cut it off", "replace", "copy", "copy half", "resume")

_times = itertools.count(1_600_000_000_000_000_000, 1_000)


class Growing:
    """A run that grows in steps, and its copy."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.copy = folder / "run", folder / "copy"
        self.folder.mkdir()
        self.copy.mkdir()
        self.random = random.Random(seed)
        self.seen: dict[str, Position] = {}
        self.replace("run.json")

    def grow(self, step: str) -> None:
        name = self.random.choice(SEGMENTS)
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        frame = Encoder("x", {}).frame([Batch("job", 1, {"name": [str(self.random.random())]})])
        if step == "replace":
            self.replace(self.random.choice(OTHERS))
        elif step == "half a frame":
            self.whole = path.stat().st_size if path.exists() else 0
            self.append(path, frame[: self.random.randrange(len(frame))])
            self.half = path
        elif step == "frame":
            self.append(path, frame)

    def append(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    def replace(self, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.random.randbytes(self.random.choice((0, 1, 300))))
        now = next(_times)
        os.utime(path, ns=(now, now))

    def bring(self, *, ended: bool = False, most: int | None = None) -> bool:
        parts = read_growth(self.folder, self.seen, self.random.choice((1, 50, 9999)), ended=ended)
        for part in parts[:most]:
            write_part(self.copy, part)
            write_part(self.copy, part)  # again, as if the first reply had been lost
            self.seen[part.name] = part.after
        return bool(parts)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


@given(st.lists(st.sampled_from(STEPS), max_size=40), st.integers())
def test_a_copy_in_parts_equals_the_run(steps: list[str], seed: int) -> None:
    """Whatever the order of writing, copying, interrupting and resuming."""
    folder = Path(tempfile.mkdtemp())
    try:
        run = Growing(folder, seed)
        half: tuple[Path, int] | None = None
        for step in steps:
            if half is not None and step in {"frame", "half a frame", "cut it off"}:
                os.truncate(*half)  # the writer truncates before it writes the next frame
                half = None
            if step == "copy":
                run.bring()
            elif step == "copy half":
                run.bring(most=1)
            elif step == "resume":
                run.seen = positions(run.copy)
            else:
                run.grow(step)
                if step == "half a frame":
                    half = run.half, run.whole
        while run.bring(ended=True):
            pass
        assert contents(run.copy) == contents(run.folder)
        assert read_growth(run.folder, positions(run.copy), 1) == [] or half is not None
    finally:
        shutil.rmtree(folder)


def test_only_whole_frames_are_copied_until_the_end(tmp_path: Path) -> None:
    """A frame that is not complete yet may still be cut off by its writer."""
    run = Growing(tmp_path, 0)
    path = run.folder / SEGMENTS[0]
    path.parent.mkdir()
    frame = Encoder("x", {}).header()
    path.write_bytes(frame + frame[:-1])
    while run.bring():
        pass
    assert (run.copy / SEGMENTS[0]).read_bytes() == frame
    while run.bring(ended=True):
        pass
    assert (run.copy / SEGMENTS[0]).read_bytes() == path.read_bytes()


def test_a_frame_larger_than_the_limit_is_copied_alone(tmp_path: Path) -> None:
    """Otherwise the copy would never continue."""
    run = Growing(tmp_path, 0)
    path = run.folder / SEGMENTS[0]
    path.parent.mkdir()
    frame = Encoder("x", {}).header()
    assert len(frame) > FRAME_OVERHEAD + 5
    path.write_bytes(frame * 3)
    seen = {"run.json": read_growth(run.folder, {}, 1 << 20)[0].after}
    assert [len(part.data) for part in read_growth(run.folder, seen, 5)] == [len(frame)]


def test_links_pipes_and_hidden_files_are_not_copied(tmp_path: Path) -> None:
    """A run could otherwise bring any file of the scheduler's machine."""
    run = Growing(tmp_path, 0)
    (tmp_path / "secret").write_text("secret")
    (run.folder / "segments").mkdir()
    (run.folder / "segments" / "worker-1.seg").symlink_to(tmp_path / "secret")
    (run.folder / "profiles").symlink_to(tmp_path)
    (run.folder / "elsewhere").mkdir()
    (run.folder / "elsewhere" / "file").write_text("no part of a run")
    (run.folder / ".hidden").write_text("unfinished")
    os.mkfifo(run.folder / "segments" / "worker-2.seg")
    assert [part.name for part in read_growth(run.folder, {}, 1 << 20)] == ["run.json"]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    """A copy without it would seem to be complete."""
    run = Growing(tmp_path, 0)
    (run.folder / "run.json").rename(tmp_path / "run.json")
    (run.folder / "run.json").symlink_to(tmp_path / "run.json")
    (run.folder / "segments").mkdir()
    (run.folder / SEGMENTS[0]).write_bytes(Encoder("x", {}).header())
    unread: list[str] = []
    parts = read_growth(run.folder, {}, 1 << 20, unreadable=unread.append)
    assert [part.name for part in parts] == [SEGMENTS[0]]
    assert unread == ["run.json"]


BAD_NAMES = (
    "../outside", "/etc/passwd", "segments/../../outside", "segments//x.seg", "segments/./x.seg",
    "", ".", "segments", "other/x.seg", ".run.json", "segments/.x.seg", "segments/x\0.seg",
    "segments/x\n.seg", "segments/" + "x" * 300, "a/b/c/d/e/f/g/h",
    "additions/a/b/c/d/e/f",
)  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_out_of_the_run_are_refused(tmp_path: Path, name: str) -> None:
    """Names come from another machine."""
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(RefusedError):
        write_part(run, Part(name, 0, b"x", 1, 1))
    assert [str(p) for p in tmp_path.rglob("*")] == [str(run)]


def test_parts_of_a_wrong_type_or_range_are_refused(tmp_path: Path) -> None:
    """So are gaps, which would make a sparse file of any size."""
    good = Part("run.json", 0, b"x", 1, 1)
    for wrong in (
        good._replace(name=7),
        good._replace(data="x"),
        good._replace(offset=-1),
        good._replace(offset=True),
        good._replace(size=1 << 60),
        good._replace(size=0),
        good._replace(version=1 << 63),
        good._replace(offset=1, size=2),
        Part("segments/w.seg", 1 << 40, b"x"),
    ):
        with pytest.raises(RefusedError):
            write_part(tmp_path, wrong)


def test_links_in_the_copy_are_not_followed(tmp_path: Path) -> None:
    """Neither for a file nor for a folder on its path."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (outside / "file").write_text("mine")
    (run / "profiles").symlink_to(outside)
    (run / "segments").mkdir()
    (run / "segments" / "w.seg").symlink_to(outside / "file")
    (run / "run.json").symlink_to(outside / "file")
    for name in ("profiles/file", "segments/w.seg", "run.json"):
        with pytest.raises(OSError):
            write_part(run, Part(name, 0, b"theirs", 6, 1))
    assert (outside / "file").read_text() == "mine"
    assert [p.name for p in outside.iterdir()] == ["file"]


def test_new_files_have_the_permissions_of_the_folder(tmp_path: Path) -> None:
    """Whatever the umask."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o750)
    write_part(run, Part("run.json", 0, b"{}", 2, 1))
    write_part(run, Part("segments/w.seg", 0, b"x"))
    modes = {str(p.relative_to(run)): p.stat().st_mode & 0o777 for p in run.rglob("*")}
    assert modes == {"run.json": 0o640, "segments": 0o750, "segments/w.seg": 0o640}

"""If the disk is full, gone or read-only, the workflow continues and one warning is logged."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.store.segments.frames import MAGIC
from dask_strata.store.sinks import FileSink, RelaySink, Sink
from tests.conftest import assert_whole, rows, wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

#: A workflow whose records are large: keys of random text do not compress well.
WORKFLOW = """
import os, pathlib, secrets, sys, time
import dask, dask_strata
from distributed import Client, LocalCluster

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)

if __name__ == "__main__":
    runs, signs, (n, size) = sys.argv[1], pathlib.Path(sys.argv[2]), map(int, sys.argv[3:])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        with dask_strata.record(runs, client=client, sample_interval="200ms") as run:
            assert client.submit(sum, [1, 2]).result() == 3
            time.sleep(0.5)  # so that the first records are written
            (signs / "started").write_text(str(run.path))
            wait_for(signs / "go")
            keys = [secrets.token_hex(size // 2) for _ in range(n)]
            futures = client.map(abs, range(n), key=keys)
            print(sum(client.gather(futures)))
            time.sleep(0.5)  # so that the failing writes are tried
            (signs / "worked").write_text("yes")
            wait_for(signs / "end")
            time.sleep(0.5)
    print("ended well")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a small file system."""
    mounted: list[Path] = []

    def mount(mebibytes: int, *options: str) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join([f"size={mebibytes}m", *options]), "t", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"NOT TESTED: a small disk cannot be mounted here: {done.stderr}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


def has_text(path: Path) -> bool:
    """Return whether a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0


class Workflow:
    """The workflow in a separate process, which waits at each step for a signal to continue."""

    def __init__(self, tmp_path: Path, runs: Path, n: int, size: int) -> None:
        self.signs = tmp_path / "signs"
        self.signs.mkdir()
        script = tmp_path / "workflow.py"
        script.write_text(textwrap.dedent(WORKFLOW))
        self.expected = sum(range(n))
        self.process = subprocess.Popen(
            [sys.executable, script, str(runs), str(self.signs), str(n), str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )

    def wait(self, sign: str) -> str:
        path = self.signs / sign
        wait_until(lambda: has_text(path) or self.process.poll() is not None, 90, sign)
        if not path.exists():
            pytest.fail(f"the workflow ended early: {self.process.communicate()}")
        return path.read_text()

    def signal(self, sign: str) -> None:
        (self.signs / sign).touch()

    def end(self) -> str:
        """Let the workflow end, check its result, and return its standard error."""
        self.signal("end")
        out, err = self.process.communicate(timeout=90)
        assert self.process.returncode == 0, err
        assert out.splitlines() == [str(self.expected), "ended well"], err
        return err


@pytest.fixture
def workflow(tmp_path: Path) -> Iterator[Callable[..., Workflow]]:
    """Start the workflow."""
    started: list[Workflow] = []

    def start(runs: Path, n: int = 200, size: int = 100) -> Workflow:
        started.append(Workflow(tmp_path, runs, n, size))
        return started[-1]

    yield start
    for made in started:
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


def warnings(err: str) -> list[str]:
    return [line for line in err.splitlines() if "dask-strata" in line]


def processes_that_warned_once(err: str) -> list[str]:
    """Return the processes with a warning that they cannot write; each must have one line."""
    lines = warnings(err)
    assert lines, err
    assert f"{os.sep}dask_strata{os.sep}" not in err, err  # no traceback of the recorder
    assert all("cannot write the records of" in line for line in lines), lines
    processes = [line.split("the records of ")[1].split(":")[0] for line in lines]
    # Scheduler, client and nannies share a process here, and log one warning together.
    assert sum(not p.startswith("worker-") for p in processes) <= 1, lines
    assert len(processes) == len(set(processes)), lines
    return processes


def fill(folder: Path) -> Path:
    """Fill a disk to the last byte, and return the file that fills it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    return ballast


def test_full_disk_that_gets_room_again(
    disk: Callable[[int], Path], workflow: Callable[..., Workflow]
) -> None:
    """Rows that cannot be written to a full disk are kept, and written when there is room."""
    runs = disk(8)
    work = workflow(runs)
    path = work.wait("started")
    ballast = fill(runs)
    work.signal("go")
    work.wait("worked")
    ballast.unlink()
    err = work.end()
    processes_that_warned_once(err)
    run = open_run(path)
    assert run.state == "complete"
    assert_whole(run)
    [counted] = rows(run, "select count(*) as n from tasks where state = 'memory'")
    assert counted["n"] >= 201


def test_full_disk_beyond_the_backlog(
    disk: Callable[[int], Path], workflow: Callable[..., Workflow]
) -> None:
    """Rows beyond the backlog of a full disk are dropped and counted, and `check` reports them."""
    runs = disk(64)
    work = workflow(runs, n=2_000, size=10_000)
    path = work.wait("started")
    ballast = fill(runs)
    work.signal("go")
    work.wait("worked")
    ballast.unlink()
    err = work.end()
    processes_that_warned_once(err)
    run = open_run(path)
    assert run.state == "complete"
    lost = rows(run, "select process, count, reason from losses where what = 'rows'")
    assert any(r["reason"] == "could not be written" and r["count"] > 0 for r in lost), lost
    check = run.check()
    assert not check.ok
    assert {r["process"] for r in lost if r["process"] != "reader"} <= {
        f.process for f in check.missing
    }
    assert any("could not be written" in f.text for f in check.missing)


@pytest.mark.release
def test_disk_that_stays_full(
    disk: Callable[[int], Path],
    workflow: Callable[..., Workflow],
    strata: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """On a disk that stays full the run still opens, and `check` reports the last row's time."""
    runs = disk(1)
    work = workflow(runs, n=300, size=10_000)
    path = work.wait("started")
    fill(runs)
    work.signal("go")
    work.wait("worked")
    warned = processes_that_warned_once(work.end())
    run = open_run(path)
    assert run.state == "cut"
    done = strata("check", "--format", "json", path)
    assert done.returncode == 1, done.stderr
    missing = [f for f in json.loads(done.stdout)["findings"] if f["severity"] == "missing"]
    assert set(warned) <= {f["process"] for f in missing}
    assert any("was killed after" in f["text"] and "UTC" in f["text"] for f in missing)
    assert rows(run, "select count(*) as n from scheduler_transitions")[0]["n"] > 0
    assert strata("show", path).returncode == 0


def framed(payload: bytes) -> bytes:
    """Return a payload with the head of a frame."""
    return struct.pack("<4sII", MAGIC, len(payload), zlib.crc32(payload)) + payload


@pytest.mark.parametrize("relayed", [False, True])
def test_frame_written_in_part_is_cut_off_again(
    disk: Callable[[int], Path], *, relayed: bool
) -> None:
    """A frame that fits only in part is cut off again, and written once when there is room."""
    folder = disk(1)
    path = folder / "worker-0a1b2c3d.seg"
    header, frame, end = map(framed, (b"h" * 1000, b"f" * 20_000, b"end"))
    if relayed:
        sink: Sink = RelaySink(folder, ".seg")
        frame_of = partial(RelaySink.label, "worker-0a1b2c3d")
        sink.write(frame_of(header), 0)
    else:
        sink, frame_of = FileSink(path, header), bytes
    ballast = fill(folder)
    for _ in range(3):
        sink.write(frame_of(frame), 1)
        assert sink.error
    ballast.unlink()
    sink.write(frame_of(end), 1)
    assert sink.error is None
    assert path.read_bytes() == header + 3 * frame + end
    sink.close()


def test_folder_removed_while_recording(tmp_path: Path, workflow: Callable[..., Workflow]) -> None:
    """If the folder of a run is removed, the workflow continues and one warning is logged."""
    work = workflow(tmp_path / "runs")
    path = Path(work.wait("started"))
    shutil.rmtree(path)
    work.signal("go")
    work.wait("worked")
    processes_that_warned_once(work.end())
    assert not path.exists()


SCRIPT = """
from distributed import Client
if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        print(client.submit(sum, [1, 2]).result())
"""


@pytest.fixture(params=["a file", "read-only"])
def no_folder(request: pytest.FixtureRequest, tmp_path: Path, disk: Callable[..., Path]) -> Path:
    """A path at which no folder can be created."""
    if request.param == "read-only":
        return disk(1, "ro") / "runs"
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file" / "runs"


def test_record_that_cannot_start(no_folder: Path, script: Callable[..., Path]) -> None:
    """The block runs, one line has the reason and a hint, and the cluster has no trace of it."""
    path = script(f"""
        import dask_strata
        from distributed import Client
        if __name__ == "__main__":
            with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
                with dask_strata.record({str(no_folder)!r}, client=client) as run:
                    print(bool(run))
                print(client.submit(sum, [1, 2]).result())
                print(len(client.run_on_scheduler(lambda dask_scheduler: [
                    p for p in dask_scheduler.plugins if "strata" in p])))
    """)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.splitlines() == ["False", "3", "0"], done.stderr
    (reason,) = [line for line in done.stderr.splitlines() if "dask-strata" in line]
    assert f"cannot write {no_folder}" in reason
    assert "Choose a folder" in reason
    assert done.returncode == 0


def test_record_command_that_cannot_write(
    no_folder: Path,
    script: Callable[..., Path],
    strata: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """`dask-strata record` logs one line that it cannot record, and the script runs."""
    done = strata("record", "-o", no_folder, script(SCRIPT))
    assert done.stdout == "3\n"
    assert done.returncode == 0
    warned = [line for line in done.stderr.splitlines() if "does not record" in line]
    assert len(warned) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_preload_that_cannot_write(no_folder: Path, script: Callable[..., Path]) -> None:
    """A scheduler with the preload logs one line, and the workflow runs."""
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
        "DASK_DASK_STRATA__RUNS": repr(str(no_folder)),
    }
    done = subprocess.run(
        [sys.executable, script(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=environment,
    )
    assert done.stdout == "3\n", done.stderr
    assert done.returncode == 0
    assert len(warnings(done.stderr)) == 1, done.stderr
    assert "Traceback" not in done.stderr

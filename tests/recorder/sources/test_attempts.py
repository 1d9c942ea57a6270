"""What each run of a task used, compared with what the task itself knows to have used."""

# Tasks open files in all the ways there are, not only in the ones that we prefer.
# ruff: noqa: ASYNC230, PTH103, PTH110, PTH119, PTH123

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import mmap
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import (
    Client,
    LocalCluster,
    Reschedule,
    as_completed,
    get_client,
    get_worker,
    secede,
    worker_client,
)

import dask_strata
from dask_strata import Run
from tests.conftest import assert_whole, rows, wait_until

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(
    not Path("/proc/thread-self/io").exists(), reason="only Linux accounts for threads"
)

ROOT = Path(__file__).parents[2]
PAGE = mmap.PAGESIZE
MB = 1_000_000

#: Columns of what a run used, all of which the kernel tells here.
MEASURES = (
    "cpu_seconds",
    "read_bytes",
    "write_bytes",
    "read_calls",
    "write_calls",
    "storage_read_bytes",
    "storage_write_bytes",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "rss_before_bytes",
    "rss_after_bytes",
    "rss_peak_bytes",
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of one worker process with one thread."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.submit(nothing).result()
        yield made


@pytest.fixture(scope="module")
def two_threads() -> Iterator[Client]:
    """A client of one worker process with two threads."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.submit(nothing).result()
        yield made


def attempts(run: Run, key: str) -> list[dict[str, Any]]:
    """Return the attempts at a task in order."""
    return rows(run, f"select * from attempts where key = '{key}' order by attempt")


def attempt(run: Run, key: str) -> dict[str, Any]:
    """Return the one attempt at a task, of whose run everything is on record."""
    (found,) = attempts(run, key)
    assert found["kind"] == "thread"
    assert not [name for name in MEASURES if found[name] is None]
    return found


def opens(run: Run, key: str) -> set[tuple[str, str, int]]:
    """Return name, mode and count of the files that a task was seen to open."""
    found = rows(run, f"select uri, mode, count from file_opens where key = '{key}'")
    return {(row["uri"], row["mode"], row["count"]) for row in found}


def forgotten(client: Client, key: str) -> None:
    """Wait until the scheduler has forgotten a task."""

    def known(dask_scheduler: Any) -> bool:
        return key in dask_scheduler.tasks

    wait_until(lambda: not client.run_on_scheduler(known), what=f"{key} to be forgotten")


def nothing() -> None:
    """Do nothing."""


# Counters of the thread itself: a task between two others in the same thread has used at
# least what it says, and at most what went by between its neighbours.

USED = {
    "minor_faults": "ru_minflt",
    "major_faults": "ru_majflt",
    "voluntary_switches": "ru_nvcsw",
    "involuntary_switches": "ru_nivcsw",
}


def counters() -> dict[str, Any]:
    """Return the calling thread and what it used so far."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return {
        "thread": threading.get_ident(),
        "cpu_seconds": time.thread_time_ns(),
        **{column: getattr(usage, name) for column, name in USED.items()},
    }


def around(function: Callable[..., Any], *arguments: Any) -> tuple[dict, dict, Any]:
    """Call a function; return the counters before and after, and its result."""
    before = counters()
    result = function(*arguments)
    return before, counters(), result


def spin() -> None:
    """Use a fifth of a second of CPU time."""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass


def rest() -> None:
    """Sleep five times."""
    for _ in range(5):
        time.sleep(0.04)


def touch(pages: int) -> None:
    """Touch that many pages of fresh memory."""
    with mmap.mmap(-1, pages * PAGE) as memory:
        with contextlib.suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(0, pages * PAGE, PAGE):
            memory[start] = 1


def bracketed(client: Client, runs: Path, function: Callable[..., Any], *arguments: Any) -> dict:
    """Run a function between two others; its attempt agrees with what the thread's clocks say."""
    with dask_strata.record(runs, client=client) as run:
        _, begin, _ = client.submit(counters_only, "a", key="before", pure=False).result()
        first, last, _ = client.submit(around, function, *arguments, key="middle").result()
        end, _, _ = client.submit(counters_only, "b", key="after", pure=False).result()
    assert_whole(run)
    assert begin["thread"] == first["thread"] == end["thread"]
    found = attempt(run, "middle")
    assert found["thread"] == first["thread"]
    for column in ("cpu_seconds", *USED):
        used = round(found[column] * 1e9) if column == "cpu_seconds" else found[column]
        assert last[column] - first[column] <= used <= end[column] - begin[column], column
    return found


def counters_only(_: str) -> tuple[dict, dict, Any]:
    """Do nothing but look at the counters."""
    return around(nothing)


def test_cpu_is_that_of_the_thread(client: Client, runs: Path) -> None:
    """A busy task has used its CPU time, a sleeping one next to none."""
    assert bracketed(client, runs, spin)["cpu_seconds"] >= 0.2
    slept = bracketed(client, runs, rest)
    assert slept["cpu_seconds"] < 0.2
    assert slept["voluntary_switches"] >= 5


def test_faults_are_those_of_the_thread(client: Client, runs: Path) -> None:
    """A task that touches fresh memory has a fault for each page of it."""
    assert bracketed(client, runs, touch, 3000)["minor_faults"] >= 3000
    assert bracketed(client, runs, nothing)["minor_faults"] < 3000


# Bytes and calls, of functions that know exactly what they ask of the kernel.


def read_pieces(path: str, size: int) -> int:
    """Read a file in pieces; return how often, the empty last piece too."""
    file, calls = os.open(path, os.O_RDONLY), 1
    while os.read(file, size):
        calls += 1
    os.close(file)
    return calls


def read_whole(path: str, _: int) -> None:
    """Read a file as one does in Python."""
    with open(path, "rb") as file:
        file.read()


def read_array(path: str) -> tuple[int, int]:
    """Read a file of numbers with NumPy; return their sum, and what the kernel counted as read."""
    io = os.open("/proc/thread-self/io", os.O_RDONLY)
    before = os.pread(io, 500, 0)
    total = int(np.fromfile(path, dtype="uint8").sum())
    after = os.pread(io, 500, 0)
    os.close(io)
    first, last = (int(text.split()[1]) for text in (before, after))
    return total, last - first + len(after)


def write_pieces(path: str, size: int) -> int:
    """Write ten pieces of that size; return how often."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(10):
        os.write(file, b"x" * size)
    os.close(file)
    return 10


def copy(path: str, size: int) -> tuple[int, int]:
    """Read a file in pieces, write each, and return how often both."""
    calls = [0, 0]
    with open(path, "rb", buffering=0) as source, open(f"{path}.copy", "wb", buffering=0) as sink:
        calls[0] += 1
        while piece := source.read(size):
            calls[0] += 1
            calls[1] += sink.write(piece) > 0
    return calls[0], calls[1]


def used_twice(
    client: Client, runs: Path, function: Callable[..., Any], *arguments: Any
) -> tuple[dict[str, Any], Any]:
    """Return the attempt and the result of the second of two equal tasks.

    The first one may have something to import.
    """
    with dask_strata.record(runs, client=client) as run:
        client.submit(function, *arguments, key="first").result()
        result = client.submit(function, *arguments, key="second").result()
    return attempt(run, "second"), result


@pytest.mark.parametrize("size", [1, 999, 100_000, 3 * MB])
def test_bytes_and_calls_are_exact(client: Client, runs: Path, tmp_path: Path, size: int) -> None:
    """Bytes and calls of reading and writing are those that the task made, to the byte."""
    path = tmp_path / "data"
    path.write_bytes(b"y" * size)
    piece = max(1, size // 7)
    found, calls = used_twice(client, runs, read_pieces, str(path), piece)
    assert (found["read_bytes"], found["read_calls"]) == (size, calls)
    assert (found["write_bytes"], found["write_calls"]) == (0, 0)
    found, _ = used_twice(client, runs, read_whole, str(path), piece)
    assert (found["read_bytes"], found["write_bytes"]) == (size, 0)
    found, calls = used_twice(client, runs, write_pieces, str(tmp_path / "new"), piece)
    assert (found["write_bytes"], found["write_calls"]) == (10 * piece, calls)
    assert (found["read_bytes"], found["read_calls"]) == (0, 0)
    found, calls = used_twice(client, runs, copy, str(path), piece)
    assert (found["read_bytes"], found["write_bytes"]) == (size, size)
    assert (found["read_calls"], found["write_calls"]) == calls


def test_bytes_read_by_numpy(client: Client, runs: Path, tmp_path: Path) -> None:
    """What NumPy reads through C's own files is counted, as often as C reads it."""
    path = tmp_path / "numbers"
    path.write_bytes(b"\1" * MB)
    found, (total, counted) = used_twice(client, runs, read_array, str(path))
    assert total == MB
    assert found["read_bytes"] == counted > MB


def test_a_task_that_does_nothing_reads_nothing(client: Client, runs: Path) -> None:
    """Our own reading of the accounting is not in it."""
    found, _ = used_twice(client, runs, nothing)
    assert [found[name] for name in MEASURES[1:7]] == [0] * 6
    assert found["n_opened"] == 0


# Memory.

KEPT: list[Any] = []


def keep(size: int) -> None:
    """Fill memory and keep it, in the worker's process."""
    KEPT.append(b"x" * size)


def drop() -> None:
    """Let go of what was kept."""
    KEPT.clear()


def fill(size: int) -> None:
    """Fill memory and let go of it."""
    data = b"x" * size
    del data


def peak_of_parent() -> tuple[int, int]:
    """Return the peaks of this process's memory: inherited from its parent, and its own."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, own


def test_memory_before_after_and_at_its_peak(client: Client, runs: Path) -> None:
    """What a task allocates and keeps is there after it, what it lets go of in the peak."""
    with dask_strata.record(runs, client=client) as run:
        client.submit(nothing, key="idle").result()
        client.submit(keep, 100 * MB, key="keeps").result()
        client.submit(drop, key="drops").result()
        client.submit(fill, 300 * MB, key="fills").result()
        client.submit(nothing, key="again").result()
    kept, dropped, filled = (attempt(run, key) for key in ("keeps", "drops", "fills"))
    for key in ("idle", "again"):
        found = attempt(run, key)
        assert found["rss_peak_bytes"] < found["rss_before_bytes"] + 50 * MB
    assert 90 * MB < kept["rss_after_bytes"] - kept["rss_before_bytes"] < 150 * MB
    assert kept["rss_peak_bytes"] >= kept["rss_after_bytes"]
    assert 90 * MB < dropped["rss_before_bytes"] - dropped["rss_after_bytes"] < 150 * MB
    assert 290 * MB < filled["rss_peak_bytes"] - filled["rss_before_bytes"] < 350 * MB
    assert filled["rss_after_bytes"] < filled["rss_before_bytes"] + 50 * MB


def test_peaks_below_that_of_the_parent_are_seen(runs: Path) -> None:
    """A worker that was started by a larger process has peaks of its own."""
    data = b"x" * (800 * MB)  # what the user has in memory when the cluster is started
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        del data
        ((inherited, own),) = client.run(peak_of_parent).values()
        assert own + 200 * MB < inherited, "the worker must not be larger for this to be a test"
        with dask_strata.record(runs, client=client) as run:
            client.submit(nothing, key="idle").result()
            client.submit(fill, 200 * MB, key="fills").result()
            client.submit(nothing, key="again").result()
    filled = attempt(run, "fills")
    assert 190 * MB < filled["rss_peak_bytes"] - filled["rss_before_bytes"] < 250 * MB
    again = attempt(run, "again")
    assert again["rss_peak_bytes"] < again["rss_before_bytes"] + 50 * MB


# Several at once.

MEETING = threading.Barrier(2)


def meet(_: int) -> str:
    """Wait for another task in the same process to do the same."""
    MEETING.wait(60)
    return get_worker().address


def test_shared_is_whether_others_ran_meanwhile(two_threads: Client, runs: Path) -> None:
    """Two tasks at once in one process share it, one alone does not."""
    with dask_strata.record(runs, client=two_threads) as run:
        two_threads.submit(nothing, key="alone").result()
        pair = [two_threads.submit(meet, i, key=f"meets-{i}") for i in range(2)]
        two_threads.gather(pair)
        two_threads.submit(nothing, key="alone-again").result()
    shared = {r["key"]: r["shared"] for r in rows(run, "select key, shared from attempts")}
    assert shared == {"alone": False, "meets-0": True, "meets-1": True, "alone-again": False}


def test_two_workers_in_one_process(runs: Path) -> None:
    """Each of two workers in one process has rows of its own, once each."""
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    with (
        LocalCluster(**options, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        pair = [client.submit(meet, i, key=f"meets-{i}") for i in range(2)]
        where = dict(zip(("meets-0", "meets-1"), client.gather(pair), strict=True))
    assert_whole(run)
    assert len(set(where.values())) == 2
    found = rows(run, "select key, worker from executions order by key")
    assert [(r["key"], r["worker"]) for r in found] == sorted(where.items())
    assert all(attempt(run, key)["shared"] for key in where)


def test_two_recordings_at_once(client: Client, runs: Path) -> None:
    """Both see each run once, with the same numbers, also when one ends before the other."""
    with dask_strata.record(runs, client=client, name="outer") as outer:
        client.submit(nothing, key="a").result()
        with dask_strata.record(runs, client=client, name="inner") as inner:
            client.submit(rest, key="b").result()
        client.submit(nothing, key="c").result()
    assert {r["key"] for r in rows(outer, "select key from executions")} == {"a", "b", "c"}
    columns = ", ".join(("key", "kind", "thread", "n_opened", *MEASURES))
    query = f"select {columns} from executions where key = 'b'"
    assert len(rows(inner, query)) == 1
    assert rows(inner, query) == rows(outer, query)
    assert_whole(outer)
    assert_whole(inner)


# Files.


def open_all(folder: str) -> None:
    """Open files in all the ways there are."""
    with open(f"{folder}/with space.txt", "w"):
        pass
    for _ in range(2):
        with open(f"{folder}/with space.txt"):
            pass
    (Path(folder) / "new\nline.bin").write_bytes(b"x")
    (Path(folder) / "new\nline.bin").read_bytes()
    with open(f"{folder}/with space.txt", "r+b"):
        pass
    with open(f"{folder}/with space.txt", "a"):
        pass
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        os.close(os.open(os.fsencode(f"{folder}/new\nline.bin"), flags))
    np.save(f"{folder}/array.npy", np.ones(3))
    np.load(f"{folder}/array.npy")
    descriptor = os.open(os.fsencode(folder) + b"/\xff\xfe.dat", os.O_WRONLY | os.O_CREAT)
    with open(descriptor, "wb"):  # it is open already
        pass
    os.makedirs(f"{folder}/https:/host")
    os.chdir(folder)
    try:
        with open("https://host/f.txt", "w"):  # a path, strange as it is
            pass
    finally:
        os.chdir("/")
    with contextlib.suppress(FileNotFoundError), open(f"{folder}/missing"):
        pass


def test_files_opened(client: Client, runs: Path, tmp_path: Path) -> None:
    """Every file that is opened in Python is seen, by its name, mode and how often."""
    folder = tmp_path / "data"
    folder.mkdir()
    with dask_strata.record(runs, client=client) as run:
        client.submit(open_all, str(folder), key="opens").result()
        client.submit(nothing, key="none").result()
    found = {
        (uri.replace(str(folder), "").lstrip("/"), mode, count)
        for uri, mode, count in opens(run, "opens")
    }
    odd = [uri for uri, _, _ in found if uri.endswith(".dat")]
    assert found - {(uri, "write", 1) for uri in odd} == {
        ("with space.txt", "write", 2),
        ("with space.txt", "read", 2),
        ("with space.txt", "update", 1),
        ("new\nline.bin", "write", 2),
        ("new\nline.bin", "read", 2),
        ("new\nline.bin", "update", 1),
        ("array.npy", "write", 1),
        ("array.npy", "read", 1),
        ("https:/host/f.txt", "write", 1),
        ("missing", "read", 1),
    }
    assert len(odd) == 1
    assert attempt(run, "opens")["n_opened"] >= 15
    assert attempt(run, "none")["n_opened"] == 0
    assert not opens(run, "none")
    seen = rows(run, "select uri, mode, count from task_inputs where kind = 'seen'")
    assert {(r["uri"], r["mode"], r["count"]) for r in seen} == opens(run, "opens")


# Ends other than success.


def once_more(folder: str, error: type[Exception]) -> int:
    """Write 100 bytes and fail; when run again write 200 and return."""
    marker = Path(folder) / "was here"
    again = marker.exists()
    write_pieces(f"{folder}/data", 20 if again else 10)
    if not again:
        marker.touch()
        raise error("the first time")
    return 1


@pytest.mark.parametrize("error", [ValueError, Reschedule])
def test_each_attempt_has_its_own_measures(
    client: Client, runs: Path, tmp_path: Path, error: type[Exception]
) -> None:
    """A task that is run again has two attempts, each with what that run used."""
    key = f"twice-{error.__name__}"
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(once_more, str(tmp_path), error, key=key, retries=1)
        assert task.result() == 1
    first, second = attempts(run, key)
    assert first["outcome"] == ("rescheduled" if error is Reschedule else "retried")
    assert second["outcome"] == "memory"
    assert first["exception"] == repr(error("the first time"))
    assert second["exception"] is None
    assert (first["write_bytes"], first["write_calls"]) == (100, 10)
    assert (second["write_bytes"], second["write_calls"]) == (200, 10)
    assert first["run_id"] != second["run_id"]
    found = rows(run, "select outcome, exception from executions order by execution")
    assert [(r["outcome"], bool(r["exception"])) for r in found] == [
        ("erred", True),
        ("finished", False),
    ]
    assert_whole(run)


def story_of(run: Run, key: str) -> list[str]:
    """Return what a task's story says of the thread that ran it, without the times."""
    events = [event for event in run.task(key).events if event.layer == "thread"]
    return [f"{e.what}: " + re.sub(r"\d+\.\d{3} ms", "_", e.detail) for e in events]


def test_a_story_says_what_was_used(client: Client, runs: Path, tmp_path: Path) -> None:
    """One event for each run has time, CPU time, bytes, calls and files, if there are any."""
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1000)
    client.submit(copy, str(path), 600).result()
    with dask_strata.record(runs, client=client) as run:
        client.submit(copy, str(path), 600, key="copies").result()
        client.submit(nothing, key="rests").result()
        client.submit(pause, str(path), key="pauses").result()
        assert client.submit(write_and_fail, str(path), key="fails").exception()
    (copied,) = story_of(run, "copies")
    assert copied == (
        "run finished: ran _, CPU _, read 1,000 bytes in 3 calls, wrote 1,000 bytes in 2 calls, "
        "opened 2 files"
    )
    assert story_of(run, "rests") == ["run finished: ran _, CPU _"]
    assert story_of(run, "pauses") == ["coroutine finished: ran _, opened 1 file"]
    (failed,) = story_of(run, "fails")
    assert failed.startswith("run erred: ran _, CPU _, wrote 770 bytes in 10 calls, opened 1 file")
    assert "on purpose" in failed


def write_and_fail(path: str) -> None:
    """Write something and fail."""
    write_pieces(path, 77)
    raise ZeroDivisionError("on purpose")


def test_failed_attempts_have_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that fails has used what it used."""
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(write_and_fail, str(tmp_path / "new"), key="fails")
        assert isinstance(task.exception(), ZeroDivisionError)
    found = attempt(run, "fails")
    assert (found["outcome"], found["write_bytes"]) == ("erred", 770)
    assert "on purpose" in found["exception"]
    assert opens(run, "fails") == {(str(tmp_path / "new"), "write", 1)}


def write_and_wait(folder: str) -> None:
    """Write something, say so, and wait to be told to go on."""
    write_pieces(f"{folder}/written", 77)
    os.close(os.open(f"{folder}/started", os.O_WRONLY | os.O_CREAT))
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)


def test_a_cancelled_attempt_has_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that is cancelled while it runs goes on to its end, and has used what it used."""
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(write_and_wait, str(tmp_path), key="cancelled")
        wait_until((tmp_path / "started").exists, what="the task to start")
        try:
            task.cancel()
            forgotten(client, "cancelled")
        finally:
            (tmp_path / "go").touch()
        client.submit(nothing, key="next").result()
    (ran,) = rows(run, "select * from executions where key = 'cancelled'")
    assert (ran["outcome"], ran["write_bytes"]) == ("finished", 770)
    found = attempt(run, "cancelled")
    assert (found["outcome"], found["write_bytes"]) == ("released", 770)
    seen = rows(run, "select uri, attempt from task_inputs where kind = 'seen'")
    assert {r["uri"] for r in seen} == {str(tmp_path / n) for n in ("written", "started")}
    assert {r["attempt"] for r in seen} == {found["attempt"]}


def die(folder: str) -> None:
    """Write something and die of it the first time."""
    write_pieces(f"{folder}/written", 77)
    if not os.path.exists(f"{folder}/died"):
        os.close(os.open(f"{folder}/died", os.O_WRONLY | os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_attempt_has_no_measures(runs: Path, tmp_path: Path) -> None:
    """What an attempt used whose worker was killed is unknown, never 0; the next one's is known."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        client.submit(die, str(tmp_path), key="dies").result()
    first, second = attempts(run, "dies")
    assert (first["outcome"], second["outcome"]) == ("lost", "memory")
    unknown = ("kind", "shared", "n_opened", "elsewhere", *MEASURES)
    assert [first[name] for name in unknown] == [None] * len(unknown)
    assert second["kind"] == "thread"
    assert second["write_bytes"] == 770
    assert not run.check().ok


# Other kinds of tasks.


async def pause(path: str) -> str:
    """Read a file on the event loop."""
    with open(path, "rb") as file:
        file.read()
    await asyncio.sleep(0.01)
    return "done"


async def fail(_: str) -> None:
    """Fail on the event loop."""
    await asyncio.sleep(0)
    raise ValueError("in a coroutine")


def test_coroutines_have_no_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task on the event loop has no CPU time or bytes of its own: they are null."""
    path = tmp_path / "data"
    path.write_bytes(b"x")
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(pause, str(path), key="pauses").result() == "done"
        assert client.submit(fail, "x", key="fails").exception()
    for key, outcome in (("pauses", "memory"), ("fails", "erred")):
        (found,) = attempts(run, key)
        assert (found["kind"], found["outcome"]) == ("coroutine", outcome)
        assert [found[name] for name in MEASURES] == [None] * len(MEASURES)
        (ran,) = rows(run, f"select * from executions where key = '{key}'")
        assert ran["start"] < ran["stop"]
    assert opens(run, "pauses") == {(str(path), "read", 1)}


class Writer:
    """An actor that writes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, size: int) -> int:
        """Write ten pieces."""
        return write_pieces(self.path, size)

    def fail(self) -> None:
        """Fail."""
        raise ValueError("in an actor")


def test_calls_of_actors(client: Client, runs: Path, tmp_path: Path) -> None:
    """Each call of an actor's method is a run of its own, and none is an attempt."""
    path = str(tmp_path / "new")
    with dask_strata.record(runs, client=client) as run:
        made = client.submit(Writer, path, key="writer", actor=True)
        writer = made.result()
        for size in (1, 20, 300):
            assert writer.write(size).result() == 10
        with pytest.raises(ValueError, match="in an actor"):
            writer.fail().result()
    found = rows(run, "select * from executions where kind = 'actor' order by execution")
    assert [r["write_bytes"] for r in found] == [10, 200, 3000, 0]
    assert [r["outcome"] for r in found] == ["finished"] * 3 + ["erred"]
    assert all(r["cpu_seconds"] is not None for r in found)
    assert attempt(run, "writer")["write_bytes"] == 0
    assert len(attempts(run, "writer")) == 1


def test_calls_of_actors_have_the_key_of_the_actor(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """Two actors of one prefix are told apart by their keys."""
    keys = ["writer-1", "writer-2"]
    with dask_strata.record(runs, client=client) as run:
        made = [client.submit(Writer, str(tmp_path / key), key=key, actor=True) for key in keys]
        for future in made:
            future.result().write(1).result()
    found = rows(run, "select key from executions where kind = 'actor' order by execution")
    assert [r["key"] for r in found] == keys


def use_thread(path: str) -> None:
    """Have a thread write."""
    thread = threading.Thread(target=write_pieces, args=(path, 50))
    thread.start()
    thread.join()


def use_process(path: str) -> None:
    """Have a process write."""
    subprocess.run(["/bin/sh", "-c", 'echo hello > "$0"', path], check=True)


def test_threads_are_marked(client: Client, runs: Path, tmp_path: Path) -> None:
    """Of a task that starts threads it is said that they are not counted."""
    path = tmp_path / "new"
    with dask_strata.record(runs, client=client) as run:
        client.submit(use_thread, str(path), key="threads").result()
    assert path.stat().st_size == 500
    found = attempt(run, "threads")
    assert (found["write_bytes"], found["elsewhere"]) == (0, "threads")


def test_processes_are_marked(client: Client, runs: Path, tmp_path: Path) -> None:
    """Of a task that starts processes it is said that they are not counted."""
    paths = [tmp_path / name for name in ("other", "own")]
    with dask_strata.record(runs, client=client) as run:
        client.submit(use_process, str(paths[0]), key="processes").result()
        client.submit(write_pieces, str(paths[1]), 5, key="none").result()
    assert all(path.stat().st_size for path in paths)
    assert "processes" in attempt(run, "processes")["elsewhere"].split(", ")
    assert str(paths[0]) not in {uri for uri, _, _ in opens(run, "processes")}
    found = attempt(run, "none")
    assert (found["write_bytes"], found["elsewhere"]) == (50, None)


def write_and_submit(path: str) -> int:
    """Write, have another task do the same, and write again."""
    write_pieces(f"{path}-1", 1)
    with worker_client() as client:
        result = client.submit(write_pieces, f"{path}-2", 20, key="child").result()
    write_pieces(f"{path}-3", 300)
    return result


def write_as_completed(path: str) -> int:
    """Write once for each task of ours that has ended."""
    client = get_client()
    children = [
        client.submit(write_pieces, f"{path}-{i}", 4, key=f"as-completed-{i}") for i in range(3)
    ]
    secede()
    for number, _ in enumerate(as_completed(children)):
        write_pieces(f"{path}-{number}-parent", 10)
    return 3


def test_tasks_within_tasks(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that waits for others has its own bytes only, before and after it seceded."""
    path = str(tmp_path / "file")
    with dask_strata.record(runs, client=client) as run:
        client.submit(write_and_submit, path, key="parent").result()
        client.submit(write_as_completed, path, key="as-completed").result()
    # What the clients within say over the network is not counted as writing.
    written = {r["key"]: r["write_bytes"] for r in rows(run, "select * from attempts")}
    assert written["child"] == 200
    assert [written[f"as-completed-{i}"] for i in range(3)] == [40] * 3
    assert all(attempt(run, key)["shared"] for key in ("parent", "child", "as-completed"))
    files = {uri for uri, _, _ in opens(run, "parent")}
    assert {f"{path}-1", f"{path}-3"} <= files
    assert f"{path}-2" not in files
    assert {uri for uri, _, _ in opens(run, "child")} == {f"{path}-2"}
    assert written["parent"] == 3010
    assert written["as-completed"] == 300
    assert_whole(run)


def write_long(path: str) -> int:
    """Leave the worker's threads and go on."""
    write_pieces(path, 3)
    secede()
    write_pieces(path, 40)
    return threading.get_ident()


def test_tasks_that_seceded(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that left the worker's threads is measured to its end, in its own thread."""
    with dask_strata.record(runs, client=client) as run:
        thread = client.submit(write_long, str(tmp_path / "new"), key="secedes").result()
        client.submit(nothing, key="next").result()
    found = attempt(run, "secedes")
    assert (found["outcome"], found["thread"], found["write_bytes"]) == ("memory", thread, 430)


# What stays behind, and what is switched off.


def state() -> dict[str, Any]:
    """Return what of this process measuring touches."""
    import distributed.worker as module

    from dask_strata.recorder.sources import executions as running

    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # one that was closed meanwhile
            names.append(os.path.basename(entry.readlink()))
    functions = ("_run_task", "_run_task_async", "_run_actor")
    return {
        "functions": [id(getattr(module, name)) for name in functions],
        "wrapped": [
            getattr(module, name).__code__.co_filename == running.__file__ for name in functions
        ],
        "files": sorted(name for name in names if name in ("io", "statm", "status")),
        "sinks": len(running._sinks),
        "current": running.current.get(),
    }


HOOKS: list[str] = []


def count_hooks() -> int:
    """Begin to count the audit hooks that are added, or return how many were."""
    if not HOOKS:
        HOOKS.append("ours")
        sys.addaudithook(lambda event, _: HOOKS.append(event) if "addaudit" in event else None)
    return HOOKS.count("sys.addaudithook")


def test_dask_is_as_it_was(two_threads: Client, runs: Path) -> None:
    """After a recording Dask has its own functions, and our files are closed."""
    look = state
    ((before),) = two_threads.run(look).values()
    assert before["wrapped"] == [False] * 3
    assert before["files"] == []
    with dask_strata.record(runs, client=two_threads) as run:
        two_threads.gather([two_threads.submit(meet, i, pure=False) for i in range(2)])
        (during,) = two_threads.run(look).values()
    assert during["wrapped"] == [True] * 3
    assert [during["files"].count(name) for name in ("io", "statm")] == [2, 2]
    assert two_threads.run(look) == {next(iter(two_threads.run(look))): before}
    assert two_threads.submit(look, pure=False).result() == before
    # The audit hook stays; but there is never a second one, and no run that it would tell of.
    two_threads.run(count_hooks)
    with dask_strata.record(runs, client=two_threads) as second:
        two_threads.submit(meet_alone, key="in-second").result()
    assert set(two_threads.run(count_hooks).values()) == {0}
    assert rows(run, "select count(*) as n from executions") == [{"n": 2}]
    assert {r["key"] for r in rows(second, "select key from executions")} == {"in-second"}


def meet_alone() -> None:
    """Have a name of its own."""


def test_a_run_that_outlasts_the_recording(two_threads: Client, runs: Path, tmp_path: Path) -> None:
    """A task that runs on after the recording closes its files when it ends."""
    with dask_strata.record(runs, client=two_threads) as run:
        task = two_threads.submit(write_and_wait, str(tmp_path), key="outlasts")
        wait_until((tmp_path / "started").exists, what="the task to start")
        (during,) = two_threads.run(state).values()
    (tmp_path / "go").touch()
    assert during["files"]
    task.result()
    (after,) = two_threads.run(state).values()
    assert after["files"] == []
    assert after["wrapped"] == [False] * 3
    (found,) = attempts(run, "outlasts")
    assert found["outcome"] == "running"
    assert [found[name] for name in MEASURES] == [None] * len(MEASURES)


def test_attempts_can_be_switched_off(client: Client, runs: Path, tmp_path: Path) -> None:
    """Without `attempts` Dask's functions stay its own, and nothing is measured."""
    (before,) = client.run(state).values()
    with dask_strata.record(runs, client=client, attempts=False) as run:
        client.submit(write_pieces, str(tmp_path / "new"), 5, key="writes").result()
        (during,) = client.run(state).values()
    assert during == before
    assert len(run.executions) == len(run.file_opens) == 0
    (found,) = attempts(run, "writes")
    assert found["outcome"] == "memory"
    assert [found[name] for name in ("kind", *MEASURES)] == [None] * (1 + len(MEASURES))
    assert_whole(run)


def test_inputs_can_be_switched_off(client: Client, runs: Path, tmp_path: Path) -> None:
    """Without `inputs` runs are measured, and what they open is unknown, not 0."""
    with dask_strata.record(runs, client=client):  # with inputs: the audit hook is there for good
        client.submit(nothing, key="before").result()
    with dask_strata.record(runs, client=client, inputs=False) as run:
        client.submit(write_pieces, str(tmp_path / "new"), 5, key="writes").result()
    assert len(run.file_opens) == len(run.task_inputs) == 0
    found = attempt(run, "writes")
    assert found["write_bytes"] == 50
    assert found["n_opened"] is None


# Nothing that the user sees is changed.


def outcome_of(dask_worker: Any, key: str) -> dict[str, Any]:
    """Return the bytes of a task's result or exception and traceback on the worker."""
    task = dask_worker.state.tasks[key]
    found = {name: pickle.dumps(getattr(task, name)) for name in ("exception", "traceback")}
    found |= {name: getattr(task, name) for name in ("exception_text", "traceback_text")}
    if key in dask_worker.data:
        found["result"] = pickle.dumps(dask_worker.data[key])
    return found


def deep() -> None:
    """Fail with a cause and a context, some levels down."""
    try:
        json.loads("{")
    except ValueError as error:
        raise KeyError("no key", b"\xff", {"a": 1}) from error


def compute(path: str) -> dict[str, Any]:
    """Return a result of many types."""
    with open(path, "rb") as file:
        data = file.read()
    return {"hash": hashlib.sha256(data).digest(), "array": np.frombuffer(data, "uint8"), "f": deep}


async def compute_slowly(path: str) -> dict[str, Any]:
    """Return the same from the event loop."""
    await asyncio.sleep(0)
    return compute(path)


async def deep_slowly() -> None:
    """Fail the same on the event loop."""
    await asyncio.sleep(0)
    deep()


def test_outcomes_are_the_same_bytes(client: Client, runs: Path, tmp_path: Path) -> None:
    """Results, exceptions and tracebacks are to the byte what they are without recording."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)))
    work: dict[str, tuple[Any, ...]] = {
        "result": (compute, str(path)),
        "result-slowly": (compute_slowly, str(path)),
        "error": (deep,),
        "error-slowly": (deep_slowly,),
    }

    def outcomes() -> dict[str, Any]:
        tasks = {key: client.submit(*what, key=key) for key, what in work.items()}
        errors = {key: repr(task.exception()) for key, task in tasks.items()}
        found = {key: client.run(outcome_of, key=key) for key in work}
        del tasks
        for key in work:
            forgotten(client, key)
        return {"errors": errors, **found}

    without = outcomes()
    with dask_strata.record(runs, client=client) as run:
        recorded = outcomes()
    assert recorded == without
    assert without["errors"]["error"].startswith("KeyError")
    assert "deep" in next(iter(without["error"].values()))["traceback_text"]
    assert {r["key"] for r in rows(run, "select key from executions")} == set(work)
    assert_whole(run)


# Where the kernel does not tell.

HIDING = """
mount --make-rprivate / && mkdir -p "$1/proc" && mount --rbind /proc "$1/proc" &&
mount -t tmpfs none /proc && for name in stat meminfo cpuinfo uptime mounts filesystems sys net; do
    ln -s "$1/proc/$name" "/proc/$name"
done && ln -s "$1/proc/$$" "/proc/$$" && ln -s "$$" /proc/self || exit 77
shift && exec "$@"
"""


def test_where_the_kernel_does_not_tell(runs: Path, tmp_path: Path) -> None:
    """Where threads have no accounting bytes are null, and `check` says so; CPU is there."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare")
    hiding = [unshare, "-Urm", "/bin/sh", "-c", HIDING, "sh", str(tmp_path)]
    done = subprocess.run([*hiding, "test", "!", "-e", "/proc/thread-self/io"], check=False)
    if done.returncode:
        pytest.skip("needs to be allowed to hide /proc")
    worker = ["-m", "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1"]
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        address = cluster.scheduler_address
        command = [*hiding, sys.executable, *worker, "--no-dashboard", address]
        python_path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": python_path},
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(1, timeout=60)
            with dask_strata.record(runs, client=client) as run:
                client.submit(write_pieces, str(tmp_path / "new"), 5, key="writes").result()
                client.submit(nothing, key="rests").result()
        finally:
            process.terminate()
            process.wait()
    (found,) = attempts(run, "writes")
    assert [found[name] for name in MEASURES[1:7]] == [None] * 6
    assert found["cpu_seconds"] is not None
    assert found["minor_faults"] is not None
    assert found["rss_after_bytes"] is not None
    notes = [f.text for f in run.check().findings if f.severity == "note"]
    assert [text for text in notes if text.startswith("2 of 2 runs of tasks")], notes
    assert run.check().ok

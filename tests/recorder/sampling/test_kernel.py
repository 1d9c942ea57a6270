"""The kernel's readings of threads: what they wait for, and what is absent."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata.recorder.sampling import sums
from dask_strata.recorder.sampling.frames import NOWHERE, place_of
from dask_strata.recorder.sampling.kernel import Reading, ThreadFiles
from dask_strata.recorder.sampling.sums import Credit, Sample
from dask_strata.recorder.sampling.tasks import TaskSampler
from dask_strata.recorder.sampling.threads import SampledThreads
from tests.conftest import wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's files of threads")


def waiting(function: Callable[[], Any], end: Callable[[], Any]) -> str | None:
    """Return what a thread waits for that calls a function, once it waits."""
    thread = threading.Thread(target=function)
    thread.start()
    files = ThreadFiles(thread.native_id or 0)
    try:
        found = set()

        def settled() -> bool:
            found.add(files.read().waiting)
            return bool(found - {None, "gil"})

        wait_until(settled, 10)
        time.sleep(0.02)
        return files.read().waiting
    finally:
        end()
        thread.join()
        files.close()


@linux
def test_kinds_of_waits() -> None:
    """Each kind of wait is recognised by the thread's system call."""
    lock = threading.Lock()
    lock.acquire()
    assert waiting(lock.acquire, lock.release) == "lock"
    event = threading.Event()
    assert waiting(lambda: event.wait(10), event.set) == "lock"
    assert waiting(lambda: time.sleep(0.5), lambda: None) == "sleep"
    assert waiting(lambda: select.select([], [], [], 0.5), lambda: None) == "sleep"
    first, second = os.pipe()
    assert waiting(lambda: os.read(first, 1), lambda: os.write(second, b"x")) == "process"
    one, two = socket.socketpair()
    assert waiting(lambda: one.recv(1), lambda: two.send(b"x")) == "network"
    assert waiting(lambda: select.select([one], [], []), lambda: two.send(b"x")) == "network"
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    assert waiting(child.wait, child.kill) == "process"
    for fd in (first, second):
        os.close(fd)


@linux
def test_after_the_process_was_stopped() -> None:
    """Calls with a timeout that continue after a stop have another number."""
    code = """
import os, sys, threading, time
from dask_strata.recorder.sampling.kernel import ThreadFiles
lock = threading.Lock(); lock.acquire()
waits = [lambda: lock.acquire(timeout=20), lambda: time.sleep(20)]
threads = [threading.Thread(target=wait, daemon=True) for wait in waits]
for thread in threads: thread.start()
files = [ThreadFiles(thread.native_id) for thread in threads]
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + 10
# A thread continues its call when it gets a CPU.
while None in (found := [each.read().waiting for each in files]) and time.monotonic() < end:
    time.sleep(0.01)
print(*found, flush=True)
os._exit(0)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{child.pid}/status").read_text())
    child.send_signal(signal.SIGCONT)
    wait_until(lambda: "T (stopped)" not in Path(f"/proc/{child.pid}/status").read_text())
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "lock sleep\n"
    child.wait()


@linux
def test_usage_grows_with_cpu_time() -> None:
    """CPU time is that of the thread."""
    files = ThreadFiles(threading.get_native_id())
    before, cpu = files.usage()[0], time.thread_time_ns()
    while time.thread_time_ns() - cpu < 200_000_000:
        pass
    after = files.usage()[0]
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(200_000_000, rel=0.2)


@pytest.mark.parametrize("content", [None, "", "x y z", "999999 0x0", "-1"])
def test_absent_and_odd_files(tmp_path: Path, content: str | None) -> None:
    """Without the files, or with others, values are unknown and nothing raises."""
    folder = tmp_path / "7"
    folder.mkdir()
    if content is not None:
        for name in ("schedstat", "syscall"):
            (folder / name).write_text(content)
    reading = ThreadFiles(7, str(tmp_path)).read()
    assert reading.cpu_ns is None or content == "999999 0x0"
    assert reading.waiting in {"unknown", "other", "memory"}
    if not content:
        assert reading == Reading(None, None, "unknown")


def test_samples_without_the_kernels_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on another system has rows with lines and seconds, and no errors."""
    absent = ThreadFiles.__init__.__defaults__
    monkeypatch.setattr(ThreadFiles.__init__, "__defaults__", ("/nonexistent",))
    under_way = [sums.Sampled(1, "key", 2, threading.get_ident(), time.time_ns())]
    sampler = TaskSampler("tcp://w:1", lambda: under_way)
    for look in range(3):
        now = look * 80_000_000
        sampler.look(now, now, now - 80_000_000)
    late = 1_000_000_000
    sampler.look(late, 240_000_000, 160_000_000)
    under_way.clear()
    sampler.finish()
    [batch] = sampler.rows()
    assert batch.table == "task_samples"
    assert batch.columns["waiting"] == ["unknown"] * batch.n
    assert not any(batch.columns.get("cpu_seconds") or ())
    assert absent == ("/proc/self/task",)


@linux
def test_a_late_look_is_divided_by_cpu_time() -> None:
    """A thread that had no CPU meanwhile waited for the GIL, however much it ran before."""
    ended = threading.Event()

    def run_python() -> None:
        while not ended.is_set():
            sum(range(100))

    thread = threading.Thread(target=run_python)
    thread.start()
    under_way = [sums.Sampled(1, "key", 2, thread.ident or 0, time.time_ns())]
    sampler = TaskSampler("tcp://w:1", lambda: under_way)
    sampler.start()
    now = time.monotonic_ns()
    sampler.look(now, now, now - 1)
    time.sleep(0.3)
    now = time.monotonic_ns()
    sampler.look(now, now, now - 80_000_000)
    sum(range(15_000_000))  # holds the GIL
    last, now = now, time.monotonic_ns()
    sampler.look(now, now - 60_000_000, last)
    ended.set()
    thread.join()
    under_way.clear()
    sampler.finish()
    [batch] = sampler.rows()
    waited = sum(
        seconds
        for waiting, seconds in zip(batch.columns["waiting"], batch.columns["seconds"], strict=True)
        if waiting == "gil"
    )
    assert waited == pytest.approx((now - last) / 1e9, rel=0.3)


@linux
@pytest.mark.parametrize("known", [False, True])
def test_cpu_time_since_the_beginning_of_a_look_is_of_the_next_one(*, known: bool) -> None:
    """A look that gives up the GIL may go on late: its readings have CPU time of the next look."""
    ready, go, held, done = (threading.Event() for _ in range(4))
    measured: list[float] = []

    def hold() -> None:
        ready.set()
        go.wait()
        before = time.thread_time()
        sum(range(20_000_000))
        measured.append(time.thread_time() - before)
        held.set()
        done.wait()

    threads = SampledThreads()
    threads.start()
    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    holding, other = thread.ident or 0, threading.get_ident()
    if known:
        threads.look(holding, 1, time.monotonic_ns())
        threads.end_look(time.monotonic_ns())
    began = time.monotonic_ns()
    go.set()
    held.wait()
    before, _ = threads.look(other if known else holding, 20_000_000, began)
    threads.end_look(began)
    now = time.monotonic_ns()
    within, _ = threads.look(holding, now - began, now)
    done.set()
    thread.join()
    threads.close()
    assert measured[0] > 0.1
    assert known or (before.cpu_ns or 0) <= 20_000_000
    assert (within.cpu_ns or 0) / 1e9 == pytest.approx(measured[0], rel=0.2)


def test_an_error_in_a_look_is_a_loss() -> None:
    """An error neither ends the looking thread nor passes unnoticed."""

    def fails() -> list[sums.Sampled]:
        raise ValueError("odd")

    sampler = TaskSampler("tcp://w:1", fails)
    sampler.look(0, 0, 0)
    [batch] = sampler.rows()
    assert batch.table == "losses"


def test_running_and_waiting_for_the_gil_by_cpu_time() -> None:
    """A thread that had a third of the CPU ran in a third of the looks, whatever these saw."""
    credit = Credit()
    seen = [credit.settle(Sample("gil", 90, 30, 0)).waiting for _ in range(300)]
    assert seen.count(None) == pytest.approx(100, abs=2)
    credit = Credit()
    mixed = [Sample("sleep" if i % 2 else "gil", 90, 45, 0) for i in range(300)]
    settled = [credit.settle(sample).waiting for sample in mixed]
    assert settled.count("gil") <= 2


def test_places() -> None:
    """The user's line is the innermost one that is not of a library, with what it called."""

    def user() -> Any:
        return sorted([1], key=lambda _: found.append(sys._getframe()))

    found: list[Any] = []
    user()
    place = place_of(found[0])
    assert (place.file, place.calls) == (__file__, None)
    assert place_of(None) == NOWHERE

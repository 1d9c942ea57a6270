"""The profiler of a process: its readings while functions are in progress, and their owners."""

from __future__ import annotations

import importlib.util
import os
import queue
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata.config import SETTINGS
from dask_strata.importers.profiles.yappi_files import read_profile
from dask_strata.recorder.profiling.coroutines import is_coroutine, source_lines
from dask_strata.recorder.profiling.yappi_profiler import CannotProfileError, join


def run_jobs(jobs: queue.Queue[int | None], done: queue.Queue[int]) -> None:
    while (job := jobs.get()) is not None:
        done.put(long_job(job))


def long_job(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def test_a_function_in_progress_excludes_the_time_of_its_callees() -> None:
    """However often Yappi is read, a long function's own time excludes that of its callees."""
    holder, jobs, done = object(), queue.Queue(), queue.Queue()
    profiler = join("run", "cpu", holder)
    thread = threading.Thread(target=run_jobs, args=(jobs, done), name="server")
    found = []
    try:
        thread.start()
        for _ in range(5):
            jobs.put(200_000)
            done.get()
            found += profiler.take()[0]
        jobs.put(None)
        thread.join()
        profiler.stop(holder)
        found += profiler.take()[0]
    finally:
        profiler.leave(holder, None)

    def total(name: str, column: str) -> float:
        return sum(row[column] for row in found if row["name"] == name)

    assert (total("run_jobs", "ncall"), total("long_job", "ncall")) == (1, 5)
    assert total("long_job", "own_seconds") > total("run_jobs", "own_seconds")
    assert {r["thread_name"] for r in found if r["name"] == "run_jobs"} == {"server"}


def test_only_the_file_of_yappi_itself_is_left_out(tmp_path: Path) -> None:
    """A user's module whose name ends in yappi is profiled, even one in a file yappi.py."""
    holder, files = object(), []
    for name in ("lc_yappi.py", "yappi.py"):
        files.append(tmp_path / name)
        files[-1].write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    profiler = join("run", "wall", holder)
    try:
        for file in files:
            spec = importlib.util.spec_from_file_location(f"of_the_user_{file.stem}", file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            assert module.double(4) == 8
        sys.modules["yappi"].get_clock_type()  # in Yappi's own file
        profiler.stop(holder)
        found, *_ = profiler.take()
    finally:
        profiler.leave(holder, None)
    assert {r["module"] for r in found if r["name"] == "double"} == {str(f) for f in files}
    assert not [r for r in found if r["name"] == "get_clock_type"]


def test_a_profile_lasts_until_its_last_holder_leaves(tmp_path: Path) -> None:
    """The first of several holders records the profile, then the next; another run is refused."""
    first, second = object(), object()
    profiler = join("run", "wall", first)
    assert join("run", "wall", second) is profiler
    with pytest.raises(CannotProfileError, match="run run"):
        join("other", "wall", object())
    assert (profiler.is_recorded_by(first), profiler.is_recorded_by(second)) == (True, False)
    profiler.stop(first)
    profiler.leave(first, None)
    assert profiler.is_recorded_by(second)
    long_job(10)
    profiler.stop(second)
    assert any(row["name"] == "long_job" for row in profiler.take()[0])
    assert profiler.leave(second, tmp_path / "profiles" / "it") is None
    assert sorted(p.name for p in (tmp_path / "profiles").iterdir()) == ["it.callgrind", "it.pstat"]
    again = join("other", "cpu", first)
    again.stop(first)
    again.leave(first, None)


def test_a_stopped_yappi_is_a_loss() -> None:
    """If other code stops Yappi, that is reported once."""
    import yappi

    holder = object()
    profiler = join("run", "cpu", holder)
    try:
        assert profiler.take_losses() == []
        yappi.stop()
        assert "stopped" in profiler.take_losses()[0]
        assert profiler.take_losses() == []
    finally:
        profiler.stop(holder)
        profiler.leave(holder, None)


def test_a_pause_of_yappi_is_no_loss() -> None:
    """Yappi pauses while other code reads its statistics, and nothing is reported."""
    import yappi

    holder = object()
    profiler = join("run", "cpu", holder)
    resumed = threading.Timer(0.1, yappi.start)
    try:
        yappi.stop()  # as at the beginning of a pause
        resumed.start()
        assert profiler.take_losses() == []
    finally:
        resumed.join()
        profiler.stop(holder)
        profiler.leave(holder, None)


SOURCE = """
import functools

async def plain(): ...

@functools.wraps(
    plain
)
async def decorated(): ...

class C:
    def method(self): return [x async for x in y]
    async def generator(self):
        yield 1
f = lambda: 1
"""


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        (4, "plain", True),
        (6, "decorated", True),
        (12, "C.method", False),
        (13, "C.generator", True),
        (12, "C.method.<locals>.<listcomp>", None),
        (15, "<lambda>", False),
        (4, "another", None),
        (99, "plain", None),
        (0, "plain", None),
    ],
)
def test_coroutines_are_recognised_by_their_definition(
    tmp_path: Path, line: int, name: str, expected: object
) -> None:
    """A function is a coroutine if its definition is; without the definition it is null."""
    file = tmp_path / "source.py"
    file.write_text(SOURCE)
    assert is_coroutine(source_lines(str(file)), line, name) is expected


def test_without_readable_source_the_kind_is_unknown(tmp_path: Path) -> None:
    """No file, a file of bytes, or no path at all: null, and no error."""
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00# coding: nonsense")
    for file in (str(binary), "<string>", str(tmp_path), "a\x00b"):
        assert is_coroutine(source_lines(file), 1, "f") is None


def squeeze(data: bytes, n: int) -> None:
    zlib.compress(data)
    sorted(range(n), key=backwards)


def backwards(n: int) -> int:
    return -n


def again_and_again(data: bytes, depth: int) -> None:
    zlib.compress(data)
    if depth:
        again_and_again(data, depth - 1)


def profiled_in_a_thread(
    task: Callable[[], None], *, every: float | None = None, save: Path | None = None
) -> list[dict[str, Any]]:
    """Run a task in a profiled thread; read Yappi every so many seconds meanwhile."""
    holder, functions = object(), []
    profiler = join("run", "cpu", holder)
    thread = threading.Thread(target=task, name="profiled")
    try:
        thread.start()
        while thread.is_alive():
            thread.join(every)
            functions += profiler.take()[0]
        profiler.stop(holder)
        functions += profiler.take()[0]
    finally:
        assert profiler.leave(holder, save) is None
    return [r for r in functions if r["thread_name"] == "profiled"]


def seconds_of(rows: list[dict[str, Any]], *names: str) -> float:
    return sum(row["own_seconds"] for row in rows if not names or row["name"] in names)


@pytest.mark.parametrize("every", [None, 0.02])
def test_the_time_of_compiled_functions_belongs_to_their_callers(
    tmp_path: Path, every: float
) -> None:
    """However often Yappi is read, own times add up to the total, with callbacks separate."""
    data = os.urandom(1 << 20) * 4

    def task() -> None:
        squeeze(data, 50_000)

    rows = profiled_in_a_thread(task, every=every, save=tmp_path / "it")
    # The thread calls `run`, and then `_delete`, which may wait for a lock of other threads.
    outermost = [row for row in rows if row["name"].rpartition(".")[2] in {"run", "_delete"}]
    whole = sum(row["total_seconds"] for row in outermost)
    assert seconds_of(rows) == pytest.approx(whole, rel=1e-4)
    squeezed = sum(row["total_seconds"] for row in rows if row["name"] == "squeeze")
    called = seconds_of(rows, "backwards")
    assert 0 < called < squeezed
    assert seconds_of(rows, "squeeze") == pytest.approx(squeezed - called, rel=1e-3)
    assert seconds_of(rows, "squeeze") > called
    for form in ("pstat", "callgrind"):
        saved = read_profile(tmp_path / f"it.{form}")
        found = next(row for row in saved if row["name"] == "squeeze")
        assert found["own_seconds"] == pytest.approx(seconds_of(rows, "squeeze"), rel=1e-3)
        # A callgrind file has calls by Python functions only: those of `sorted` are not in it.
        inside = squeezed - (called if form == "callgrind" else 0.0)
        assert found["total_seconds"] == pytest.approx(inside, rel=1e-3)


def test_compiled_functions_called_by_a_recursive_one_belong_to_it() -> None:
    """A recursive function's own time includes the compiled functions of all its calls."""
    data = os.urandom(1 << 20)

    def task() -> None:
        again_and_again(data, 3)

    rows = profiled_in_a_thread(task)
    whole = max(row["total_seconds"] for row in rows)
    assert seconds_of(rows) == pytest.approx(whole, rel=1e-3)
    assert seconds_of(rows, "again_and_again") > 0.9 * whole


SENT = """
def sent(n):
    return sent_too(n) + len(str(n))

def sent_too(n):
    return sum(range(n))
"""


def call_copies(times: int) -> None:
    """Call functions that are compiled for each call, as Dask unpickles those of a script."""
    for _ in range(times):
        names: dict[str, Any] = {}
        exec(compile(SENT, "<sent>", "exec"), names)
        names["sent"](10)


def test_copies_of_a_function_are_one_row(tmp_path: Path) -> None:
    """A function that is unpickled for each task has one row per interval, and one in a file."""
    rows = profiled_in_a_thread(lambda: call_copies(200), save=tmp_path / "it")
    found = [row for row in rows if row["name"] == "sent"]
    assert sum(row["ncall"] for row in found) == 200
    assert len(found) <= len({row["time"] for row in found})
    for form in ("pstat", "callgrind"):
        saved = [r for r in read_profile(tmp_path / f"it.{form}") if r["module"] == "<sent>"]
        assert sorted(r["name"] for r in saved) == ["<module>", "sent", "sent_too"]
        row = next(r for r in saved if r["name"] == "sent_too")
        assert row["ncall"] == 200
        assert row["total_seconds"] == pytest.approx(
            sum(r["total_seconds"] for r in rows if r["name"] == "sent_too"), abs=1e-5
        )


def test_a_profile_with_too_many_functions_ends_with_a_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beyond the bound Yappi is stopped; its profile is kept, and the loss names the remedy."""
    import yappi

    monkeypatch.setattr("dask_strata.recorder.profiling.yappi_profiler.MOST_ENTRIES", 300)
    holder = object()
    profiler = join("run", "cpu", holder)
    try:
        assert profiler.take()
        assert profiler.take_losses() == []
        call_copies(200)
        rows, _ = profiler.take()
        assert not yappi.is_running()
        (loss,) = profiler.take_losses()
        assert "into a module that workers import" in loss
        assert sum(row["ncall"] for row in rows if row["name"] == "sent") == 200
        call_copies(10)
        assert profiler.take() == ([], [])
        assert profiler.take_losses() == []
        profiler.stop(holder)
    finally:
        assert profiler.leave(holder, tmp_path / "it") is None
    saved = read_profile(tmp_path / "it.pstat")
    assert next(row["ncall"] for row in saved if row["name"] == "sent") == 200


def test_the_meaning_of_the_interval_names_its_lower_bound() -> None:
    """A profile is recorded when samples are taken, which the setting's meaning states."""
    (setting,) = (s for s in SETTINGS if s.name == "yappi.interval")
    assert "`sample-interval` is its lower bound" in setting.meaning

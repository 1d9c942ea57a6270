"""The profiler of a process: what it reads while functions are under way, and whose code it is."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from dask_strata.owners import owner_of, waits
from dask_strata.recorder.coroutines import is_coroutine, source_lines
from dask_strata.recorder.profiler import CannotProfileError, join


def serve(jobs: queue.Queue[int | None], done: queue.Queue[int]) -> None:
    while (job := jobs.get()) is not None:
        done.put(job_of_a_while(job))


def job_of_a_while(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def test_a_function_under_way_is_not_charged_with_what_it_called() -> None:
    """However often it is read, a long function's own time is without that of those it called."""
    me, jobs, done = object(), queue.Queue(), queue.Queue()
    profiler = join("run", "cpu", me)
    thread = threading.Thread(target=serve, args=(jobs, done), name="server")
    found = []
    try:
        thread.start()
        for _ in range(5):
            jobs.put(200_000)
            done.get()
            found += profiler.take()[0]
        jobs.put(None)
        thread.join()
        profiler.stop(me)
        found += profiler.take()[0]
    finally:
        profiler.leave(me, None)

    def total(name: str, column: str) -> float:
        return sum(row[column] for row in found if row["name"] == name)

    assert (total("serve", "ncall"), total("job_of_a_while", "ncall")) == (1, 5)
    assert total("job_of_a_while", "own_seconds") > total("serve", "own_seconds")
    assert {r["thread_name"] for r in found if r["name"] == "serve"} == {"server"}


def test_one_profile_lasts_until_the_last_who_shares_it_has_gone(tmp_path: Path) -> None:
    """Of several recorders in one process one speaks; the next takes over; another run waits."""
    first, second = object(), object()
    profiler = join("run", "wall", first)
    assert join("run", "wall", second) is profiler
    with pytest.raises(CannotProfileError, match="run run"):
        join("other", "wall", object())
    assert (profiler.speaks_for(first), profiler.speaks_for(second)) == (True, False)
    profiler.stop(first)
    profiler.leave(first, None)
    assert profiler.speaks_for(second)
    job_of_a_while(10)
    profiler.stop(second)
    assert any(row["name"] == "job_of_a_while" for row in profiler.take()[0])
    assert profiler.leave(second, tmp_path / "profiles" / "it") is None
    assert sorted(p.name for p in (tmp_path / "profiles").iterdir()) == ["it.callgrind", "it.pstat"]
    again = join("other", "cpu", first)
    again.stop(first)
    again.leave(first, None)


def test_who_stops_yappi_is_noticed() -> None:
    """That somebody else stopped the profile is said once."""
    import yappi

    me = object()
    profiler = join("run", "cpu", me)
    try:
        assert profiler.troubles() == []
        yappi.stop()
        assert "stopped" in profiler.troubles()[0]
        assert profiler.troubles() == []
    finally:
        profiler.stop(me)
        profiler.leave(me, None)


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
def test_coroutines_are_known_by_their_definition(
    tmp_path: Path, line: int, name: str, expected: object
) -> None:
    """A function is a coroutine if its line says so; where that cannot be told it is null."""
    file = tmp_path / "source.py"
    file.write_text(SOURCE)
    assert is_coroutine(source_lines(str(file)), line, name) is expected


def test_source_that_cannot_be_read_leaves_it_open(tmp_path: Path) -> None:
    """No file, a file of bytes, or no path at all: null, and no error."""
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00# coding: nonsense")
    for file in (str(binary), "<string>", str(tmp_path), "a\x00b"):
        assert is_coroutine(source_lines(file), 1, "f") is None


@pytest.mark.parametrize(
    ("file", "owner", "package"),
    [
        ("/v/lib/python3.11/site-packages/distributed/worker.py", "dask", "distributed"),
        ("/usr/lib/python3/dist-packages/numpy/core/x.py", "library", "numpy"),
        ("C:\\v\\Lib\\site-packages\\six.py", "library", "six"),
        ("/v/lib/python3.11/site-packages/dask_strata/run.py", "recorder", "dask_strata"),
        ("/usr/lib/python3.11/asyncio/events.py", "python", None),
        ("<frozen importlib._bootstrap>", "python", None),
        ("<string>", None, None),
        ("<stdin>", "user", None),
        ("", None, None),
        ("/home/me/lib/work.py", "user", None),
    ],
)
def test_whose_code_a_file_is(file: str, owner: str | None, package: str | None) -> None:
    """The path tells: installed, Python's own, Dask's machinery, ours, or the user's."""
    assert owner_of(file) == (owner, package)


def test_only_machinery_waits() -> None:
    """A user's coroutine is shown; Dask's idle ones are not, and on the CPU clock nothing waits."""
    assert waits("/d/comm/tcp.py", "TCP.read", "dask", coroutine=True, clock="wall")
    assert not waits("/d/comm/tcp.py", "TCP.read", "dask", coroutine=True, clock="cpu")
    assert not waits("/home/me/a.py", "work", "user", coroutine=True, clock="wall")
    assert waits("/l/selectors.py", "EpollSelector.select", "python", coroutine=False, clock="wall")

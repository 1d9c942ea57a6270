"""Owners of functions, and functions whose own time is waiting."""

from __future__ import annotations

import ast
import queue
import sys
import sysconfig
from pathlib import Path

import distributed
import pytest

from dask_strata.schema.owners import WAITING_FUNCTIONS, owner_of, waiting, waits

#: First version of Python without a function, by its file and name.
REMOVED = {("threading.py", "_wait_for_tstate_lock"): (3, 13)}


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
def test_a_path_determines_the_owner(file: str, owner: str | None, package: str | None) -> None:
    """The path shows the owner: a package, Python, Dask's machinery, the recorder or the user."""
    assert owner_of(file) == (owner, package)


def test_only_machinery_waits() -> None:
    """A user's coroutine counts, Dask's idle ones do not; on the CPU clock nothing waits."""
    assert waits("/d/comm/tcp.py", "TCP.read", "dask", coroutine=True, clock="wall")
    assert not waits("/d/comm/tcp.py", "TCP.read", "dask", coroutine=True, clock="cpu")
    assert not waits("/home/me/a.py", "work", "user", coroutine=True, clock="wall")
    assert waits("/l/selectors.py", "EpollSelector.select", "python", coroutine=False, clock="wall")


def test_a_function_is_recognised_by_file_and_name() -> None:
    """A function of the same name in another file, or another one in the file, does not wait."""

    def is_waiting(file: str, name: str) -> bool:
        return waits(file, name, "library", coroutine=False, clock="wall")

    assert is_waiting("/lib/python3.10/multiprocessing/queues.py", "get")
    assert not is_waiting("/site-packages/tornado/queues.py", "Queue.get")
    assert not is_waiting("/lib/python3.10/multiprocessing/queues.py", "Queue.put")
    assert not is_waiting("/site-packages/my_selectors.py", "select")


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for name, files in WAITING_FUNCTIONS.items() for file in files]
)
def test_each_listed_function_exists(file: str, name: str) -> None:
    """The running Python, or the installed Dask, has each function in the table of waits."""
    if sys.version_info >= REMOVED.get((file, name), (99,)):
        pytest.skip("a function of earlier versions of Python")
    package, _, rest = file.partition("/")
    folder = Path(sysconfig.get_path("stdlib"))
    path = folder / file if package != "distributed" else Path(distributed.__path__[0]) / rest
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_a_marked_function_waits_on_the_wall_clock() -> None:
    """The mark holds for this very function, and leaves the CPU clock and its behaviour alone."""

    @waiting
    def next_item(items: queue.SimpleQueue[int]) -> int:
        return items.get()

    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    items.put(1)
    assert next_item(items) == 1
    file, name = next_item.__code__.co_filename, next_item.__qualname__
    assert waits(file, name, "recorder", coroutine=False, clock="wall")
    assert not waits(file, name, "recorder", coroutine=False, clock="cpu")
    assert not waits(file, "another", "recorder", coroutine=False, clock="wall")

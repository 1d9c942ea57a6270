"""Owners of functions by their file, and functions whose own time is waiting."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

_AnyFunction = TypeVar("_AnyFunction", bound=Callable[..., Any])

#: Packages that are the machinery that runs tasks.
DASK = frozenset({"dask", "distributed", "tornado", "zict", "dask_mpi", "dask_jobqueue"})

#: This package: its time is the recorder's, not the user's.
RECORDER = "dask_strata"

#: File of a function that cloudpickle sent by value, which are those of scripts and notebooks.
DYNAMIC_CODE = "<dynamic-code>"

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_STANDARD = re.compile(
    r"/lib(?:64)?/python\d+(?:\.\d+)*t?/|/[Ll]ib/(?:asyncio|concurrent)/|/python\d+\.zip/"
)

#: Names of code without a file that a user wrote.
_OF_USERS = ("<stdin", "<ipython-input", DYNAMIC_CODE)

#: Functions of Python's own library and of Dask that wait in compiled code, with their files.
#: The time of compiled code is part of the own time of the function that calls it.
WAITING_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "wait": ("threading.py", "multiprocessing/connection.py"),
    "acquire": ("threading.py",),
    "_wait_for_tstate_lock": ("threading.py",),
    "join": ("threading.py",),
    "get": ("queue.py", "asyncio/queues.py", "multiprocessing/queues.py"),
    "_recv": ("multiprocessing/connection.py",),
    "poll": ("multiprocessing/popen_fork.py",),
    "select": ("selectors.py",),
    "__sleep0": ("asyncio/tasks.py",),
    "_worker": ("concurrent/futures/thread.py", "distributed/threadpoolexecutor.py"),
}

#: File and name of each function that is marked with `waiting`.
_marked: set[tuple[str, str]] = set()


class Owner(NamedTuple):
    """Owner of a function: user, library, python, dask or recorder; None if unknown.

    Attributes
    ----------
    owner : str or None
        The kind of owner.
    package : str or None
        The package, if it is installed.
    """

    owner: str | None
    package: str | None


def local_roots() -> dict[str, str]:
    """Return the packages of Dask and the recorder in this process by their folder.

    They may be installed outside of site-packages, where `owner_of` finds them by these folders.
    """
    found = {}
    for name in (*DASK, RECORDER):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found[_posix(file).rpartition("/")[0] + "/"] = name
    return found


def owner_of(file: str, roots: Mapping[str, str] = {}) -> Owner:
    """Return the owner of the functions in a file.

    Parameters
    ----------
    file : str
        Path of the file as in a code object; it may be of another machine.
    roots : mapping, optional
        Packages by their folder, see `local_roots`.

    >>> owner_of("/v/lib/python3.11/site-packages/numpy/core/numeric.py")
    Owner(owner='library', package='numpy')
    >>> owner_of("/usr/lib/python3.11/json/decoder.py")
    Owner(owner='python', package=None)
    >>> owner_of("/home/me/pipeline.py")
    Owner(owner='user', package=None)
    """
    path = _posix(file)
    for folder, package in roots.items():
        if path.startswith(folder):
            return _packaged(package)
    installed = _INSTALLED.search(path)
    if installed is not None:
        return _packaged(installed[1].removesuffix(".py"))
    if path.startswith("<frozen ") or _STANDARD.search(path):
        return Owner("python", None)
    if path.startswith("<") and not path.startswith(_OF_USERS):
        return Owner(None, None)  # code compiled from a string, by anyone
    return Owner("user", None) if path else Owner(None, None)


def _packaged(package: str) -> Owner:
    if package in DASK:
        return Owner("dask", package)
    return Owner("recorder", package) if package == RECORDER else Owner("library", package)


def _posix(file: str) -> str:
    return file.replace("\\", "/")


def waiting(function: _AnyFunction) -> _AnyFunction:
    """Mark a function of this package as one that waits in compiled code.

    Its own time on the wall clock then counts as waiting in profiles of this process. A function
    that waits by `threading` needs no mark.

    Parameters
    ----------
    function : callable
        The function; returned as it is.

    >>> @waiting
    ... def next_item(queue):
    ...     return queue.get()
    >>> file = next_item.__code__.co_filename
    >>> waits(file, "next_item", "recorder", coroutine=False, clock="wall")
    True
    """
    code = function.__code__
    _marked.add((code.co_filename, code.co_name))
    return function


def waits(
    file: str, name: str, owner: str | None, *, coroutine: bool | None, clock: str | None
) -> bool:
    """Return whether a function's own time is waiting.

    Parameters
    ----------
    file : str
        Path of the function's file as in a code object.
    name : str
        Name of the function, qualified or not.
    owner : str or None
        Its owner, see `owner_of`.
    coroutine : bool or None
        Whether it is an ``async def``; None if unknown.
    clock : str or None
        Clock of the profile: wall or cpu; None if unknown.

    Notes
    -----
    On the CPU clock no time is waiting. On the wall clock the own time of a coroutine includes the
    time in which it was suspended, which is nearly all of it in coroutines of Dask, Python and
    the recorder. A user's function never counts as waiting: its time is part of the user's task.

    >>> waits("/usr/lib/python3.11/selectors.py", "EpollSelector.select", "python",
    ...       coroutine=False, clock="wall")
    True
    """
    if clock == "cpu":
        return False
    if coroutine and owner in ("dask", "python", "recorder"):
        return True
    if owner == "user":
        return False
    last = name.rpartition(".")[2]
    if (file, last) in _marked:
        return True
    return _posix(file).endswith(tuple(f"/{end}" for end in WAITING_FUNCTIONS.get(last, ())))

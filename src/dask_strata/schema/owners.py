"""Whose code a function is, told by the file it is in, and whether its own time is waiting."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

#: Packages that are the machinery that runs tasks.
DASK = frozenset({"dask", "distributed", "tornado", "zict", "dask_mpi", "dask_jobqueue"})

#: This package: what its recorder did is not the user's.
RECORDER = "dask_strata"

_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_STANDARD = re.compile(
    r"/lib(?:64)?/python\d+(?:\.\d+)*t?/|/[Ll]ib/(?:asyncio|concurrent)/|/python\d+\.zip/"
)

#: Functions of Python's own library that wait, in compiled code that is on their own time.
_WAITS = {
    ("threading.py", "wait"),
    ("threading.py", "acquire"),
    ("threading.py", "_wait_for_tstate_lock"),
    ("threading.py", "join"),
    ("queue.py", "get"),
    ("queues.py", "get"),
    ("queues.py", "_recv_bytes"),
    ("connection.py", "_recv"),
    ("connection.py", "wait"),
    ("popen_fork.py", "poll"),
    ("selectors.py", "select"),
    ("tasks.py", "__sleep0"),
    ("thread.py", "_worker"),
    ("threadpoolexecutor.py", "_worker"),
    ("pump.py", "_run"),
}


class Owner(NamedTuple):
    """Whose code it is: user, library, python, dask or recorder; null if that is unknown."""

    owner: str | None
    package: str | None


def local_roots() -> dict[str, str]:
    """Return the folders of Dask and of us in this process, which may be outside site-packages."""
    found = {}
    for name in (*DASK, RECORDER):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found[_posix(file).rpartition("/")[0] + "/"] = name
    return found


def owner_of(file: str, roots: Mapping[str, str] = {}) -> Owner:
    """Return whose code a file has.

    Parameters
    ----------
    file : str
        Its path, of any machine, as a code object has it.
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
    if path.startswith("<") and not path.startswith(("<stdin", "<ipython-input")):
        return Owner(None, None)  # code that was made as text, by whomever
    return Owner("user", None) if path else Owner(None, None)


def _packaged(package: str) -> Owner:
    if package in DASK:
        return Owner("dask", package)
    return Owner("recorder", package) if package == RECORDER else Owner("library", package)


def _posix(file: str) -> str:
    return file.replace("\\", "/")


def waits(
    file: str, name: str, owner: str | None, *, coroutine: bool | None, clock: str | None
) -> bool:
    """Tell whether a function's own time is waiting, as far as can be told by its name.

    On the CPU clock nothing is. On the wall clock a coroutine's own time has that in which it
    was suspended: those of Dask's machinery and of Python itself do nothing else. A user's may.
    """
    if clock == "cpu":
        return False
    if coroutine and owner in ("dask", "python", "recorder"):
        return True
    last = name.rpartition(".")[2]
    return owner != "user" and (_posix(file).rpartition("/")[2], last) in _WAITS

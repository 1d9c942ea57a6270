"""Files that tasks open, from Python's audit events.

Python has no way to remove an audit hook. The process gets one hook, once; outside of recorded
executions the hook returns after one look at a context variable.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_path

#: Bound on the distinct files of an execution; further opens only count in ``n_opened``.
MAX_OPENED = 1000

#: Bound on the files of a process whose size is looked up.
MAX_SIZES = 1000

#: Sizes of files in bytes by path; None of what has no size.
_sizes: dict[str, int | None] = {}

_installed = False

#: Modes by the flags of an `os.open`, which has no mode.
_FLAGS = {os.O_RDONLY: "read", os.O_WRONLY: "write", os.O_RDWR: "update"}

#: Audit events that start a thread or process. Its resource usage is not the execution's.
_ELSEWHERE = {
    "_thread.start_new_thread": "threads",
    "_thread.start_joinable_thread": "threads",
    "subprocess.Popen": "processes",
    "os.fork": "processes",
    "os.forkpty": "processes",
    "os.posix_spawn": "processes",
    "os.spawn": "processes",
    "os.system": "processes",
}


def watch(current: ContextVar[Any], before_open: Callable[[Any], None]) -> None:
    """Install the audit hook, which notes the files that each execution opens.

    Only the first call has an effect, which lasts for the rest of the process.

    Parameters
    ----------
    current : ContextVar
        Holds the execution that the calling code is part of, or None.
    before_open : callable
        Called with the execution before it opens a file; never raises.
    """
    global _installed  # noqa: PLW0603  a process has one interpreter, which keeps the hook
    if _installed:
        return
    _installed = True
    get = current.get

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            execution = get()
            if execution is None or len(arguments) != 3:  # noqa: PLR2004  path, mode, flags
                return
            path, mode, flags = arguments
            kind = type(path)
            if kind is int:
                return
            before_open(execution)
            execution.n_opened += 1
            # The hook must not run the user's code, which hashing a subclass of str would do.
            if kind is str or kind is bytes:
                # The option -bb makes Python raise when a dict compares str with bytes.
                with suppress(Exception):
                    _note(execution.opened, path, mode, flags)
        elif event in _ELSEWHERE:
            execution = get()
            if execution is not None:
                execution.elsewhere.add(_ELSEWHERE[event])

    sys.addaudithook(hook)


def _note(opened: dict[tuple[Any, Any, Any, Any], int], path: Any, mode: Any, flags: Any) -> None:
    opening = (
        path,
        mode if type(mode) is str else None,
        flags if type(flags) is int else 0,
        _folder_of(path),
    )
    if opening in opened:
        opened[opening] += 1
    elif len(opened) < MAX_OPENED:
        opened[opening] = 1


def _folder_of(path: str | bytes) -> str | None:
    """Return the present working folder for a relative path; None for an absolute one."""
    if path[:1] == (os.sep if type(path) is str else b"/"):
        return None
    try:
        return os.getcwd()  # noqa: PTH109  Path.cwd() would be slower, at each relative path
    except OSError:  # the folder was deleted
        return None


def opened_files(opened: dict[tuple[Any, Any, Any, Any], int]) -> Iterator[dict[str, Any]]:
    """Yield uri, mode, count and size of each opened file, but not of Python's and the system's.

    Parameters
    ----------
    opened : dict
        How often each (path, mode, flags, working folder) was opened.
    """
    files: dict[tuple[str, str], int] = {}
    sizes: dict[str, int | None] = {}
    # Iterate over a copy: a thread with the execution's context may still open files.
    for (path, mode, flags, folder), count in list(opened.items()):
        # Redact first: a normalised path has no `://`.
        name = redact_path(os.fsdecode(path))
        uri = os.path.normpath(os.path.join(redact_path(folder or ""), name))  # noqa: PTH118  text
        if not _is_code_or_system(uri):
            file = uri, _mode(mode, flags)
            files[file] = files.get(file, 0) + count
            if file[1] == "read":
                sizes[uri] = _size_of(path, folder)
    for (uri, mode), count in files.items():
        size = sizes.get(uri) if mode == "read" else None
        yield {"uri": uri, "mode": mode, "count": count, "file_bytes": size}


def _size_of(path: str | bytes, folder: str | None) -> int | None:
    """Return the size of a regular file at the first look at it; None beyond `MAX_SIZES` files."""
    whole = os.path.join(folder or "", os.fsdecode(path))  # noqa: PTH118  text
    if whole not in _sizes:
        if len(_sizes) >= MAX_SIZES:
            return None
        _sizes[whole] = None
        with suppress(OSError, ValueError):  # it was deleted meanwhile, or is no path
            found = os.stat(whole)  # noqa: PTH116  text
            _sizes[whole] = found.st_size if stat.S_ISREG(found.st_mode) else None
    return _sizes[whole]


def _is_code_or_system(path: str) -> bool:
    """Return whether a file belongs to Python or the system."""
    if path.endswith(_CODE):
        return True
    return path.startswith(_PREFIXES) and not path.startswith("/dev/shm/")  # noqa: S108  users stage data in /dev/shm


_CODE = (".py", ".pyc", ".so", ".pyi", ".pth")
_PREFIXES = tuple(
    {
        f"{prefix}{os.sep}"
        for prefix in (sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/etc", "/usr")
    }
)


def _mode(mode: Any, flags: Any) -> str:
    """Return read, write or update, from the mode or flags of an `open`."""
    if isinstance(mode, str):
        if "+" in mode:
            return "update"
        return "write" if set(mode) & set("wax") else "read"
    return _FLAGS.get(flags & os.O_ACCMODE, "read") if isinstance(flags, int) else "read"

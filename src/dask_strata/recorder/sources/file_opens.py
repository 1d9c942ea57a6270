"""Files that tasks open, as Python's own audit events tell.

An audit hook cannot be removed: there is one for the life of the process, and it does next
to nothing while nobody records.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_text

#: Files that a run is seen to open; beyond these it is only counted.
MAX_OPENED = 1000

_installed = False

#: Modes by what the flags of an `open` say, where it has no mode of its own.
_FLAGS = {os.O_RDONLY: "read", os.O_WRONLY: "write", os.O_RDWR: "update"}

#: Events that say that a run has others work for it, whose use of resources is not its own.
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


def watch(current: ContextVar[Any], look: Callable[[Any], None]) -> None:
    """See which run opens files, for the rest of the life of this process.

    Parameters
    ----------
    current : ContextVar
        The run that the calling code is part of, or None.
    look : callable
        Told of each run that opens a file, before it does; never raises.
    """
    global _installed  # noqa: PLW0603  there is one interpreter, which has the hook for good
    if _installed:
        return
    _installed = True
    get = current.get

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            run = get()
            if run is None or len(arguments) != 3:  # noqa: PLR2004  path, mode, flags
                return
            path, mode, flags = arguments
            kind = type(path)
            if kind is int:
                return
            look(run)
            run.n_opened += 1
            # Nothing of the user's may run in here, not even what hashes his own kind of text.
            if kind is str or kind is bytes:
                # Texts and bytes are compared, which Python can be told to fail for.
                with suppress(Exception):
                    _note(run.opened, path, mode, flags)
        elif event in _ELSEWHERE:
            run = get()
            if run is not None:
                run.elsewhere.add(_ELSEWHERE[event])

    sys.addaudithook(hook)


def _note(opened: dict[tuple[Any, Any, Any, Any], int], path: Any, mode: Any, flags: Any) -> None:
    what = (
        path,
        mode if type(mode) is str else None,
        flags if type(flags) is int else 0,
        _folder_of(path),
    )
    if what in opened:
        opened[what] += 1
    elif len(opened) < MAX_OPENED:
        opened[what] = 1


def _folder_of(path: str | bytes) -> str | None:
    """Return the working folder as it is now, if a path is relative to it."""
    if path[:1] == (os.sep if type(path) is str else b"/"):
        return None
    try:
        return os.getcwd()  # noqa: PTH109  called at each relative path
    except OSError:  # it is gone
        return None


def opened_files(opened: dict[tuple[Any, Any, Any, Any], int]) -> Iterator[dict[str, Any]]:
    """Yield uri, mode and count of the files that belong to somebody's data."""
    files: dict[tuple[str, str], int] = {}
    # A copy: a thread that has the run's context may still open files.
    for (path, mode, flags, folder), count in list(opened.items()):
        where = os.path.normpath(os.path.join(folder or "", os.fsdecode(path)))  # noqa: PTH118  text
        uri = redact_text(where)
        if not _is_own(uri):
            what = uri, _mode(mode, flags)
            files[what] = files.get(what, 0) + count
    for (uri, mode), count in files.items():
        yield {"uri": uri, "mode": mode, "count": count}


def _is_own(path: str) -> bool:
    """Tell whether a file belongs to Python or the system."""
    if path.endswith(_CODE):
        return True
    return path.startswith(_PREFIXES) and not path.startswith("/dev/shm/")  # noqa: S108  data is staged there


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

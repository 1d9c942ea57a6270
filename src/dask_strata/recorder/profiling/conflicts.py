"""Other profilers in this process: Python has one profile function per thread.

Other profilers are left alone. A thread's profile function cannot be read from another thread,
but Python raises an audit event for each change, and the calling frame shows the code that made
it. Before Python 3.12 these events are watched. From 3.12 on, Python's own profilers use another
interface, and Yappi replaces profile functions at any time, so that a change proves no conflict.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any

from dask_strata.recorder.sampling.frames import other_frames

#: Python's audit event for a new profile function of a thread, or its removal.
_CHANGED = "sys.setprofile"

#: Files of Python's profilers. While they run a program, their frames are on the stack.
_PROFILERS = tuple(
    os.path.join(os.path.dirname(os.__file__), name)  # noqa: PTH118  text, as in code objects
    for name in ("cProfile.py", "profile.py")
)

_hooked = False
_watched: Conflicts | None = None


def active_profiler() -> str | None:
    """Return a description of the profiler that is active in this process; None without one.

    A profile function of another thread is not found, except that of Python's own profilers.
    """
    if sys.getprofile() is not None or threading.getprofile() is not None:
        return "another profiler (sys.setprofile)"
    with other_frames() as frames:
        files = {file for frame in frames.values() for file in _files(frame)}
    files.update(_files(sys._getframe(1)))  # noqa: SLF001  this thread's
    return "Python's own profiler" if files & set(_PROFILERS) else None


def _files(frame: FrameType | None) -> Iterator[str]:
    """Yield the files of a frame and its callers."""
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


class Conflicts:
    """Threads that other profilers took over since Yappi was started; made by `watch`."""

    def __init__(self) -> None:
        #: Threads that run now: Yappi takes each of them over at its next call of a function.
        self._expected = set(sys._current_frames())  # noqa: SLF001  the only access to other threads
        self._lost: set[int] = set()
        self._found: deque[str] = deque()

    def changed(self, ident: int, function: str) -> None:
        """Note that the profile function of a thread was replaced or removed.

        Parameters
        ----------
        ident : int
            Identity of the thread.
        function : str
            The function that did it, with its file and line.
        """
        if ident in self._expected:
            self._expected.discard(ident)
        elif ident not in self._lost:
            self._lost.add(ident)
            self._found.append(
                f"another profiler took over a thread in {function}: the rest of this thread is "
                "missing"
            )

    def take(self) -> list[str]:
        """Return the conflicts since the last call, each as a sentence."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def end(self) -> None:
        """Stop watching."""
        global _watched  # noqa: PLW0603  as below
        _watched = None


def watch() -> Conflicts:
    """Watch for other profilers from now on, instead of the previous `Conflicts`."""
    global _hooked, _watched  # noqa: PLW0603  Python cannot remove an audit hook; idle, it returns
    _watched = Conflicts()
    if not _hooked and sys.version_info < (3, 12):
        _hooked = True
        sys.addaudithook(_on_audit_event)
    return _watched


def _on_audit_event(event: str, _: tuple[Any, ...]) -> None:
    conflicts = _watched
    if event != _CHANGED or conflicts is None:
        return
    frame = sys._getframe(1)  # noqa: SLF001  the caller of sys.setprofile
    code = frame.f_code
    if frame.f_back is None:
        return  # a thread that ends: Yappi takes it over once more
    yappi = sys.modules.get("yappi")
    if code.co_filename not in (getattr(yappi, "__file__", None), threading.__file__):
        file = PurePath(code.co_filename).name
        conflicts.changed(threading.get_ident(), f"{code.co_name} ({file}:{code.co_firstlineno})")

"""Profilers of others in this process: Python lets one at a time have a thread.

They are left alone. Which thread is taken by whom cannot be asked from another thread; but
Python tells of each change in an audit event, and who made it is the calling frame. From 3.12
on Python's own profilers are no trouble, and Yappi itself takes threads when it likes: there
nothing is watched for.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from pathlib import PurePath
from typing import Any

#: What Python calls the event of a profiler that takes a thread, or lets it go.
_CHANGED = "sys.setprofile"

#: Python's profilers, whose frames are on the stack while they run a program.
_PROFILERS = tuple(
    os.path.join(os.path.dirname(os.__file__), name)  # noqa: PTH118  as code objects have it
    for name in ("cProfile.py", "profile.py")
)

_hooked = False
_watched: Others | None = None


def profiler_at_work() -> str | None:
    """Return the profiler that is at work in this process, as far as that can be seen."""
    if sys.getprofile() is not None or threading.getprofile() is not None:
        return "another profiler (sys.setprofile)"
    for frame in sys._current_frames().values():  # noqa: SLF001  the way to see other threads
        present: Any = frame
        while present is not None:
            if present.f_code.co_filename in _PROFILERS:
                return "Python's own profiler"
            present = present.f_back
    return None


class Others:
    """What other profilers did since Yappi was started; made by `watch`."""

    def __init__(self) -> None:
        #: Threads that Yappi itself has yet to take, each in the midst of what it does.
        self._expected = set(sys._current_frames())  # noqa: SLF001  as above
        self._taken: set[int] = set()
        self._found: deque[str] = deque()

    def changed(self, ident: int, place: str) -> None:
        """Note that a thread has another profiler, or none."""
        if ident in self._expected:
            self._expected.discard(ident)
        elif ident not in self._taken:
            self._taken.add(ident)
            self._found.append(
                f"another profiler took a thread in {place}: the rest of that thread is missing"
            )

    def taken(self) -> list[str]:
        """Return what was taken since the last call, in sentences."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def end(self) -> None:
        """Watch no longer."""
        global _watched  # noqa: PLW0603  as below
        _watched = None


def watch() -> Others:
    """Watch from now on what other profilers do."""
    global _hooked, _watched  # noqa: PLW0603  a hook is there for good; idle, it does nothing
    _watched = Others()
    if not _hooked and sys.version_info < (3, 12):
        _hooked = True
        sys.addaudithook(_take_note)
    return _watched


def _take_note(event: str, _: tuple[Any, ...]) -> None:
    others = _watched
    if event != _CHANGED or others is None:
        return
    frame = sys._getframe(1)  # noqa: SLF001  who did it
    code = frame.f_code
    file = PurePath(code.co_filename).name
    if frame.f_back is None:
        return  # what a thread does when it has ended: Yappi takes it once more
    if file not in ("yappi.py", "threading.py"):
        others.changed(threading.get_ident(), f"{code.co_name} ({file}:{code.co_firstlineno})")

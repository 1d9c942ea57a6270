"""Whether the kernel's OOM killer ended a process: counters of its memory control group.

The kernel counts each process that it ends for lack of memory, because of the limit of its control
group or because the machine had no memory left, in the counter of that group.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import NamedTuple

from dask_strata.recorder.environment.host_view import HostView
from dask_strata.recorder.environment.machine import memory_groups

#: Files of a control group with the counter, its limit and its largest use, of cgroup v2 and v1.
_FILES = (
    ("memory.events", "memory.max", "memory.peak"),
    ("memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
)

_COUNTER = "oom_kill"

#: Looks that are kept. A killed process can take some time to end, and a look in between has
#: counted it already.
_KEPT = 4

#: The kernel's counter of the whole machine takes longer to read: one of so many looks reads it.
_SELDOM = 10


class OomEvidence(NamedTuple):
    """What the counter shows about the end of a process.

    Attributes
    ----------
    risen : bool
        Whether the kernel's OOM killer ended a process of the group shortly before.
    text : str
        The counter, its values, and the limit of the group.
    """

    risen: bool
    text: str


class OomKills:
    """The kernel's counter of OOM kills in the memory control group of one process.

    Parameters
    ----------
    pid : int
        Id of the process. It must be alive.
    view : HostView, optional
        The files that are read; those of this machine by default.
    """

    def __init__(self, pid: int, view: HostView | None = None) -> None:
        self._view = view or HostView(os.environ, Path("/proc"), Path("/sys"))
        self._pid = str(pid)
        self._n_looks = 0
        self._begin(self._group())

    def _group(self) -> str:
        """Return the path of the group; empty if that is unknown."""
        text = self._view.read(self._view.proc / self._pid / "cgroup") or ""
        found = ""
        for line in text.splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "memory" in controllers.split(","):
                return path
            if not controllers:
                found = path
        return found

    def _begin(self, group: str) -> None:
        """Find the counter of a group, and read it."""
        self._in = group
        self._file, self._limits = self._find()
        self._every = 1 if self._limits else _SELDOM
        self._counts: deque[int | None] = deque([self._count()], _KEPT)

    def _find(self) -> tuple[Path, tuple[Path, ...]]:
        """Return the file with the counter, and those with the limit and the largest use."""
        for folder in memory_groups(self._view, self._pid):
            for counter, *others in _FILES:
                if _value(self._view.read(folder / counter)) is not None:
                    return folder / counter, tuple(folder / other for other in others)
        return self._view.proc / "vmstat", ()

    def look(self) -> None:
        """Read the counter while the process is alive."""
        self._n_looks += 1
        group = self._group()
        # The kernel shows a process that ends in the root group, or in one that is deleted.
        if group not in {self._in, "", "/"} and not group.endswith(" (deleted)"):
            self._begin(group)  # it was moved
        elif self._n_looks % self._every == 0:
            self._counts.append(self._count())

    def _count(self) -> int | None:
        return _value(self._view.read(self._file))

    def evidence(self) -> OomEvidence | None:
        """Return what the counter shows after the process has ended; None if it is unreadable."""
        before, now = self._counts[0], self._count()
        if before is None or now is None:
            return None
        # The path of the group, not that of its file: those below /sys are never left out.
        place = f"control group {self._in}" if self._limits else str(self._file)
        counter = f"{_COUNTER} of {place}"
        if now <= before:
            return OomEvidence(risen=False, text=f"{counter} stayed {now}")
        text = f"{counter} rose from {before} to {now}"
        for file in self._limits:
            value = self._view.line(file)
            if value is not None and value.isdigit():
                text += f", {file.name} {value}"
        return OomEvidence(risen=True, text=text)


def _value(text: str | None) -> int | None:
    """Return the counter in a file of lines with names and numbers; None without it."""
    for line in (text or "").splitlines():
        name, _, number = line.partition(" ")
        if name == _COUNTER and number.isdigit():
            return int(number)
    return None

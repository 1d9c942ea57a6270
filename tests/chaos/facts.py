"""Facts that tasks and client write to a file of the trial, independent of the recorder.

Each fact is one line in one `write` to an append-only file outside of the run's folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes
    ----------
    kind : str
        ``begin`` or ``end``, written by a task; ``submitted``, ``known`` (its result has arrived),
        ``restart`` or ``outcome``, written by the client.
    ns, mono : int
        Time in nanoseconds, on the clock of the process and on the monotonic clock of the host.
    pid : int
        The process that wrote it.
    key, worker, thread, text : str, str, int, str
        Task, address of its worker, thread, and outcome, where they apply.
    """

    kind: str
    ns: int
    mono: int
    pid: int
    key: str = ""
    worker: str = ""
    thread: int = 0
    text: str = ""


def read_facts(file: Path) -> list[Fact]:
    """Return the facts written so far."""
    return list(_facts(file))


def _facts(file: Path) -> Iterator[Fact]:
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield Fact(**json.loads(line))


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def children(pid: int) -> list[int]:
    """Return the pids of the present children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found

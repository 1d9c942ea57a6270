"""What tasks and client say of themselves, in a file of their own that survives them.

Each fact is one line in one `write` to a file that only grows, outside of the run's folder.
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
    what : str
        begin, end (of a task, by itself); submitted, known, restart, outcome (by the client).
    ns, mono : int
        When, on the clock of its process and on the monotonic one, which all share.
    pid : int
        The process that says so.
    key, worker, thread, text : str, str, int, str
        What it is about, where that applies.
    """

    what: str
    ns: int
    mono: int
    pid: int
    key: str = ""
    worker: str = ""
    thread: int = 0
    text: str = ""


def read_facts(file: Path) -> list[Fact]:
    """Read all that was said so far."""
    return list(_facts(file))


def _facts(file: Path) -> Iterator[Fact]:
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield Fact(**json.loads(line))


def alive(pid: int) -> bool:
    """Tell whether a process runs, or could: one that ended is gone, even if unburied."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def children(pid: int) -> list[int]:
    """Return the processes that a process started, and has now."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found

"""The last lines that a worker logged and wrote, and the traceback of a fault in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.why.ends import WorkerEnd

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most lines, and most frames of a traceback.
_LINES = 5
_FRAMES = 6

#: Entries that are looked through for these.
_READ = 400

#: Streams with what a process writes to standard error.
_ERRORS = ("stderr", "output")

#: Begin of the report that `faulthandler` writes to standard error, the line before the stack of
#: the thread that had the fault, and a frame: the innermost one is first.
_FATAL = "Fatal Python error"
_STACK = re.compile(r"(Current thread|Stack) .*most recent call first")
_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>[0-9]+) in (?P<function>.*)')

#: Entries of the worker until its end was noticed, and of its nanny around its end.
_LAST = """
    with e as (
        select *, epoch_ns(stop) as at from worker_ends
        where worker = ? and stimulus_id is not distinct from ? order by stop desc limit 1
    )
    select l.time, l.role, l.level, l.logger, l.stream, l.message
    from logs l, e
    where (l.process = e.process and epoch_ns(l.time) <= e.at + 5000000000)
       or (l.role = 'nanny' and l.name = e.name and l.host = e.host
           and epoch_ns(l.time) between e.at - 5000000000 and e.at + 5000000000)
    order by l.number desc limit ?
"""


@dataclass(frozen=True)
class LogLine:
    """An entry of a log.

    Attributes
    ----------
    time : datetime
        Its time.
    role : str or None
        Role of the process: worker or nanny.
    level, logger, stream, message : str or None
        As in ``logs``.
    """

    time: datetime
    role: str | None
    level: str | None
    logger: str | None
    stream: str | None
    message: str | None


@dataclass(frozen=True)
class Logs:
    """The last entries of a worker's log.

    Attributes
    ----------
    last : tuple of LogLine
        The last entries, in time order, without those of the traceback.
    fault : str or None
        First line of `faulthandler`'s report on a fatal fault; None without one.
    frames : tuple of str
        The first frames of its traceback, the innermost one first.
    """

    last: tuple[LogLine, ...]
    fault: str | None = None
    frames: tuple[str, ...] = ()


def logs_of(run: Run, end: WorkerEnd) -> Logs | None:
    """Return the last entries of a worker's log; None if the run has no logs.

    Parameters
    ----------
    run : Run
        The run.
    end : WorkerEnd
        The worker.
    """
    if not run.rows("select 1 as n from _log_entries limit 1"):
        return None
    rows = run.rows(_LAST, end.worker, end.stimulus_id, _READ)
    lines = [LogLine(**row) for row in reversed(rows)]
    printed = [line for line in lines if line.stream in _ERRORS and line.role == "worker"]
    report: list[LogLine] = []
    for line in printed:
        if (line.message or "").startswith(_FATAL):
            report = [line]
        elif report:
            report.append(line)
    rest = [line for line in lines if line not in report and _has_text(line.message)]
    last = tuple(rest[-_LINES:])
    if not report:
        return Logs(last)
    return Logs(last, report[0].message, tuple(_frames([each.message or "" for each in report])))


def _has_text(message: str | None) -> bool:
    return any(character.isalnum() for character in message or "")


def _frames(lines: list[str]) -> list[str]:
    """Return the frames of the thread that had the fault."""
    at = next((i for i, line in enumerate(lines) if _STACK.match(line)), None)
    found: list[str] = []
    for line in [] if at is None else lines[at + 1 :]:
        frame = _FRAME.match(line)
        if frame is None:
            break
        found.append(f"{frame['file']}:{frame['line']} in {frame['function']}")
    return found[:_FRAMES]

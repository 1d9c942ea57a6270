"""Warnings and errors in logs, for the page: beside the timeline, with their place on it."""

from __future__ import annotations

import calendar
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.logs import problems
from dask_strata.report.logs.lines import where_of
from dask_strata.report.words import visible

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most entries in the page.
_ENTRIES = 100

#: Width of an entry's mark on the timeline, as a share of the run.
_WIDTH = 0.01

#: Most characters of a message.
_MESSAGE = 1_000


@dataclass(frozen=True)
class Line:
    """One entry.

    Attributes
    ----------
    time : datetime
        Its time in UTC.
    where, level, logger, message : str
        The process, the level, the logger, and the message with its traceback.
    intervals : str
        Its place on the timeline, as JSON, as `intervals_of` has it.
    """

    time: datetime
    where: str
    level: str
    logger: str
    message: str
    intervals: str


@dataclass(frozen=True)
class Lines:
    """The last warnings and errors, and their total number."""

    last: tuple[Line, ...]
    total: int


def log_lines(run: Run, origin: int, span: int) -> Lines:
    """Return the last warnings and errors in the logs of a run.

    Parameters
    ----------
    run : Run
        The run.
    origin, span : int
        First moment and length of the timeline, in ns.
    """
    found = problems(run, _ENTRIES)
    return Lines(tuple(_line(row, origin, span) for row in found.last), found.total)


def _line(row: dict[str, Any], origin: int, span: int) -> Line:
    time = row["time"]
    at = calendar.timegm(time.utctimetuple()) * 1_000_000 + time.microsecond - origin // 1_000
    half = round(span / 1_000 * _WIDTH / 2)
    thread = row["thread"] if row["key"] is not None else None
    place = [at - half, at + half, visible(row["worker"] or ""), str(thread or "")]
    text = "\n".join(filter(None, (row["message"], row["exception"])))
    shown = text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"
    return Line(
        time, where_of(row), row["level"] or "–", row["logger"] or "–", shown, json.dumps([place])
    )

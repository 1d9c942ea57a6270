"""The last lines that a worker logged and wrote, and the traceback of a fault in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.why.ends import WorkerEnd
from dask_strata.schema import TABLES

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most lines.
_LINES = 6
_TRACEBACK = 12

#: Begin of the report that `faulthandler` writes to standard error.
_FATAL = "Fatal Python error"

#: Lines of the worker until its end was noticed, and of its nanny around its end.
_LAST = """
    with e as (select * from worker_ends where worker = ? and stop = any (
        select max(stop) from worker_ends where worker = ? and stimulus_id is not distinct from ?))
    select l.time, l.role, l.level, l.logger, l.stream, l.message
    from logs l, e
    where (l.process = e.process and l.time <= e.stop + interval 5 seconds)
       or (l.role = 'nanny' and l.name = e.name and l.host = e.host
           and l.time between e.stop - interval 5 seconds and e.stop + interval 5 seconds)
    order by l.time desc limit 200
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
    fault : tuple of str
        Lines of `faulthandler`'s report on a fatal fault; empty without one.
    """

    last: tuple[LogLine, ...]
    fault: tuple[str, ...]


def logs_of(run: Run, end: WorkerEnd) -> Logs | None:
    """Return the last entries of a worker's log; None if the run has no logs.

    Parameters
    ----------
    run : Run
        The run.
    end : WorkerEnd
        The worker.
    """
    if "logs" not in TABLES or not len(run["logs"]):
        return None
    rows = run.rows(_LAST, end.worker, end.worker, end.stimulus_id)
    lines = [LogLine(**row) for row in reversed(rows)]
    starts = [i for i, line in enumerate(lines) if (line.message or "").startswith(_FATAL)]
    if not starts:
        return Logs(tuple(lines[-_LINES:]), ())
    at = starts[-1]
    fault = [line for line in lines[at:] if line.stream == "stderr"]
    rest = [line for line in lines if line not in fault]
    return Logs(tuple(rest[-_LINES:]), tuple((line.message or "") for line in fault[:_TRACEBACK]))

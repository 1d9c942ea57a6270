"""Exceptions of tasks: those that ended the run, or that the client caught."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import (
    line_of,
    plain_exception,
    raised_at,
    shortened,
)
from dask_strata.analysis.failures import Failure
from dask_strata.analysis.words import count

#: Attempts of some failures: where they ran, and on which data.
_WHERE = """
    select count(distinct a._key) as n, count(distinct a.worker) as n_workers,
           any_value(w.name) as name, count(distinct w.host) as n_hosts, any_value(w.host) as host
    from attempts a left join (select worker, any_value(name) as name, any_value(host) as host
                               from workers group by worker) w on w.worker = a.worker
    where a.outcome = 'erred' and coalesce(a.prefix, '(unknown)') = $1 and a.exception = $2
"""

#: Input files of failed tasks of a prefix, and whether others read them without failing.
_FILES = """
    select i.uri, count(distinct a._key) as n,
           (select count(distinct _key) from attempts
            where outcome = 'erred' and coalesce(prefix, '(unknown)') = $1) as n_failed
    from task_inputs i join attempts a on a._key = i._key
    where a.outcome = 'erred' and coalesce(a.prefix, '(unknown)') = $1 and i.uri is not null
    group by i.uri order by n desc, i.uri limit 1
"""

#: Tasks that failed because a dependency had failed. The blamed task is unknown if Dask forgot the
#: task at once; only a failed dependency makes a released task erred.
_NOT_RUN = """
    select count(distinct _key) as n from scheduler_transitions
    where finish_state = 'erred' and (_blame <> _key or blame is null and start_state = 'released')
"""

_TRACEBACK = """
    select traceback from scheduler_transitions
    where key = $1 and finish_state = 'erred' and traceback is not null order by seq limit 1
"""

_KILLED = "KilledWorker"

#: Most kinds of exceptions.
_MOST = 3


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each kind of exception, that which ended the script first.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    script = evidence.run.script
    raised = script.get("exception"), script.get("exception_message")
    kinds = sorted(evidence.failures, key=lambda f: not _is(f, *raised))
    if raised[0] and raised[0] not in _INTERRUPTS and not (kinds and _is(kinds[0], *raised)):
        message = f": {raised[1]}" if raised[1] else ""
        place = line_of(
            {"file": script.get("exception_file"), "line": script.get("exception_line")}
        )
        yield Finding(
            "exception",
            f"{raised[0]}{message}: the script ended{place}",
            "raised by the script itself, not by a task",
            "see the script's output",
            "show RUN",
            grave=True,
        )
    not_run = evidence.run.rows(_NOT_RUN)[0]["n"]
    for number, failure in enumerate(kinds[:_MOST]):
        where = evidence.run.rows(_WHERE, failure.prefix, failure.exception)[0]
        row = next(iter(evidence.run.rows(_TRACEBACK, failure.example)), {"traceback": None})
        place = raised_at(row["traceback"], script)
        others = f"; {not_run:,} could not run" if not_run and not number else ""
        killed = failure.exception.startswith(_KILLED)
        yield Finding(
            "killed-task" if killed else "exception",
            f"{plain_exception(failure.exception)}  {shortened(failure.example)}{place}  "
            f"({count(failure.count, 'task')}{others})",
            _evidence(evidence, failure, where),
            "look at the logs and the memory of the workers that ran it; "
            "distributed.scheduler.allowed-failures is the number of workers that it may end"
            if killed
            else "see its traceback and inputs",
            f"story RUN {shlex.quote(failure.example)}",
            grave=True,
        )


#: Exceptions with which a user ends a script.
_INTERRUPTS = ("KeyboardInterrupt", "SystemExit")


def _is(failure: Failure, kind: str | None, message: str | None) -> bool:
    """Return whether a failure of a task is the exception that ended the script."""
    if not kind:
        return False
    if failure.exception == kind:  # of an exception that the scheduler made, only its name is known
        return True
    if not failure.exception.startswith(f"{kind}("):
        return False
    return not message or message in plain_exception(failure.exception)


def _evidence(evidence: Evidence, failure: Failure, where: dict[str, object]) -> str:
    n_workers = int(str(where["n_workers"] or 0))
    parts = [f"`{failure.prefix}` failed"]
    if n_workers and not failure.worker_ends:
        on = f" (only {where['name']})" if n_workers == 1 and where["name"] else ""
        parts.append(f"on {count(n_workers, 'worker')}{on}")
    if (
        n_workers > 1
        and not failure.worker_ends
        and where["n_hosts"] == 1
        and evidence.machine.n_hosts > 1
    ):
        parts.append(f"all on host {where['host']}")
    file = next(iter(evidence.run.rows(_FILES, failure.prefix)), None)
    if file is not None and file["n"] == file["n_failed"] and failure.count > 1:
        parts.append(f"all with {file['uri']}")
    elif file is not None and failure.count == 1:
        parts.append(f"input {file['uri']}")
    parts += [ends.sentence for ends in failure.worker_ends]
    return ", ".join(parts)

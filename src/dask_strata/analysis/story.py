"""The story of one task: all its events in time order, from all layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import count, duration, size
from dask_strata.analysis.worker_ends import ends_of
from dask_strata.schema.measured.stuck import LONG_RUNNING

if TYPE_CHECKING:
    from dask_strata.run import Run, Task


@dataclass(frozen=True)
class Event:
    """One event of a task.

    Attributes
    ----------
    time : datetime or None
        Its time in UTC; None if unknown.
    layer : str
        client, graph, scheduler, worker, transfer, thread, io, log or nanny.
    where : str
        Client or worker; empty if unknown.
    what : str
        The event in a few words.
    detail : str
        Further facts; may have several lines.
    """

    time: datetime | None
    layer: str
    where: str
    what: str
    detail: str = ""


@dataclass(frozen=True)
class Story:
    """One task: its key, its row of the table ``tasks``, its neighbours and its events.

    The place is that of the last attempt. `files` and `chunks` are rows of `Task.files` and
    `Task.chunks`, `worker_ends` those of the table that ended attempts at the task.
    """

    key: str
    key_type: str
    facts: dict[str, Any]
    dependencies: tuple[str, ...]
    dependents: tuple[str, ...]
    events: tuple[Event, ...]
    host: str | None = None
    pid: int | None = None
    thread: int | None = None
    files: tuple[dict[str, Any], ...] = ()
    chunks: tuple[dict[str, Any], ...] = ()
    worker_ends: tuple[dict[str, Any], ...] = ()


#: Order of events of the same moment, from cause to effect.
_ORDER = {
    "client": 0,
    "graph": 1,
    "scheduler": 2,
    "worker": 3,
    "transfer": 4,
    "thread": 5,
    "io": 6,
    "log": 7,
    "nanny": 8,
}

#: Most log records of a task that have an event each.
_LOGS = 100

#: Most files of a task that have an event each; the others are added up in one event.
_FILES = 10


def story(task: Task) -> Story:
    """Return the story of one task.

    Parameters
    ----------
    task : Task
        The task.

    Returns
    -------
    Story
        Its events in time order; those of the same moment from cause to effect.
    """
    ends = ends_of(task)
    events = [
        *_submissions(task),
        *_scheduler(task),
        *_reports(task),
        *_worker(task),
        *_executions(task),
        *_transfers(task),
        *_spills(task),
        *_steals(task),
        *_stuck(task),
        *_segments(task),
        *_logs(task),
        *_ends(ends),
    ]
    events.sort(key=lambda e: (e.time is None, e.time, _ORDER.get(e.layer, 9)))
    return Story(
        task.key,
        task.key_type,
        task.facts,
        tuple(task.dependencies),
        tuple(task.dependents),
        tuple(events),
        task.host,
        task.pid,
        task.thread,
        tuple(task.files),
        tuple(task.chunks),
        tuple(ends),
    )


def _submissions(task: Task) -> Iterator[Event]:
    run = task.run
    for row in task.rows("graph_tasks"):
        for submission in run.rows(
            "select * from submissions where submission = ?", row["submission"]
        ):
            n_tasks = submission["n_tasks"]
            parts = [] if n_tasks is None else [f"one of {count(n_tasks, 'task')}"]
            if row["priority"]:
                parts.append(f"priority {row['priority']}")
            if row["annotations"]:
                parts.append(f"annotations {row['annotations']}")
            if row["definition_bytes"] is not None:
                parts.append(f"definition of {size(row['definition_bytes'])}")
            yield Event(
                submission["time"], "graph", submission["client"], "submitted", ", ".join(parts)
            )
            yield from _lines(run, row["submission"])


def _lines(run: Run, submission: str) -> Iterator[Event]:
    """Yield the user's line of code: a client records its line with one key of a submission."""
    rows = run.rows(
        """
        select c.* from submissions s join client_submissions c on c.client = s.client
        join graph_tasks g on g.submission = s.submission
         and g.key = c.first_key and g.key_type = c.first_key_type
        where s.submission = ? and g.requested
        order by abs(epoch_ns(c.time) - epoch_ns(s.time)) limit 1
        """,
        submission,
    )
    for row in rows:
        if row["file"]:
            where = f"{row['file']}:{row['line']} in {row['function']}"
            if row["cell"] is not None:
                where = f"cell [{row['cell']}], {where}"
            yield Event(row["time"], "client", row["client"], where, "\n".join(_code(row)))


def _code(row: dict[str, Any]) -> Iterator[str]:
    """Yield the user's line, and the cell of the notebook unless it is only this line."""
    if row["code"]:
        yield row["code"]
    if row["cell_code"] and row["cell_code"] != row["code"]:
        yield f"cell [{row['cell']}]:"
        yield row["cell_code"]


def _scheduler(task: Task) -> Iterator[Event]:
    for row in sorted(task.rows("scheduler_transitions"), key=lambda r: r["seq"]):
        parts = [row["stimulus_id"] or ""]
        if row["nbytes"] is not None:
            parts.append(f"{row['typename'] or 'result'} of {size(row['nbytes'])}")
        for interval in row["startstops"] or ():
            seconds = (interval["stop"] - interval["start"]).total_seconds()
            source = f" from {interval['source']}" if interval["source"] else ""
            parts.append(f"{interval['action']}{source} {duration(seconds)}")
        if row["thread"] is not None:
            parts.append(f"thread {row['thread']}")
        if row["suspicious"]:
            ended = count(row["suspicious"], "worker")
            parts.append(f"{ended} ended while the task was assigned to them")
        if row["metadata"]:
            parts.append(f"metadata {row['metadata']}")
        if row["exception"]:
            parts.append(row["exception"])
        if row["traceback"]:
            parts.append("\n" + row["traceback"].rstrip())
        yield Event(
            row["time"],
            "scheduler",
            row["worker"] or "",
            f"{row['start_state']} → {row['finish_state']}",
            ", ".join(filter(None, parts)),
        )


def _ends(ends: list[dict[str, Any]]) -> Iterator[Event]:
    for end in ends:
        where = end["worker"] or ""
        if end["killed"] is not None:
            what = f"nanny killed process {end['pid']} because of its memory"
            yield Event(end["killed"], "nanny", where, what)
        if end["exited"] is not None:
            signal, status = end["signal"], end["exit_status"]
            how = f"exited with status {status}" if signal is None else f"died of {signal}"
            yield Event(end["exited"], "nanny", where, f"process {end['pid']} {how}")
        yield Event(end["stop"], "scheduler", where, "worker removed", end["reason"] or "")


def _reports(task: Task) -> Iterator[Event]:
    for row in task.rows("unmatched_reports"):
        yield Event(
            row["time"],
            "scheduler",
            row["worker"] or "",
            f"report of {row['outcome']} had no effect",
            ", ".join(filter(None, (row["stimulus_id"], row["exception"]))),
        )


def _worker(task: Task) -> Iterator[Event]:
    rows = [*task.rows("worker_transitions"), *task.rows("worker_log")]
    for row in sorted(rows, key=lambda r: (r["process"], r["seq"])):
        if "event" in row:
            what, detail = row["event"], row["detail"]
        else:
            what = f"{row['start_state']} → {row['finish_state']}"
            wanted = row["wanted_state"]
            detail = f"requested: {wanted}" if wanted not in {None, row["finish_state"]} else None
        parts = (row["stimulus_id"], detail)
        yield Event(
            row["time"], "worker", row["worker"] or "", what, ", ".join(filter(None, parts))
        )


def _executions(task: Task) -> Iterator[Event]:
    opened: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row in task.rows("file_opens"):
        opened[row["process"], row["execution"]].add(row["uri"])
    for row in task.rows("executions"):
        parts = []
        if row["start"] is not None and row["stop"] is not None:
            parts.append(f"ran {duration((row['stop'] - row['start']).total_seconds())}")
        if row["cpu_seconds"] is not None:
            parts.append(f"CPU {duration(row['cpu_seconds'])}")
        parts += _process_cpu(row)
        for operation, done in _DONE.items():
            nbytes, calls = row[f"{operation}_bytes"], row[f"{operation}_calls"]
            if nbytes is not None and (nbytes or calls):
                times = "" if calls is None else f" in {count(calls, 'call')}"
                parts.append(f"{done} {size(nbytes)}{times}")
        for operation, done in _DONE.items():
            nbytes = row[f"other_{operation}_bytes"]
            if nbytes is not None and nbytes >= _LEAST_OTHER_BYTES:
                parts.append(f"other threads of the process {done} {size(nbytes)} meanwhile")
        if files := opened[row["process"], row["execution"]]:
            parts.append(f"opened {count(len(files), 'file')}")
        if row["elsewhere"]:
            parts.append(f"started {row['elsewhere']}, not included in these numbers")
        if row["exception"]:
            parts.append(row["exception"])
        yield Event(
            row["stop"],
            "thread",
            row["worker"] or "",
            f"{_KINDS.get(row['kind'], 'execution')} {row['outcome'] or 'of unknown outcome'}",
            ", ".join(parts),
        )


def _logs(task: Task) -> Iterator[Event]:
    rows = sorted(task.rows("log_records"), key=lambda row: (row["time"] is None, row["time"]))
    for row in rows[:_LOGS]:
        first, _, others = (row["message"] or "").partition("\n")
        yield Event(
            row["time"],
            "log",
            row["worker"] or "",
            f"{row['level']} {row['logger']}: {first}",
            "\n".join(filter(None, (others, row["exception"]))),
        )
    if rest := rows[_LOGS:]:
        what = f"and {count(len(rest), 'more log record')}: `dask-strata logs RUN --key KEY`"
        yield Event(rest[0]["time"], "log", rest[0]["worker"] or "", what)


def _process_cpu(row: dict[str, Any]) -> Iterator[str]:
    if row["cpu_seconds"] is None or row["process_cpu_seconds"] is None:
        return
    if row["shared"] is False:
        other = row["process_cpu_seconds"] - row["cpu_seconds"]
        if other >= LEAST_OTHER_CPU_SECONDS:
            yield f"other threads of the process used CPU for {duration(other)} meanwhile"
    else:
        others = "and other tasks" if row["shared"] else "and perhaps other tasks"
        total = duration(row["process_cpu_seconds"])
        yield f"the whole process, {others}, used CPU for {total} meanwhile"


_KINDS = {"coroutine": "coroutine", "actor": "call of the actor"}

_DONE = {"read": "read", "write": "wrote"}

#: Fewer bytes of other threads are not shown: Dask reads some kilobytes of /proc each second.
_LEAST_OTHER_BYTES = 65_536

#: Less CPU time of other threads is not shown: it is within a few ticks of the kernel's clock.
LEAST_OTHER_CPU_SECONDS = 0.05


def _segments(task: Task) -> Iterator[Event]:
    rows = task.run.rows(
        """
        select attempt, worker, uri, operation, count(*) as n, sum(length_bytes)::bigint as nbytes,
               sum(seconds) as seconds, min(start) as start, any_value(attributed_by) as by
        from io_segments where key = ? and key_type = ?
        group by attempt, worker, uri, operation order by nbytes desc, uri
        """,
        task.key,
        task.key_type,
    )
    for row in rows[:_FILES]:
        done = _DONE[row["operation"]]
        yield Event(
            row["start"],
            "io",
            row["worker"] or "",
            f"{done} {row['uri'] or 'a file without a name'}",
            f"{size(row['nbytes'])} in {count(row['n'], 'operation')}, "
            f"{duration(row['seconds'])}, {_BY[row['by']]}",
        )
    if rest := rows[_FILES:]:
        files, nbytes = len({r["uri"] for r in rest}), sum(r["nbytes"] for r in rest)
        what = f"and {size(nbytes)} of {count(files, 'more file')}"
        yield Event(min(r["start"] for r in rest), "io", rest[0]["worker"] or "", what)


_BY = {"thread": "matched by thread", "alone": "matched as the only task that ran"}


def _transfers(task: Task) -> Iterator[Event]:
    sizes = {r["transfer"]: r["nbytes"] for r in task.rows("transfer_keys")}
    for row in task.transfers:
        seconds = (row["stop"] - row["start"]).total_seconds()
        nbytes = sizes.get(row["transfer"])
        sent = "" if nbytes is None else f"{size(nbytes)}, "
        n_keys = "" if row["n_keys"] is None else f"one of {count(row['n_keys'], 'result')} "
        yield Event(
            row["start"],
            "transfer",
            row["destination"] or "a client",
            f"result sent by {row['source']}",
            f"{sent}{n_keys}in {duration(seconds)}, recorded by {row['seen_by']}",
        )


def _spills(task: Task) -> Iterator[Event]:
    for row in task.rows("spills"):
        yield Event(
            row["time"],
            "worker",
            row["worker"],
            row["action"],
            ("size unknown" if row["nbytes"] is None else size(row["nbytes"]))
            + ("" if row["seconds"] is None else f" in {duration(row['seconds'])}"),
        )


def _steals(task: Task) -> Iterator[Event]:
    for row in task.rows("steals"):
        yield Event(
            row["time"],
            "scheduler",
            row["source"] or "",
            f"steal: {row['outcome']}",
            f"to {row['destination']}" if row["destination"] else "",
        )


def _stuck(task: Task) -> Iterator[Event]:
    """Yield when the task was found stuck, and again when its stack or its reason changed."""
    before = None
    for row in sorted(task.rows("stuck"), key=lambda r: r["seq"]):
        what = row["worker"], row["reason"], row["stack"]
        if what == before:
            continue
        before = what
        parts = [row["reason"]]
        if row["kind"] == LONG_RUNNING:
            typical = "no other of its prefix had finished"
            if row["typical_seconds"] is not None:
                typical = f"typical for its prefix is {duration(row['typical_seconds'])}"
            parts = [typical]
        detail = ", ".join(filter(None, parts))
        if row["stack"]:
            detail += f"\n{row['stack']}"
        done = "ran" if row["kind"] == LONG_RUNNING else "waited"
        found = f"found stuck: {done} for {duration(row['seconds'])}"
        yield Event(row["time"], "scheduler", row["worker"] or "", found, detail)

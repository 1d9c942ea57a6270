"""The scheduler's transitions, joined with the workers' reports of finished and failed tasks.

Dask's transition log has key, states, stimulus and time. The messages of workers, called reports
here, have worker, thread, sizes, intervals and exceptions. A report causes at most one transition
out of `processing`, with the same key and stimulus, in the same step of the event loop.
"""

from __future__ import annotations

import pickletools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import sub
from typing import Any, TypeVar

from dask_strata.recorder.graphs.own_tasks import OwnTasks
from dask_strata.recorder.pipeline.engine import now_ns, times_ns, to_ns
from dask_strata.recorder.pipeline.redact import redact_json, redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, wire_keys
from dask_strata.recorder.sources.dask_logs import LogFollower, MessageHook, UnexpectedLogError
from dask_strata.recorder.stuck.durations import Durations
from dask_strata.schema import wire_key
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch
from dask_strata.store.segments.intervals import Intervals
from dask_strata.store.segments.quoted_code import frames_only

#: A report without a transition after this time caused none.
_UNMATCHED_SECONDS = 1.0

#: Bound on removed workers to remember; their transitions are read within a flush interval.
_REMEMBERED_REMOVALS = 10_000

_MAX_PICKLE_BYTES = 100_000

_Row = TypeVar("_Row", bound=tuple[Any, ...])

#: Whether a task finished, and the message of the worker.
_Report = tuple[bool, dict[str, Any]]

#: Columns about failures, which are null in most transitions.
_FAILURE = ("exception", "traceback", "blame", "suspicious")


def intervals(startstops: Any) -> list[Any] | None:
    """Return Dask's startstops as lists of action, start in ns, duration in ns, and source.

    >>> intervals([{"action": "compute", "start": 1.5, "stop": 2.0}])
    [['compute', 1500000000, 500000000, None]]
    """
    if not startstops:
        return None
    return [
        [s["action"], (start := to_ns(s["start"])), to_ns(s["stop"]) - start, s.get("source")]
        for s in startstops
    ]


def text_or_none(value: Any) -> str | None:
    """Return a text clipped and redacted; None for an empty text or another type.

    >>> text_or_none("ValueError: token=hunter2"), text_or_none(7)
    ('ValueError: token=(redacted)', None)
    """
    return redact_text(clip(value)) if isinstance(value, str) and value else None


def traceback_text(value: Any, *, code: bool) -> str | None:
    """Return a traceback clipped and redacted, without its source lines unless ``code``."""
    text = text_or_none(value)
    return text if text is None or code else frames_only(text)


class Transitions(Source):
    """Base of the two sources of transitions: makes batches and remembers removed workers.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    code : bool
        Whether to record the source lines of tracebacks.
    own : OwnTasks, optional
        The client whose tasks alone are recorded.

    Attributes
    ----------
    recorded : int
        Number of rows of ``scheduler_transitions`` so far, and of those that were left out.
    durations : Durations
        Durations of the finished executions in these rows.
    """

    def __init__(self, scheduler: Any, *, code: bool, own: OwnTasks | None = None) -> None:
        self._scheduler = scheduler
        self._code = code
        self._own = own
        self._first = scheduler.transition_counter
        #: Removed workers and the keys that each was processing, by the stimulus.
        self._removed: dict[str, tuple[str, Collection[Any]]] = {}
        self._failed: dict[tuple[Any, str], dict[str, Any]] = {}
        self.recorded = 0
        self.durations = Durations(scheduler.tasks)

    def worker_removed(self, worker: str, stimulus_id: str, processing: Collection[Any]) -> None:
        """Remember the worker that a stimulus removed; called on the event loop.

        Parameters
        ----------
        worker : str
            Its address.
        stimulus_id : str
            The stimulus. It also ends the processing of tasks on other workers: of those whose
            inputs were lost with this one.
        processing : collection
            Keys that were processing on the worker.
        """
        self._removed[stimulus_id] = worker, processing
        if len(self._removed) > _REMEMBERED_REMOVALS:
            del self._removed[next(iter(self._removed))]

    def counter(self) -> int:
        """Return Dask's own count of transitions since recording began."""
        return int(self._scheduler.transition_counter - self._first)

    def _own_rows(self, rows: list[_Row]) -> list[_Row]:
        """Return the transitions of own tasks: tuples that begin with key, start and finish."""
        self.recorded += len(rows)
        if self._own is None or not rows:
            return rows
        chosen = self._own.select([row[0] for row in rows], [row[2] for row in rows])
        if len(chosen) < len(rows):
            others = set(range(len(rows))).difference(chosen)
            self._leave_out(rows[i] for i in others)
        return [rows[i] for i in chosen]

    def _leave_out(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Discard the details of transitions that are not recorded."""

    def _batch(
        self,
        columns: tuple[list[Any], list[Any], list[Any], list[Any], list[Any]],
        report_of: Callable[[int], _Report | None],
    ) -> Batch:
        keys, starts, finishes, stimuli, times = columns
        ended = [i for i, start in enumerate(starts) if start == "processing"]
        reports = {i: report for i in ended if (report := report_of(i)) is not None}
        self.durations.add([(keys[i], report) for i, (ok, report) in reports.items() if ok])
        workers = self._assigned(keys, finishes, ended)
        workers |= {i: message.get("worker") for i, (_, message) in reports.items()}
        if len(reports) < len(ended):
            workers |= {
                i: self._removed_from(keys[i], stimuli[i]) for i in ended if i not in reports
            }
        rows = sorted(workers)
        return Batch(
            "scheduler_transitions",
            len(keys),
            {
                "time": times_ns(times),
                "key": wire_keys(keys),
                "start_state": starts,
                "finish_state": finishes,
                "stimulus_id": stimuli,
                "worker": _sparse(rows, [workers[i] for i in rows]),
                **_reported(reports),
                **self._failures(keys, finishes, stimuli, reports),
            },
        )

    def _removed_from(self, key: Any, stimulus_id: str) -> str | None:
        worker, processing = self._removed.get(stimulus_id, (None, ()))
        return worker if key in processing else None

    def _assigned(
        self, keys: list[Any], finishes: list[Any], ended: list[int]
    ) -> dict[int, str | None]:
        """Return the worker of each task that is processing since its transition, by row."""
        tasks = self._scheduler.tasks
        workers: dict[int, str | None] = {}
        end = {keys[i]: i for i in ended}
        for i, finish in enumerate(finishes):
            if finish == "processing" and end.get(keys[i], -1) < i:
                ts = tasks.get(keys[i])
                ws = None if ts is None else ts.processing_on
                workers[i] = None if ws is None else ws.address
        return workers

    def _failures(
        self,
        keys: list[Any],
        finishes: list[Any],
        stimuli: list[Any],
        reports: Mapping[int, _Report],
    ) -> dict[str, Sparse]:
        """Return the columns of failures; they prefer the values from the worker's own report."""
        columns = {name: Sparse() for name in _FAILURE}
        failed = {i for i, (finished, _) in reports.items() if not finished}
        erred = set()
        if "erred" in finishes:  # rarely; then look for all of them
            erred = {i for i, finish in enumerate(finishes) if finish == "erred"}
        for i in sorted(failed | erred):
            failure: dict[str, Any] = {}
            if i in erred:
                kept = self._failed.pop((keys[i], stimuli[i]), None)
                failure = kept or _failure(self._scheduler.tasks.get(keys[i]), code=self._code)
            if i in failed:
                found = _reported_failure(reports[i][1], code=self._code)
                failure |= {name: value for name, value in found.items() if value is not None}
            for name, value in failure.items():
                columns[name].put(i, value)
        return columns


class TransitionSource(Transitions):
    """Make batches of ``scheduler_transitions`` and ``unmatched_reports`` from Dask's logs.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    code : bool, optional
        Whether to record the source lines of tracebacks.
    own : OwnTasks, optional
        The client whose tasks alone are recorded.

    Raises
    ------
    UnexpectedLogError
        Dask's log or handlers are not of the expected form; use `PluginSource` instead.
    """

    name = "log"

    def __init__(self, scheduler: Any, *, code: bool = True, own: OwnTasks | None = None) -> None:
        from distributed.scheduler import Transition

        if Transition._fields[:3] != ("key", "start", "finish") or Transition._fields[4:] != (
            "stimulus_id",
            "timestamp",
        ):
            raise UnexpectedLogError(f"Transition is {Transition._fields}")
        super().__init__(scheduler, code=code, own=own)
        self._finished: deque[dict[str, Any]] = deque()
        self._erred: deque[dict[str, Any]] = deque()
        self._pending: dict[tuple[Any, str], _Report] = {}
        self._since: dict[tuple[Any, str], float] = {}
        self._log = LogFollower(scheduler, "transition_log")
        self._hooks = []
        try:
            handlers = scheduler.stream_handlers
            self._hooks.append(MessageHook(handlers, "task-finished", self._finished.append))
            self._hooks.append(MessageHook(handlers, "task-erred", self._erred.append))
        except UnexpectedLogError:
            self.remove()
            raise

    def remove(self) -> None:
        """Stop following the log and the messages; call it on the event loop's thread."""
        self._log.remove()
        for hook in self._hooks:
            hook.remove()

    def worker_removed(self, worker: str, stimulus_id: str, processing: Collection[Any]) -> None:
        """Also remember the failures that the removal caused.

        Dask may forget the failed tasks before the recorder's thread reads their transitions.
        """
        super().worker_removed(worker, stimulus_id, processing)
        for key, _, finish, _, stimulus, _ in self._log.peek():
            if finish == "erred" and stimulus == stimulus_id:
                self._failed[key, stimulus] = _failure(
                    self._scheduler.tasks.get(key), code=self._code
                )

    def _leave_out(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for key, _, _, _, stimulus_id, _ in rows:
            self._pending.pop((key, stimulus_id), None)
            self._failed.pop((key, stimulus_id), None)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the transitions since the last call, and of unmatched reports."""
        # Read the transitions first: Dask continues meanwhile, and receives a report before it logs
        # the transition, so the reports of all these transitions are present.
        entries = self._log.take()
        for finished, reports in ((True, self._finished), (False, self._erred)):
            for _ in range(len(reports)):
                message = reports.popleft()
                self._pending[message["key"], message["stimulus_id"]] = finished, message
        entries = self._own_rows(entries)
        if entries:
            keys, starts, finishes, _, stimuli, times = map(list, zip(*entries, strict=True))
            yield self._batch(
                (keys, starts, finishes, stimuli, times),
                lambda i: self._pending.pop((keys[i], stimuli[i]), None),
            )
        unmatched = self._old_reports()
        if self._own is not None:
            unmatched = [r for r in unmatched if r[1]["key"] in self._own]
        if unmatched:
            yield unmatched_batch(unmatched)

    def _old_reports(self) -> list[_Report]:
        """Remove and return old reports.

        A transition follows its report in the same step of the event loop or never.
        """
        now = time.monotonic()
        self._since = {key: self._since.get(key, now) for key in self._pending}
        old = [key for key, since in self._since.items() if now - since > _UNMATCHED_SECONDS]
        return [self._pending.pop(key) for key in old]

    def unmatched(self) -> None:
        """Make the next `rows` give up on all reports that wait for a transition."""
        self._since = dict.fromkeys(self._since, 0.0)


def _sparse(rows: Iterable[int], values: list[Any]) -> Sparse:
    """Return a column from ascending rows and their values, of which some may be None."""
    if None in values:
        rows = [row for row, value in zip(rows, values, strict=True) if value is not None]
        values = [value for value in values if value is not None]
    return Sparse(list(rows), values)


def _reported(reports: Mapping[int, _Report]) -> dict[str, Sparse]:
    """Return the columns of finished and failed tasks, from reports by row."""
    messages = [message for _, message in reports.values()]
    columns = {name: [m.get(name) for m in messages] for name in ("thread", "run_id")}
    columns["metadata"] = [redact_json(d) if (d := m.get("metadata")) else None for m in messages]
    for name in ("nbytes", "typename"):
        columns[name] = [m.get(name) if finished else None for finished, m in reports.values()]
    startstops = _sparse(reports, [m.get("startstops") or None for m in messages])
    return {
        **{name: _sparse(reports, values) for name, values in columns.items()},
        "startstops": Sparse(startstops.rows, _intervals_of_rows(startstops.values)),
    }


def _intervals_of_rows(startstops: Sequence[Any]) -> Intervals:
    """Return Dask's startstops of several tasks by field, as `intervals` does for one of them."""
    flat = list(chain.from_iterable(startstops))
    starts = times_ns([s["start"] for s in flat])
    stops = times_ns([s["stop"] for s in flat])
    durations = list(map(sub, stops, starts))
    fields = [s["action"] for s in flat], starts, durations, [s.get("source") for s in flat]
    return Intervals(list(map(len, startstops)), fields)


def _reported_failure(message: dict[str, Any], *, code: bool) -> dict[str, Any]:
    """Return exception and traceback from the report of a failed task."""
    return {
        "exception": text_or_none(message.get("exception_text")),
        "traceback": traceback_text(message.get("traceback_text"), code=code),
    }


def _failure(ts: Any, *, code: bool) -> dict[str, Any]:
    """Return exception, traceback, blame and suspicions of a failed task; {} if it is forgotten."""
    if ts is None:
        return {}
    text = text_or_none(getattr(ts, "exception_text", None)) or _made_by_scheduler(ts.exception)
    blame = ts.exception_blame
    return {
        "exception": text,
        "traceback": traceback_text(getattr(ts, "traceback_text", None), code=code),
        "blame": None if blame is None else wire_key(blame.key),
        "suspicious": ts.suspicious,
    }


def _made_by_scheduler(pickled: Any) -> str | None:
    """Return the name of an exception that Dask keeps without a text, such as `KilledWorker`.

    Scan the pickle for its first class, which is that of the exception; never load it.
    """
    if not isinstance(pickled, bytes) or len(pickled) > _MAX_PICKLE_BYTES:
        return None
    strings: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(pickled):
            if operation.name == "GLOBAL":
                return str(argument).rpartition(" ")[2]
            if operation.name == "STACK_GLOBAL":
                return strings[-1] if strings else None
            if isinstance(argument, str):
                strings.append(argument)
    except ValueError:
        return None
    return None


def unmatched_batch(reports: list[_Report]) -> Batch:
    """Return the batch of reports that caused no transition.

    Parameters
    ----------
    reports : list of (bool, dict)
        Whether the task finished, and the message.
    """
    now = now_ns()
    return Batch.of_rows(
        "unmatched_reports",
        [
            {
                "time": now,
                "key": wire_key(m["key"]),
                "worker": m.get("worker"),
                "stimulus_id": m["stimulus_id"],
                "outcome": "finished" if finished else "erred",
                "run_id": m.get("run_id"),
                "nbytes": m.get("nbytes"),
                "startstops": intervals(m.get("startstops")),
                "exception": text_or_none(m.get("exception_text")),
            }
            for finished, m in reports
        ],
    )


class PluginSource(Transitions):
    """Make batches of ``scheduler_transitions`` from Dask's public plugin call alone.

    For versions of Dask whose logs `TransitionSource` does not recognise. It records no exceptions
    of retried attempts, no unmatched reports and no `run_id`.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    clock : callable
        Returns the time in seconds since the epoch.
    code : bool, optional
        Whether to record the source lines of tracebacks.
    own : OwnTasks, optional
        The client whose tasks alone are recorded.
    """

    name = "plugin"

    def __init__(
        self,
        scheduler: Any,
        clock: Callable[[], float],
        *,
        code: bool = True,
        own: OwnTasks | None = None,
    ) -> None:
        super().__init__(scheduler, code=code, own=own)
        self._clock = clock
        self._calls: deque[tuple[Any, str, str, str, float, dict[str, Any]]] = deque()

    def transition(
        self, key: Any, start: str, finish: str, *_: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Queue a transition for the next flush; called by Dask on the event loop."""
        self._calls.append((key, start, finish, stimulus_id, self._clock(), kwargs))

    def remove(self) -> None:
        """Do nothing: the removal of the plugin ends the calls."""

    def rows(self) -> Iterable[Batch]:
        """Return rows of the transitions since the last call."""
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        calls = self._own_rows(calls)
        if not calls:
            return
        keys, starts, finishes, stimuli, times, kwargs = map(list, zip(*calls, strict=True))
        yield self._batch(
            (keys, starts, finishes, stimuli, times),
            lambda i: (finishes[i] != "erred", kwargs[i]) if "startstops" in kwargs[i] else None,
        )

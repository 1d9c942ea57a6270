"""The scheduler's transitions, with what the workers' reports say about them.

From Dask's own log come key, states, stimulus and time; from the messages of workers come
worker, thread, sizes, intervals, exceptions. A message causes at most one transition out
of `processing`, with the same key and stimulus, in the same step of the event loop.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from dask_strata.recorder.engine import now_ns, to_ns
from dask_strata.recorder.taps import HandlerTap, LogTap, UnexpectedLogError
from dask_strata.recorder.text import clip, json_text, wire_keys
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch, Sparse

#: Columns that most transitions have no value in.
_DETAILS = (
    "worker",
    "thread",
    "nbytes",
    "typename",
    "startstops",
    "metadata",
    "run_id",
    "exception",
    "traceback",
    "blame",
    "suspicious",
)


def intervals(startstops: Any) -> list[Any] | None:
    """Return Dask's startstops as (action, start ns, duration ns, source)."""
    if not startstops:
        return None
    return [
        [s["action"], (start := to_ns(s["start"])), to_ns(s["stop"]) - start, s.get("source")]
        for s in startstops
    ]


def text_or_none(value: Any) -> str | None:
    """Return a text of Dask's, clipped; anything that is no text is null."""
    return clip(value) if isinstance(value, str) and value else None


class TransitionSource:
    """Makes batches of `scheduler_transitions` and `unmatched_reports`.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.

    Raises
    ------
    UnexpectedLogError
        Dask's logs are not as this version knows them; use `PluginSource`.
    """

    name = "log"

    def __init__(self, scheduler: Any) -> None:
        from distributed.scheduler import Transition

        if Transition._fields[:3] != ("key", "start", "finish") or Transition._fields[4:] != (
            "stimulus_id",
            "timestamp",
        ):
            raise UnexpectedLogError(f"Transition is {Transition._fields}")
        self._scheduler = scheduler
        self._finished: deque[dict[str, Any]] = deque()
        self._erred: deque[dict[str, Any]] = deque()
        self._pending: dict[tuple[Any, str], tuple[bool, dict[str, Any]]] = {}
        self._removed: dict[str, str] = {}
        self._first = scheduler.transition_counter
        self._log = LogTap(scheduler, "transition_log")
        self.recorded = 0
        self._taps = []
        try:
            handlers = scheduler.stream_handlers
            self._taps.append(HandlerTap(handlers, "task-finished", self._finished.append))
            self._taps.append(HandlerTap(handlers, "task-erred", self._erred.append))
        except UnexpectedLogError:
            self.remove()
            raise

    def remove(self) -> None:
        """Stop; on the event loop's thread."""
        self._log.remove()
        for tap in self._taps:
            tap.remove()

    def worker_removed(self, worker: str, stimulus_id: str) -> None:
        """Remember which worker's end a stimulus is about."""
        self._removed[stimulus_id] = worker

    def counter(self) -> int:
        """Return Dask's own count of transitions since recording began."""
        return int(self._scheduler.transition_counter - self._first)

    def _report_of(self, key: Any, stimulus_id: str) -> tuple[bool, dict[str, Any]] | None:
        return self._pending.pop((key, stimulus_id), None)

    def __call__(self) -> Iterable[Batch]:
        """Return what happened since the last call."""
        old = list(self._pending)
        for finished, reports in ((True, self._finished), (False, self._erred)):
            for _ in range(len(reports)):
                message = reports.popleft()
                self._pending[message["key"], message["stimulus_id"]] = (finished, message)
        entries = self._log.take()
        if entries:
            keys, starts, finishes, _, stimuli, times = map(list, zip(*entries, strict=True))
            yield _batch(
                self._scheduler,
                self._removed,
                (keys, starts, finishes, stimuli, times),
                lambda i: self._report_of(keys[i], stimuli[i]),
            )
            self.recorded += len(entries)
        # A report's transition is in the same step of the event loop: one that is still
        # here after a whole interval had none.
        unmatched = [r for k in old if (r := self._report_of(*k)) is not None]
        if unmatched:
            yield unmatched_batch(unmatched)


def _batch(
    scheduler: Any,
    removed: dict[str, str],
    columns: tuple[list[Any], list[Any], list[Any], list[Any], list[Any]],
    report_of: Callable[[int], tuple[bool, dict[str, Any]] | None],
) -> Batch:
    keys, starts, finishes, stimuli, times = columns
    details = {name: Sparse() for name in _DETAILS}
    worker = details["worker"]
    tasks = scheduler.tasks
    for i, (start, finish) in enumerate(zip(starts, finishes, strict=True)):
        if start == "processing":
            report = report_of(i)
            if report is not None:
                _put_report(details, i, *report)
            else:
                worker.put(i, removed.get(stimuli[i]))
        elif finish == "processing":
            ts = tasks.get(keys[i])
            on = None if ts is None else ts.processing_on
            worker.put(i, None if on is None else on.address)
        if finish == "erred":
            _put_failure(details, i, tasks.get(keys[i]))
    return Batch(
        "scheduler_transitions",
        len(keys),
        {
            "time": [to_ns(t) for t in times],
            "key": wire_keys(keys),
            "start_state": starts,
            "finish_state": finishes,
            "stimulus_id": stimuli,
            **details,
        },
    )


def _put_report(details: dict[str, Sparse], i: int, finished: bool, m: dict[str, Any]) -> None:  # noqa: FBT001
    details["worker"].put(i, m.get("worker"))
    details["thread"].put(i, m.get("thread"))
    details["startstops"].put(i, intervals(m.get("startstops")))
    details["run_id"].put(i, m.get("run_id"))
    if m.get("metadata"):
        details["metadata"].put(i, json_text(m["metadata"]))
    if finished:
        details["nbytes"].put(i, m.get("nbytes"))
        details["typename"].put(i, m.get("typename"))
    else:
        details["exception"].put(i, text_or_none(m.get("exception_text")))
        details["traceback"].put(i, text_or_none(m.get("traceback_text")))


def _put_failure(details: dict[str, Sparse], i: int, ts: Any) -> None:
    if ts is None:
        return
    if not details["exception"].rows or details["exception"].rows[-1] != i:
        text = text_or_none(getattr(ts, "exception_text", None)) or _own_exception(ts.exception)
        details["exception"].put(i, text)
        details["traceback"].put(i, text_or_none(getattr(ts, "traceback_text", None)))
    blame = ts.exception_blame
    details["blame"].put(i, None if blame is None else wire_key(blame.key))
    details["suspicious"].put(i, ts.suspicious)


def _own_exception(pickled: Any) -> str | None:
    """Return the text of an exception that the scheduler made itself, as `KilledWorker`.

    Dask keeps those as bytes and without a text; the ones of workers are never bytes here.
    """
    if not isinstance(pickled, bytes):
        return None
    try:
        made = pickle.loads(pickled)  # noqa: S301  made in this process, by the scheduler
        return clip(f"{type(made).__name__}({str(made)!r})")
    except Exception as error:  # noqa: BLE001  it is only a text
        return f"(unreadable: {type(error).__name__})"


def unmatched_batch(reports: list[tuple[bool, dict[str, Any]]]) -> Batch:
    """Return the batch of reports that changed no state."""
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


class PluginSource:
    """The same from Dask's public plugin call alone, for a Dask that we do not know.

    It has no exception of attempts that were retried, and no report that came too late.
    """

    name = "plugin"

    def __init__(self, scheduler: Any, clock: Callable[[], float]) -> None:
        self._scheduler, self._clock = scheduler, clock
        self._calls: deque[tuple[Any, str, str, str, float, dict[str, Any]]] = deque()
        self._removed: dict[str, str] = {}
        self._first = scheduler.transition_counter
        self.recorded = 0

    def transition(
        self, key: Any, start: str, finish: str, *_: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Take one call of Dask's."""
        self._calls.append((key, start, finish, stimulus_id, self._clock(), kwargs))

    def remove(self) -> None:
        """Nothing to undo: the plugin itself is removed."""

    def worker_removed(self, worker: str, stimulus_id: str) -> None:
        """Remember which worker's end a stimulus is about."""
        self._removed[stimulus_id] = worker

    def counter(self) -> int:
        """Return Dask's own count of transitions since recording began."""
        return int(self._scheduler.transition_counter - self._first)

    def __call__(self) -> Iterable[Batch]:
        """Return what happened since the last call."""
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        if not calls:
            return
        keys, starts, finishes, stimuli, times, kwargs = map(list, zip(*calls, strict=True))
        yield _batch(
            self._scheduler,
            self._removed,
            (keys, starts, finishes, stimuli, times),
            lambda i: (finishes[i] != "erred", kwargs[i]) if "startstops" in kwargs[i] else None,
        )
        self.recorded += len(calls)

"""Events that Dask, its nannies or the user log, among them those about workers and stealing."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_json, redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, safe_repr
from dask_strata.schema import wire_key
from dask_strata.schema.values import ANNOUNCED, EXPECTED, NO_HEARTBEAT, UNEXPECTED
from dask_strata.store.segments.frames import Batch

#: Actions of Dask's events about a worker, and their names in ``worker_events``.
_WORKER_ACTIONS = {
    "worker-status-change": "status",
    "closing-worker": "closing",
    "close-worker": "close-requested",
    "retire-workers": "retired",
    "retired": "retired",
    "lost-worker": "lost",
}


#: Actions that announce the end of a worker, by the worker itself or by the scheduler.
_ANNOUNCEMENTS = frozenset({"closing-worker", "close-worker", "retired"})

#: Longest topic, in characters, whose redacted text is cached.
_SHORT_TOPIC = 500

#: Number of items in the forms of Dask's stealing events.
_REQUEST_LENGTH, _LENGTH_WITH_DESTINATION, _LENGTH_WITHOUT_DESTINATION = 8, 5, 4


class EventSource(Source):
    """Make batches of ``log_events`` and ``steals``, and rows of ``worker_events``.

    Parameters
    ----------
    engine : Engine
        Gets the rows of ``worker_events``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._events: deque[tuple[int, Any, Any]] = deque()
        self._expected: dict[str, str] = {}
        #: Keys that the worker of an address was processing when it was removed.
        self._processing: dict[str, Collection[Any]] = {}
        self._announced: dict[str, str] = {}

    def logged(self, topic: Any, message: Any) -> None:
        """Queue an event for the next flush; called on the event loop.

        Parameters
        ----------
        topic : object
            Dask's topic, such as the address of a worker.
        message : object
            The event.
        """
        self._events.append((now_ns(), topic, message))
        if not isinstance(message, dict) or not isinstance(topic, str) or topic == "all":
            return
        action = message.get("action")
        if action == "remove-worker":
            self._expected[topic] = EXPECTED if message.get("expected") else UNEXPECTED
            self._processing[topic] = message.get("processing-tasks") or ()
        elif action in _ANNOUNCEMENTS:
            self._announced[topic] = str(message.get("reason") or action)

    def worker_added(self, worker: str) -> None:
        """Forget what an earlier worker of the address announced; called on the event loop.

        Announcements can arrive after the removal that they announce.
        """
        self._announced.pop(worker, None)

    def processing_on(self, worker: str) -> Collection[Any]:
        """Return the keys that a worker was processing when Dask removed it, once."""
        return self._processing.pop(worker, ())

    def worker_removed(self, worker: str, stimulus_id: str, asked: str | None = None) -> None:
        """Add the row for a removed worker; called on the event loop, after Dask has logged it.

        Parameters
        ----------
        worker : str
            Address of the worker.
        stimulus_id : str
            Dask's stimulus of the removal.
        asked : str, optional
            Why the scheduler or the cluster object ended it, if the worker announced nothing.
        """
        announced = self._announced.pop(worker, None) or asked
        expected = self._expected.pop(worker, None)
        # Prefer the announcement: Dask calls each removal unexpected that the scheduler did not
        # request, even if the worker had announced that it was closing.
        if announced:
            reason = f"{ANNOUNCED}: {redact_text(clip(announced, 10_000))}"
        else:
            reason = f"{expected}: {stimulus_id}" if expected else stimulus_id
        self._engine.add(
            "worker_events",
            time=now_ns(),
            worker=worker,
            action="remove",
            reason=reason,
            stimulus_id=stimulus_id,
        )

    def rows(self) -> Iterable[Batch]:
        """Return the events since the last call."""
        events = [self._events.popleft() for _ in range(len(self._events))]
        if not events:
            return
        steals: list[dict[str, Any]] = []
        for time, topic, message in events:
            if topic == "stealing":
                steals.extend(_steals(time, message))
            elif isinstance(message, dict):
                self._about_worker(time, topic, message)
        yield Batch(
            "log_events",
            len(events),
            {
                "time": [time for time, *_ in events],
                "topic": [_topic(topic) for _, topic, _ in events],
                "message": _messages([message for *_, message in events]),
            },
        )
        if steals:
            yield Batch.of_rows("steals", steals)

    def _about_worker(self, time: int, topic: Any, message: dict[Any, Any]) -> None:
        action = message.get("action")
        if topic == "scheduler" and action == "worker-ttl-timed-out":
            self._without_heartbeat(time, message)
            return
        if topic == "worker-restart-memory":
            worker, action = message.get("worker"), "memory-limit-kill"
        elif isinstance(action, str) and action in _WORKER_ACTIONS and topic != "all":
            worker, action = message.get("worker") or topic, _WORKER_ACTIONS[action]
        else:
            return
        if action == "status":
            reason = f"{message.get('prev-status')} → {message.get('status')}"
            if message.get("status") == "paused":
                action = "paused"
        else:
            reason = message.get("reason") or redact_json(message)
        self._engine.add(
            "worker_events",
            time=time,
            worker=_topic(worker),
            action=action,
            reason=redact_text(clip(str(reason), 10_000)),
            stimulus_id=message.get("stimulus_id")
            if isinstance(message.get("stimulus_id"), str)
            else None,
        )

    def _without_heartbeat(self, time: int, message: dict[Any, Any]) -> None:
        """Add a row for each worker that the scheduler restarts because it sent no heartbeat."""
        for worker in message.get("workers") or ():
            self._engine.add(
                "worker_events",
                time=time,
                worker=_topic(worker),
                action=NO_HEARTBEAT,
                reason=f"none for {message.get('ttl')} s",
            )


#: Topics are few: the scheduler, workers and clients.
_redacted_topic = lru_cache(maxsize=1024)(redact_text)


def _topic(topic: Any) -> str:
    # The text of a subclass may have any hash.
    if topic.__class__ is str and len(topic) <= _SHORT_TOPIC:
        return _redacted_topic(topic)
    return redact_text(topic if isinstance(topic, str) else safe_repr(topic))


def _messages(messages: list[Any]) -> list[str]:
    """Return messages as JSON; Dask logs one object under several topics, one after the other."""
    texts: list[str] = []
    for i, message in enumerate(messages):
        same = i > 0 and message is messages[i - 1]
        texts.append(texts[-1] if same else redact_json(message))
    return texts


def _steals(time: int, message: Any) -> Iterable[dict[str, Any]]:
    """Yield rows for an event of work stealing; skip forms that no known version of Dask has."""
    if not isinstance(message, (tuple, list)) or not message:
        return
    kind, *rest = message
    if kind == "request" and rest and isinstance(rest[0], (list, tuple)):
        for entry in rest[0]:
            if isinstance(entry, (list, tuple)) and len(entry) == _REQUEST_LENGTH:
                yield {
                    "time": time,
                    "key": wire_key(entry[2]),
                    "source": entry[4],
                    "destination": entry[6],
                    "outcome": "request",
                }
        return
    if kind == "reschedule" and rest and isinstance(rest[0], bool):
        rest = rest[1:]
    outcome = safe_repr(kind) if not isinstance(kind, str) else kind
    if len(rest) == _LENGTH_WITH_DESTINATION:
        key, _, source, destination, stimulus = rest
        yield {
            "time": time,
            "key": wire_key(key),
            "source": source,
            "destination": destination,
            "outcome": outcome,
            "stimulus_id": stimulus,
        }
    elif len(rest) == _LENGTH_WITHOUT_DESTINATION:
        key, _, source, stimulus = rest
        yield {
            "time": time,
            "key": wire_key(key),
            "source": source,
            "outcome": outcome,
            "stimulus_id": stimulus,
        }

"""States of tasks, and the kinds of events and transfers."""

from __future__ import annotations

from enum import Enum


class TaskState(str, Enum):
    """A state that a task has on Dask's scheduler or on a worker.

    A member is equal to its text: ``TaskState.MEMORY == "memory"``.
    """

    RELEASED = "released"
    WAITING = "waiting"
    NO_WORKER = "no-worker"
    QUEUED = "queued"
    PROCESSING = "processing"
    MEMORY = "memory"
    ERRED = "erred"
    FORGOTTEN = "forgotten"
    # On workers only.
    FETCH = "fetch"
    FLIGHT = "flight"
    CONSTRAINED = "constrained"
    READY = "ready"
    EXECUTING = "executing"
    LONG_RUNNING = "long-running"
    CANCELLED = "cancelled"
    RESUMED = "resumed"
    MISSING = "missing"
    ERROR = "error"
    RESCHEDULED = "rescheduled"

    @classmethod
    def of(cls, text: str) -> TaskState | str:
        """Return the member with a text, or the text itself if Dask has no such state.

        >>> TaskState.of("memory"), TaskState.of("teleported")
        (<TaskState.MEMORY: 'memory'>, 'teleported')
        """
        return _STATES.get(text, text)


_STATES: dict[str, TaskState] = {member.value: member for member in TaskState}


class TransferTypeEnum(str, Enum):
    """The end that reported a transfer: the receiver (incoming) or the sender (outgoing)."""

    INCOMING = "incoming_transfer"
    OUTGOING = "outgoing_transfer"


class EventTypeEnum(str, Enum):
    """The kind of an event: a transition on the scheduler, one on a worker, or a transfer."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    WORKER_TRANSFER = "worker_transfer"


def plain(text: str) -> str:
    """Return the text of an enum's member, or a plain text unchanged.

    Python versions format members differently; the result of this function is always the same.

    >>> plain(TaskState.MEMORY), plain("teleported")
    ('memory', 'teleported')
    """
    return str.__str__(text)

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
        """Return the member of that text, or the text itself where Dask's states lack it.

        >>> TaskState.of("memory"), TaskState.of("teleported")
        (<TaskState.MEMORY: 'memory'>, 'teleported')
        """
        return _STATES.get(text, text)


_STATES: dict[str, TaskState] = {member.value: member for member in TaskState}


class TransferTypeEnum(str, Enum):
    """Which end told of a transfer: the one that received, or the one that sent."""

    INCOMING = "incoming_transfer"
    OUTGOING = "outgoing_transfer"


class EventTypeEnum(str, Enum):
    """Who told of an event, and of what."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    WORKER_TRANSFER = "worker_transfer"


def plain(text: str) -> str:
    """Return the text of a member of these enums, or a text as it is.

    How a member is formatted differs between versions of Python; this does not.
    """
    return str.__str__(text)

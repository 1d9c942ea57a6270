"""States of tasks, and the kinds of events, transfers and stimuli."""

from __future__ import annotations

import re
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


class StimulusType(str, Enum):
    """The kind of event in Dask that caused a transition: a stimulus id without its number.

    A member is equal to its text: ``StimulusType.TASK_FINISHED == "task-finished"``.
    """

    # Clients and graphs.
    UPDATE_GRAPH = "update-graph"
    UPDATE_DATA = "update-data"
    CLIENT_RELEASES_KEYS = "client-releases-keys"
    CANCEL_KEY = "cancel-key"
    REMOVE_CLIENT = "remove-client"
    CLIENT_RESTART = "client-restart"
    CLIENT_RESTART_WORKERS = "client-restart-workers"
    RETRY = "stimulus-retry"
    # Executions of tasks.
    COMPUTE_TASK = "compute-task"
    TASK_FINISHED = "task-finished"
    TASK_ERRED = "task-erred"
    EXECUTE_UNKNOWN_ERROR = "execute-unknown-error"
    RESCHEDULE = "reschedule"
    SECEDE = "secede"
    WORKER_CLIENT_SECEDE = "worker-client-secede"
    CANCELLED_BY_WORKER_CLOSE = "cancelled-by-worker-close"
    # Transfers, replicas and shuffles.
    GATHER = "gather"
    GATHER_DEP_SUCCESS = "gather-dep-success"
    GATHER_DEP_BUSY = "gather-dep-busy"
    GATHER_DEP_NETWORK_FAILURE = "gather-dep-network-failure"
    GATHER_DEP_FAILED = "gather-dep-failed"
    RETRY_BUSY_WORKER = "retry-busy-worker"
    FIND_MISSING = "find-missing"
    REDUNDANT_REPLICAS = "redundant-replicas"
    REPLICATE = "replicate"
    REBALANCE = "rebalance"
    DELETE_DATA = "delete-data"
    ACTIVE_MEMORY_MANAGER = "active_memory_manager"
    P2P_BARRIER_INCONSISTENT = "p2p-barrier-inconsistent"
    # Workers and the distribution of tasks.
    STEAL = "steal"
    WORKER_CONNECT = "worker-connect"
    WORKER_STATUS_CHANGE = "worker-status-change"
    WORKER_CLOSING = "worker-closing"
    WORKER_CLOSE_GRACEFULLY = "worker-close-gracefully"
    NANNY_CLOSE = "nanny-close"
    RETIRE_WORKERS = "retire-workers"
    HANDLE_WORKER_CLEANUP = "handle-worker-cleanup"
    WORKER_SEND_COMM_FAIL = "worker-send-comm-fail"
    SEND_ALL_COMM_FAIL = "send-all-comm-fail"
    CHECK_WORKER_TTL = "check-worker-ttl"
    CHECK_NO_WORKERS_TIMEOUT = "check-no-workers-timeout"
    # Displays of Dask, and transitions without an id.
    PROGRESS_SETUP = "progress-setup"
    MULTIPROGRESS_SETUP = "multiprogress-setup"
    UNSET = "<stimulus_id unset>"

    @classmethod
    def of(cls, stimulus_id: str) -> StimulusType | str:
        """Return the member for a stimulus id, or the id without its number if Dask has none.

        >>> StimulusType.of("task-finished-1713553304.37"), StimulusType.of("mine-7")
        (<StimulusType.TASK_FINISHED: 'task-finished'>, 'mine')
        """
        kind = _NUMBER.sub("", stimulus_id)
        return STIMULI.get(kind, kind)


#: The time or counter at the end of a stimulus id.
_NUMBER = re.compile(r"-\d+(?:\.\d*)?(?:e[+-]?\d+)?$")

#: The members by text.
STIMULI: dict[str, StimulusType] = {member.value: member for member in StimulusType}


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

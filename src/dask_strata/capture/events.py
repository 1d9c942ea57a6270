"""Events of tasks, one object per event. `str` returns the text of the older tool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from dask_strata.capture.states import (
    EventTypeEnum,
    StimulusType,
    TaskState,
    TransferTypeEnum,
    plain,
)


def stamp(time: datetime | None) -> str:
    """Return a time as text with microseconds and zone, or ``None`` if it is unknown.

    >>> from datetime import timezone
    >>> stamp(datetime(2026, 11, 18, tzinfo=timezone.utc)), stamp(None)
    ('2026-11-18 00:00:00.000000+00:00', 'None')
    """
    return "None" if time is None else time.isoformat(" ", "microseconds")


@dataclass(frozen=True, slots=True)
class EventSource:
    """The scheduler and the stimulus of a transition.

    Attributes
    ----------
    addr : str or None
        Address of the scheduler that recorded the transition.
    stim_id : str or None
        Dask's stimulus id, such as ``task-finished-1713553304.37``. All transitions with the same
        cause have the same id.
    """

    addr: str | None
    stim_id: str | None

    @property
    def stim_type(self) -> StimulusType | str | None:
        """The kind of stimulus; a plain text if `StimulusType` lacks it."""
        return None if self.stim_id is None else StimulusType.of(self.stim_id)

    def __str__(self) -> str:
        return f"Called from: {self.addr}\nStimulus ID: {self.stim_id}"


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """A transition of a task on the scheduler.

    Attributes
    ----------
    t_event : datetime or None
        Time of the transition, on the scheduler.
    t_begins, t_ends : datetime or None
        Start and end of the interval that the worker reported with the result; only for
        transitions from processing to memory. If the worker reported several, the first
        computation. `action` states its kind.
    start, finish : TaskState or str
        State before and after; a plain text if `TaskState` lacks the state.
    source : EventSource
        The scheduler and the stimulus.
    task_id : str
        Key of the task, as Dask shows it.
    action : str or None
        Kind of the interval: ``compute``, or another kind such as ``transfer`` if the worker
        reported no computation.
    worker : str or None
        Address of the worker of the transition, if known.
    nbytes : int or None
        Size of the result, in bytes.
    """

    t_event: datetime | None
    t_begins: datetime | None
    t_ends: datetime | None
    start: TaskState | str
    finish: TaskState | str
    source: EventSource
    task_id: str
    action: str | None = None
    worker: str | None = None
    nbytes: int | None = None

    @property
    def e_type(self) -> EventTypeEnum:
        """The kind of event."""
        return EventTypeEnum.SCHEDULER

    @property
    def key(self) -> str:
        """The task's key, as in other events: `task_id`."""
        return self.task_id

    @property
    def ip(self) -> str | None:
        """The scheduler's address."""
        return self.source.addr

    @property
    def stimulus_id(self) -> str | None:
        """Dask's stimulus id."""
        return self.source.stim_id

    @property
    def stimulus_type(self) -> StimulusType | str | None:
        """The kind of stimulus; a plain text if `StimulusType` lacks it."""
        return self.source.stim_type

    def __str__(self) -> str:
        kind = f" (of a {self.action})" if self.action not in (None, "compute") else ""
        return (
            f"Scheduler Event for task {self.task_id}\n"
            f"\tEvent time: {stamp(self.t_event)}\tBegin time: {stamp(self.t_begins)}"
            f"\tEnd time: {stamp(self.t_ends)}{kind}\n"
            f"\tStart: {plain(self.start)}\t\t\t\tFinish: {plain(self.finish)}\n"
            f"\tSource: \n\t\t{self.source.addr}\n"
        )


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """A transition of a task on a worker.

    Attributes
    ----------
    start, finish : TaskState or str
        State before and after; a plain text if `TaskState` lacks the state.
    ip : str or None
        The worker's address, or the name that the files contain for it.
    t_event : datetime or None
        Time of the transition, on the worker; `TaskHandler` describes the clock.
    key : str
        Key of the task, as Dask shows it.
    """

    start: TaskState | str
    finish: TaskState | str
    ip: str | None
    t_event: datetime | None
    key: str

    @property
    def e_type(self) -> EventTypeEnum:
        """The kind of event."""
        return EventTypeEnum.WORKER

    def __str__(self) -> str:
        return (
            f"Worker Event for task {self.key}\n"
            f"\tEvent time: {stamp(self.t_event)}\n"
            f"\tStart: {plain(self.start)}\t\t\t\tFinish: {plain(self.finish)}\n"
            f"\tSource: {self.ip}\n"
        )


@dataclass(frozen=True, slots=True)
class WXferEvent:
    """A transfer of results, as one of its ends reported it.

    Attributes
    ----------
    start, stop : datetime or None
        Start and end.
    middle : datetime or None
        Middle of the transfer. In runs imported from CSV it is the worker's figure, which for
        outgoing transfers is on the worker's own clock, unlike `start` and `stop`.
    duration : float or None
        Seconds.
    keys : dict of str to int
        Keys of the results in order, with the size of each in bytes.
    total : int or None
        Size of all results together, in bytes.
    bandwidth : float or None
        Bytes per second.
    compressed : int or None
        Compressed bytes, which were sent; known for the outgoing end only.
    requestor : str or None
        Address of the other end ("them"), in either direction; None for a client.
    fulfiller : str or None
        Address of the worker that reported the transfer ("me").
    transfer_type : TransferTypeEnum
        INCOMING if the reporting worker received, OUTGOING if it sent.
    t_event : datetime or None
        Time of the report; in recorded runs, the end of the transfer.
    """

    start: datetime | None
    stop: datetime | None
    middle: datetime | None
    duration: float | None
    keys: dict[str, int | None] = field(hash=False)
    total: int | None
    bandwidth: float | None
    compressed: int | None
    requestor: str | None
    fulfiller: str | None
    transfer_type: TransferTypeEnum
    t_event: datetime | None

    @property
    def e_type(self) -> EventTypeEnum:
        """The kind of event."""
        return EventTypeEnum.WORKER_TRANSFER

    def n_tasks(self) -> int:
        """Return the number of results in the transfer."""
        return len(self.keys)

    def is_only_1_task(self) -> bool:
        """Return whether the transfer has exactly one result."""
        return len(self.keys) == 1

    def return_key_names(self) -> list[str]:
        """Return the keys of the results in order."""
        return [*self.keys]

    def get_key_name(self, i: int = 0) -> str:
        """Return the i-th key.

        Raises
        ------
        IndexError
            The transfer has fewer results.
        """
        return self.return_key_names()[i]

    def identical_except_fulfiller(self, other: WXferEvent) -> bool:
        """Return whether another transfer differs from this one in `fulfiller` only."""
        return self != other == replace(self, fulfiller=other.fulfiller)

    def identical_except_requestor(self, other: WXferEvent) -> bool:
        """Return whether another transfer differs from this one in `requestor` only."""
        return self != other == replace(self, requestor=other.requestor)

    def __str__(self) -> str:
        keys = "".join(f"\n\t\t{key}" for key in self.keys)
        return (
            f"Worker Transfer Event (Type: TransferTypeEnum.{self.transfer_type.name})\n"
            f"\tEvent time: {stamp(self.t_event)}\n"
            f"\tRequestor (Them): {self.requestor}\tFulfiller (Me): {self.fulfiller}\n"
            f"\tStart: {stamp(self.start)}\tMiddle: {stamp(self.middle)}"
            f"\tEnd: {stamp(self.stop)}\t(Duration: {self.duration})\n"
            f"\tTotal Transfer: {self.total}\n"
            f"\tAffiliated Keys:{keys}\n"
        )


Event = SchedulerEvent | WorkerEvent | WXferEvent

_TIMES = ("t_event", "t_begins", "t_ends", "start", "stop", "middle")


def with_zone(event: Event, zone: tzinfo) -> Event:
    """Return an event whose times have a zone; those without one are taken to be in `zone`."""
    naive: dict[str, datetime] = {
        name: time.replace(tzinfo=zone)
        for name in _TIMES
        if isinstance(time := getattr(event, name, None), datetime) and time.utcoffset() is None
    }
    return replace(event, **naive) if naive else event  # type: ignore[arg-type]

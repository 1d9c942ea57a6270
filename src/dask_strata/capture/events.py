"""What happened to a task, one object an event. Printing one gives the older text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dask_strata.capture.states import EventTypeEnum, TaskState, TransferTypeEnum, plain


def stamp(time: datetime | None) -> str:
    """Return a time as text, always with microseconds and zone; ``None`` where unknown."""
    return "None" if time is None else time.isoformat(" ", "microseconds")


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where an event of the scheduler came from.

    Attributes
    ----------
    addr : str or None
        Address of the scheduler that told of it.
    stim_id : str or None
        Dask's name of what caused it, such as ``task-finished-1713553304.37``: all changes
        of state that follow from one cause have the same.
    """

    addr: str | None
    stim_id: str | None

    def __str__(self) -> str:
        return f"Called from: {self.addr}\nStimulus ID: {self.stim_id}"


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """A change of a task's state on the scheduler.

    Attributes
    ----------
    t_event : datetime or None
        When the scheduler saw it.
    t_begins, t_ends : datetime or None
        First interval that the worker reported with the result; only on the way from
        processing to memory. It is work of the task only where `action` says compute.
    start, finish : TaskState or str
        State before and after; text where Dask's states lack it.
    source : EventSource
        The scheduler, and what caused the event.
    task_id : str
        Key of the task, as Dask shows it.
    action : str or None
        What `t_begins` and `t_ends` are of: ``compute``, or ``transfer`` where a dependency
        was fetched first and that is what was reported.
    worker : str or None
        Address of the worker concerned, where known.
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
        """The task's key: `task_id`, by the name it has in other events."""
        return self.task_id

    @property
    def ip(self) -> str | None:
        """The scheduler's address."""
        return self.source.addr

    @property
    def stimulus_id(self) -> str | None:
        """Dask's name of what caused it."""
        return self.source.stim_id

    def __str__(self) -> str:
        of = f" (of a {self.action})" if self.action not in (None, "compute") else ""
        return (
            f"Scheduler Event for task {self.task_id}\n"
            f"\tEvent time: {stamp(self.t_event)}\tBegin time: {stamp(self.t_begins)}"
            f"\tEnd time: {stamp(self.t_ends)}{of}\n"
            f"\tStart: {plain(self.start)}\t\t\t\tFinish: {plain(self.finish)}\n"
            f"\tSource: \n\t\t{self.source.addr}\n"
        )


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """A change of a task's state on a worker.

    Attributes
    ----------
    start, finish : TaskState or str
        State before and after; text where Dask's states lack it.
    ip : str or None
        The worker's address, or whatever its name is.
    t_event : datetime or None
        When the worker saw it: see `TaskHandler` on clocks.
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
    """A transfer of results, as one end of it told of it.

    Attributes
    ----------
    start, stop : datetime or None
        When it began and ended.
    middle : datetime or None
        Its middle; in runs imported from CSV, as the worker told it: for outgoing
        transfers on the worker's own clock, unlike `start` and `stop`.
    duration : float or None
        In seconds.
    keys : dict of str to int
        Keys of the results in it, in order, with the size of each in bytes.
    total : int or None
        Size of all results in it, in bytes: not a figure of one key.
    bandwidth : float or None
        In bytes per second.
    compressed : int or None
        Bytes on the wire; outgoing end only.
    requestor : str or None
        Address of the other end ("them"), whichever way the transfer went; None for a client.
    fulfiller : str or None
        Address of the worker that told of it ("me").
    transfer_type : TransferTypeEnum
        INCOMING if the worker that told of it received, OUTGOING if it sent.
    t_event : datetime or None
        When the worker told of it; in recorded runs, when the transfer ended.
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

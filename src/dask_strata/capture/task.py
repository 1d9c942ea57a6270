"""One task with its events, which are created on first access."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from dask_strata.capture.events import Event, SchedulerEvent, WorkerEvent, WXferEvent, stamp
from dask_strata.capture.states import TaskState, TransferTypeEnum

if TYPE_CHECKING:
    from dask_strata.capture.handler import TaskHandler

_LAST = datetime.max.replace(tzinfo=timezone.utc)


def when(event: Event) -> datetime:
    """Return the sort key of an event: its time. Events without a time sort last."""
    return _LAST if event.t_event is None else event.t_event


class Page:
    """The names and events of neighbouring tasks, created together on first access."""

    def __init__(self, handler: TaskHandler, first: int, bounds: list[int]) -> None:
        self._handler = handler
        self._first = first
        self._bounds = bounds

    @cached_property
    def names(self) -> list[str]:
        """Names of the tasks."""
        names = self._handler.index.names.slice(self._first, len(self._bounds) - 1)
        return names.to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def _events(self) -> list[Event]:
        rows = self._handler.index.by_task.slice(self._bounds[0], self._bounds[-1])
        return self._handler.event_factory.events(rows)

    def events(self, i: int) -> list[Event]:
        """Return the events of the i-th task of the page."""
        start, stop = (self._bounds[i + n] - self._bounds[0] for n in (0, 1))
        return self._events[start:stop]


class Task:
    """A task and its events. `str` returns the text block of the older tool.

    `TaskHandler` creates the tasks. A task is identified by its key's text and type; its name is
    the text.
    """

    def __init__(self, handler: TaskHandler, number: int, page: Page | None, i: int) -> None:
        self._handler = handler
        self._number = number
        self._page = page
        self._i = i

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    @cached_property
    def name(self) -> str:
        """The task's key, as Dask shows it."""
        if self._page is None:
            return self._handler.added_names[self._number - len(self._handler.index.names)]
        return self._page.names[self._i]

    @cached_property
    def events(self) -> list[Event]:
        """Events in time order; a transfer of several results is an event of each task."""
        recorded = [] if self._page is None else self._page.events(self._i)
        added = self._handler.added.get(self._number)
        return sorted([*recorded, *added], key=when) if added else recorded

    @property
    def t_start(self) -> datetime | None:
        """Time of the first event; None if no event has a time."""
        return min((e.t_event for e in self.events if e.t_event), default=None)

    @property
    def t_end(self) -> datetime | None:
        """Time of the last event; None if no event has a time."""
        return max((e.t_event for e in self.events if e.t_event), default=None)

    @property
    def workers(self) -> list[str]:
        """Workers that executed the task, or held, sent or received its result, by first event."""
        workers: dict[str | None, None] = {}
        for event in self.events:
            if isinstance(event, WorkerEvent):
                workers[event.ip] = None
            elif isinstance(event, WXferEvent):
                workers[event.fulfiller] = workers[event.requestor] = None
            else:
                workers[event.worker] = None
        return [worker for worker in workers if worker is not None]

    @property
    def initiated(self) -> bool:
        """Whether the task has transitions; False if all its events are transfers."""
        return any(not isinstance(event, WXferEvent) for event in self.events)

    @property
    def n_attempts(self) -> int:
        """Number of times that the task was in processing on a worker, by the scheduler's events.

        Without events of the scheduler: the number of times that workers began to execute it.
        """
        on_scheduler = [e for e in self.events if isinstance(e, SchedulerEvent)]
        if not on_scheduler:
            on_workers = [e for e in self.events if isinstance(e, WorkerEvent)]
            return sum(
                e.finish == TaskState.EXECUTING and e.start != TaskState.LONG_RUNNING
                for e in on_workers
            )
        already_processing = on_scheduler[0].start == TaskState.PROCESSING
        return already_processing + sum(e.finish == TaskState.PROCESSING for e in on_scheduler)

    @property
    def bytes_in(self) -> int:
        """Bytes of the task's result that workers received, without other results in a transfer."""
        return self._bytes(TransferTypeEnum.INCOMING)

    @property
    def bytes_out(self) -> int:
        """Bytes of the task's result that workers sent; mostly the same bytes as `bytes_in`."""
        return self._bytes(TransferTypeEnum.OUTGOING)

    def _bytes(self, end: TransferTypeEnum) -> int:
        return sum(e.keys.get(self.name) or 0 for e in self.return_wxfer_events(end))

    def return_wxfer_events(self, filter_type: TransferTypeEnum | None = None) -> list[WXferEvent]:
        """Return the transfers of the task's result.

        Parameters
        ----------
        filter_type : TransferTypeEnum, optional
            Return only the transfers that this end reported.
        """
        return [
            e
            for e in self.events
            if isinstance(e, WXferEvent) and filter_type in (None, e.transfer_type)
        ]

    def __str__(self) -> str:
        events = "".join(map(str, self.events)).rstrip("\n").replace("\n", "\n\t\t")
        name = self.name.replace("\n", "\n\t")  # a line end in a key must not begin a block
        return (
            f"Task object for task {name}:\n"
            f"\tEvent objects:\n\t\t{events}\n"
            f"\tStart time: {stamp(self.t_start)}\tEnd time: {stamp(self.t_end)}\n"
            f"\tWorkers: {', '.join(self.workers)}\n"
            f"\tAttempts: {self.n_attempts}\t"
            f"Bytes in: {self.bytes_in}\tBytes out: {self.bytes_out}\n"
        )

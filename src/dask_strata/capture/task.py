"""One task: what happened to it, made when it is looked at."""

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
    """Return what events are sorted by; unknown times are last."""
    return _LAST if event.t_event is None else event.t_event


class Page:
    """The names and events of neighbouring tasks, made together when first looked at."""

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
        return self._handler.maker.events(rows)

    def events(self, i: int) -> list[Event]:
        """Return the events of one of them, by its place among them."""
        start, stop = (self._bounds[i + n] - self._bounds[0] for n in (0, 1))
        return self._events[start:stop]


class Task:
    """All that happened to one task. Printing it gives the older text.

    Tasks come from a `TaskHandler`. A task is identified by its key's text and type; its
    name is the text.
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
        """Its events in time order; a transfer of several results is in each of their tasks."""
        recorded = [] if self._page is None else self._page.events(self._i)
        added = self._handler.added.get(self._number)
        return sorted([*recorded, *added], key=when) if added else recorded

    @property
    def t_start(self) -> datetime | None:
        """When its first event was; None if no event tells."""
        return min((e.t_event for e in self.events if e.t_event), default=None)

    @property
    def t_end(self) -> datetime | None:
        """When its last event was; None if no event tells."""
        return max((e.t_event for e in self.events if e.t_event), default=None)

    @property
    def workers(self) -> list[str]:
        """Workers that had to do with it, by first event: ran it, held, sent or received it."""
        found: dict[str | None, None] = {}
        for event in self.events:
            if isinstance(event, WorkerEvent):
                found[event.ip] = None
            elif isinstance(event, WXferEvent):
                found[event.fulfiller] = found[event.requestor] = None
            else:
                found[event.worker] = None
        return [worker for worker in found if worker is not None]

    @property
    def initiated(self) -> bool:
        """Whether the scheduler or a worker told of it; False if it is known by transfers only."""
        return any(not isinstance(event, WXferEvent) for event in self.events)

    @property
    def n_attempts(self) -> int:
        """How often it was in processing on a worker, as the scheduler saw it.

        How often workers began to execute it, if the scheduler told nothing of it.
        """
        changes = [e for e in self.events if isinstance(e, SchedulerEvent)]
        if not changes:
            begun = [e for e in self.events if isinstance(e, WorkerEvent)]
            return sum(
                e.finish == TaskState.EXECUTING and e.start != TaskState.LONG_RUNNING for e in begun
            )
        joined_late = changes[0].start == TaskState.PROCESSING
        return joined_late + sum(e.finish == TaskState.PROCESSING for e in changes)

    @property
    def bytes_in(self) -> int:
        """Bytes of its result that workers received, without those of others in a transfer."""
        return self._bytes(TransferTypeEnum.INCOMING)

    @property
    def bytes_out(self) -> int:
        """Bytes of its result that workers sent; largely the same bytes as `bytes_in`."""
        return self._bytes(TransferTypeEnum.OUTGOING)

    def _bytes(self, end: TransferTypeEnum) -> int:
        return sum(e.keys.get(self.name) or 0 for e in self.return_wxfer_events(end))

    def return_wxfer_events(self, filter_type: TransferTypeEnum | None = None) -> list[WXferEvent]:
        """Return the transfers that its result was in, or those that one end told of."""
        return [
            e
            for e in self.events
            if isinstance(e, WXferEvent) and filter_type in (None, e.transfer_type)
        ]

    def __str__(self) -> str:
        events = "".join(map(str, self.events)).rstrip("\n").replace("\n", "\n\t\t")
        name = self.name.replace("\n", "\n\t")  # no key begins a block of its own
        return (
            f"Task object for task {name}:\n"
            f"\tEvent objects:\n\t\t{events}\n"
            f"\tStart time: {stamp(self.t_start)}\tEnd time: {stamp(self.t_end)}\n"
            f"\tWorkers: {', '.join(self.workers)}\n"
            f"\tAttempts: {self.n_attempts}\t"
            f"Bytes in: {self.bytes_in}\tBytes out: {self.bytes_out}\n"
        )

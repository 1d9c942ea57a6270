"""All tasks of a run, as views that are filled on first access."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import timezone, tzinfo
from functools import cached_property
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.capture import frames
from dask_strata.capture.event_factory import EventFactory
from dask_strata.capture.events import (
    Event,
    SchedulerEvent,
    WorkerEvent,
    WXferEvent,
    with_zone,
)
from dask_strata.capture.index import EMPTY, TRANSFER, Index, Rows, build
from dask_strata.capture.states import EventTypeEnum, TaskState, TransferTypeEnum
from dask_strata.capture.task import Page, Task, when
from dask_strata.errors import UnknownTaskError
from dask_strata.run import Run
from dask_strata.schema import split_wire_key, wire_key

#: Events that are created together when one of their tasks is accessed.
_PAGE = 4096


def _of_kind(kind: int, rows: pa.Array) -> Rows:
    return Rows(pa.repeat(pa.scalar(kind, pa.int8()), len(rows)), rows)


class Tasks:
    """The tasks of a handler, in order of first appearance.

    Iteration yields tasks; ``tasks[0]`` and ``tasks["name"]`` return one. ``keys()``, ``values()``,
    ``items()`` and ``"name" in tasks`` work as in the dictionary of the older tool.
    """

    def __init__(self, handler: TaskHandler) -> None:
        self._handler = handler

    def __repr__(self) -> str:
        return f"<Tasks of {self._handler!r}>"

    def __len__(self) -> int:
        return len(self._handler.index.names) + len(self._handler.added_names)

    def __iter__(self) -> Iterator[Task]:
        handler = self._handler
        for first, bounds in handler.index.pages(_PAGE):
            page = Page(handler, first, bounds)
            for i in range(len(bounds) - 1):
                yield Task(handler, first + i, page, i)
        for number in range(len(handler.index.names), len(self)):
            yield Task(handler, number, None, 0)

    @overload
    def __getitem__(self, which: int | str) -> Task: ...
    @overload
    def __getitem__(self, which: slice) -> list[Task]: ...
    def __getitem__(self, which: int | str | slice) -> Task | list[Task]:
        if isinstance(which, str):
            return self._handler.get_task_by_name(which)
        numbers = range(len(self))[which]
        if isinstance(numbers, range):
            return [self._at(number) for number in numbers]
        return self._at(numbers)

    def _at(self, number: int) -> Task:
        index = self._handler.index
        if number >= len(index.names):
            return Task(self._handler, number, None, 0)
        return Task(self._handler, number, Page(self._handler, number, [*index.span(number)]), 0)

    def __contains__(self, name: object) -> bool:
        return bool(self._handler.numbers_of(name)) if isinstance(name, str) else False

    def keys(self) -> list[str]:
        """Return the names of all tasks."""
        return self._handler.return_names()

    def values(self) -> Iterator[Task]:
        """Return an iterator of the tasks."""
        return iter(self)

    def items(self) -> Iterator[tuple[str, Task]]:
        """Return an iterator of names and tasks."""
        return ((task.name, task) for task in self)


class TaskHandler:
    """All tasks and events of a run, and those that are added.

    The run is read on first access, and not again: to see new events of a run that is still being
    recorded, create another handler.

    Parameters
    ----------
    run : Run, optional
        The run, from `open_run`. With ``open_run(..., align=False)``, each time is on the clock of
        the process that recorded it. Otherwise it is on the scheduler's clock, if the offset
        between the two is known. Without a run, the handler has the events that `add_event` adds.
    tz : tzinfo, optional
        Zone of the run's times, and of added times that have none.

    Attributes
    ----------
    run : Run or None
        The run.
    tz : tzinfo
        The zone of times.

    Raises
    ------
    StrataError
        The run cannot be read; raised on first access.
    """

    def __init__(self, run: Run | None = None, *, tz: tzinfo = timezone.utc) -> None:
        self.run = run
        self.tz = tz
        self.added: dict[int, list[Event]] = {}
        self.added_names: list[str] = []
        self._added_numbers: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<TaskHandler of {self._source}>"

    @property
    def _source(self) -> str:
        return "added events" if self.run is None else repr(self.run)

    @cached_property
    def index(self) -> Index:
        """References to the events, sorted by task and by time."""
        return EMPTY if self.run is None else build(self.run)

    @cached_property
    def event_factory(self) -> EventFactory:
        """Creates events from their references in `index`."""
        return EventFactory(self.index, self.tz)

    @cached_property
    def _sorted(self) -> pa.Array:
        return pc.sort_indices(self.index.names)

    @property
    def n_events(self) -> int:
        """Number of events; a transfer of several results counts once."""
        return len(self.index.by_time.row) + len(self._all_added)

    @property
    def tasks(self) -> Tasks:
        """The tasks, in order of first appearance."""
        return Tasks(self)

    def return_names(self) -> list[str]:
        """Return the names of all tasks, in order of first appearance."""
        return [*self.index.names.to_pylist(), *self.added_names]

    def numbers_of(self, name: str) -> list[int]:
        """Return the numbers of the tasks with a name: several if their keys differ in type."""
        names, order = self.index.names, self._sorted
        found = []
        at = bisect_left(range(len(order)), name, key=lambda i: names[order[i].as_py()].as_py())
        while at < len(order) and names[(number := order[at].as_py())].as_py() == name:
            found.append(number)
            at += 1
        if name in self._added_numbers:
            found.append(self._added_numbers[name])
        return found

    def get_task_by_name(self, name: Any, key_type: str | None = None) -> Task:
        """Return the task with a name.

        Parameters
        ----------
        name : str or any key of Dask
            The task's key, or the text that Dask shows for it.
        key_type : str, optional
            Name of the key's type, if two keys have the same text.

        Raises
        ------
        UnknownTaskError
            No task, or more than one, has this name.
        """
        if not isinstance(name, str):
            name, key_type = split_wire_key(wire_key(name))
        found = self.numbers_of(name)
        types = [self.index.types[n].as_py() for n in found if n < len(self.index.types)]
        if key_type is not None:
            found = [n for n, type_ in zip(found, types, strict=False) if type_ == key_type]
        if len(found) == 1:
            return self.tasks[found[0]]
        if found:
            raise UnknownTaskError(
                f"More than one task has the key {name}: of type {' and '.join(types)}.",
                hint=f"Choose one: key_type={types[0]!r}.",
            )
        raise UnknownTaskError(
            f"The run has no task {name}.", hint="return_names() lists the tasks."
        )

    def add_event(self, event: Event) -> None:
        """Add an event to its task; a transfer to the tasks of all its keys.

        The event is kept in the memory of this handler: the run does not change. `Task` objects
        that were created before do not contain it.

        Parameters
        ----------
        event : SchedulerEvent, WorkerEvent or WXferEvent
            The event. A task that does not exist is created. Times without a zone are taken to
            be in the handler's zone: the event is then added as a copy with this zone.

        Raises
        ------
        TypeError
            The object is no event.
        UnknownTaskError
            Two tasks have the text of the event's key.
        """
        if not isinstance(event, (SchedulerEvent, WorkerEvent, WXferEvent)):
            raise TypeError(f"add_event needs an event, not {type(event).__name__}.")
        event = with_zone(event, self.tz)
        names = [*event.keys] if isinstance(event, WXferEvent) else [event.key]
        for name in names:
            found = self.numbers_of(name)
            if len(found) > 1:
                self.get_task_by_name(name)
            if not found:
                found = [len(self.index.names) + len(self.added_names)]
                self._added_numbers[name] = found[0]
                self.added_names.append(name)
            self.added.setdefault(found[0], []).append(event)

    @property
    def _all_added(self) -> list[Event]:
        """The added events in time order, each once."""
        each = {id(event): event for events in self.added.values() for event in events}
        return sorted(each.values(), key=when)

    def return_all_events(self) -> Iterator[Event]:
        """Return an iterator of all events in time order, each once."""
        return self._merged(self.index.by_time, self._all_added)

    def return_all_wxfer_events(
        self, filter_type: TransferTypeEnum | None = None
    ) -> Iterator[WXferEvent]:
        """Return an iterator of all transfers in time order, each once.

        A transfer that both ends reported is two events: one INCOMING, one OUTGOING. The table
        `Run.transfers` contains it once.

        Parameters
        ----------
        filter_type : TransferTypeEnum, optional
            Return only the transfers that this end reported.
        """
        rows = _of_kind(TRANSFER, self.index.by_time.of(TRANSFER))
        added = [e for e in self._all_added if isinstance(e, WXferEvent)]
        for event in self._merged(rows, added):
            if isinstance(event, WXferEvent) and filter_type in (None, event.transfer_type):
                yield event

    def events_of(self, kind: EventTypeEnum) -> Iterator[Event]:
        """Return an iterator of the events of a kind, by task and then time, each once.

        A transfer is placed with the first of its tasks. Transfers without a task, and then added
        events, are last.
        """
        number = list(EventTypeEnum).index(kind)
        of_tasks = pc.unique(self.index.by_task.of(number))
        every = self.index.by_time.of(number)
        of_no_task = every.filter(pc.invert(pc.is_in(every, of_tasks)))
        yield from self._recorded(_of_kind(number, pa.concat_arrays([of_tasks, of_no_task])))
        yield from (event for event in self._all_added if event.e_type is kind)

    def _merged(self, rows: Rows, added: Sequence[Event]) -> Iterator[Event]:
        recorded = self._recorded(rows)
        return heapq.merge(recorded, added, key=when) if added else recorded

    def _recorded(self, rows: Rows) -> Iterator[Event]:
        for start in range(0, len(rows.row), _PAGE):
            yield from self.event_factory.events(
                rows.slice(start, min(start + _PAGE, len(rows.row)))
            )

    def sort_tasks_by_time(self) -> None:
        """Do nothing, for scripts of the older tool: tasks and events are always in time order."""

    def unknown_states(self) -> dict[str, int]:
        """Return the states that `TaskState` lacks, with the number of events of each."""
        known = pa.array([state.value for state in TaskState])
        found: dict[str, int] = {}
        for table in self.index.columns[:TRANSFER]:
            for name in ("start_state", "finish_state"):
                states = table[name].cast(pa.string())
                odd = states.filter(pc.invert(pc.is_in(states, known)))
                for count in pc.value_counts(odd.drop_null()).to_pylist():
                    found[count["values"]] = found.get(count["values"], 0) + count["counts"]
        for event in self._all_added:
            states = () if isinstance(event, WXferEvent) else (event.start, event.finish)
            for state in states:
                if not isinstance(TaskState.of(state), TaskState):
                    found[state] = found.get(state, 0) + 1
        return found

    def to_df(self) -> dict[EventTypeEnum, Any]:
        """Return a `pandas.DataFrame` for each kind of event, with one row per event.

        The columns of the older tool are followed by further ones, such as ``t_event`` and
        ``action``. For transfers, ``key`` is the first key, ``keys`` is JSON with all keys and the
        bytes of each, and ``total`` is the sum of these bytes.

        Returns
        -------
        dict of EventTypeEnum to pandas.DataFrame
            The frames.

        Raises
        ------
        StrataError
            pandas is not installed.
        """
        return {
            kind: frames.to_pandas(frames.table(self.events_of(kind), columns, self.tz))
            for kind, columns in frames.FRAMES.items()
        }

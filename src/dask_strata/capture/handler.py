"""All tasks of a run, as views that are filled when looked at."""

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
from dask_strata.capture.events import Event, WXferEvent
from dask_strata.capture.index import TRANSFER, Index, Rows, build
from dask_strata.capture.making import Maker
from dask_strata.capture.states import EventTypeEnum, TaskState, TransferTypeEnum
from dask_strata.capture.task import Page, Task, when
from dask_strata.errors import UnknownTaskError
from dask_strata.run import Run
from dask_strata.schema import split_wire_key, wire_key

#: Events that are made together when one of their tasks is looked at.
_PAGE = 4096


def _of_kind(kind: int, rows: pa.Array) -> Rows:
    return Rows(pa.repeat(pa.scalar(kind, pa.int8()), len(rows)), rows)


class Tasks:
    """The tasks of a handler, in order of first appearance.

    Iterating gives tasks; ``tasks[0]`` and ``tasks["name"]`` give one. As the older tool had
    a dictionary here, ``keys()``, ``values()``, ``items()`` and ``"name" in tasks`` work too.
    """

    def __init__(self, handler: TaskHandler) -> None:
        self._handler = handler

    def __repr__(self) -> str:
        return f"<Tasks of {self._handler.run!r}>"

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
        """Return the names."""
        return self._handler.return_names()

    def values(self) -> Iterator[Task]:
        """Return the tasks."""
        return iter(self)

    def items(self) -> Iterator[tuple[str, Task]]:
        """Return names and tasks."""
        return ((task.name, task) for task in self)


class TaskHandler:
    """All tasks and events of a run.

    Nothing is read before it is looked at. What was read stays as it was: to see what a run
    that is still being recorded has by now, make another.

    Parameters
    ----------
    run : Run
        The run, as `open_run` gives it. Events have the times of the clocks that it gives:
        those of the processes that saw them with ``align=False``, else the scheduler's as
        far as it is known.
    tz : tzinfo, optional
        Zone of all times.

    Raises
    ------
    StrataError
        The run cannot be read; raised when it is first looked at.
    """

    def __init__(self, run: Run, *, tz: tzinfo = timezone.utc) -> None:
        self.run = run
        self.tz = tz
        self.added: dict[int, list[Event]] = {}
        self.added_names: list[str] = []

    def __repr__(self) -> str:
        return f"<TaskHandler of {self.run!r}>"

    @cached_property
    def index(self) -> Index:
        """Which events each task has: see `capture.index`."""
        return build(self.run)

    @cached_property
    def maker(self) -> Maker:
        """What makes events: see `capture.making`."""
        return Maker(self.index, self.tz)

    @cached_property
    def _sorted(self) -> pa.Array:
        return pc.sort_indices(self.index.names)

    @property
    def n_events(self) -> int:
        """How many events there are, each counted once."""
        return len(self.index.by_time.row) + len(self._all_added)

    @property
    def tasks(self) -> Tasks:
        """The tasks, in order of first appearance."""
        return Tasks(self)

    def return_names(self) -> list[str]:
        """Return the names of all tasks, in order of first appearance."""
        return [*self.index.names.to_pylist(), *self.added_names]

    def numbers_of(self, name: str) -> list[int]:
        """Return the places of the tasks of that name: more than one if of different types."""
        names, order = self.index.names, self._sorted
        found = []
        place = bisect_left(range(len(order)), name, key=lambda i: names[order[i].as_py()].as_py())
        while place < len(order) and names[(number := order[place].as_py())].as_py() == name:
            found.append(number)
            place += 1
        if name in self.added_names:
            found.append(len(names) + self.added_names.index(name))
        return found

    def get_task_by_name(self, name: Any, key_type: str | None = None) -> Task:
        """Return the task of that name.

        Parameters
        ----------
        name : str or any key of Dask
            Its key, or the text that Dask shows for it.
        key_type : str, optional
            Name of the key's type, for a text that two keys have.

        Raises
        ------
        UnknownTaskError
            There is none, or more than one.
        """
        if not isinstance(name, str):
            name, key_type = split_wire_key(wire_key(name))
        found = self.numbers_of(name)
        types = [self.index.types[n].as_py() for n in found if n < len(self.index.types)]
        if key_type is not None:
            found = [n for n, kind in zip(found, types, strict=False) if kind == key_type]
        if len(found) == 1:
            return self.tasks[found[0]]
        if found:
            raise UnknownTaskError(
                f"More than one task has the key {name}: of type {' and '.join(types)}.",
                hint=f"Say which: key_type={types[0]!r}.",
            )
        raise UnknownTaskError(
            f"No task {name} is on record.", hint="See return_names() for those that are."
        )

    def add_event(self, event: Event) -> None:
        """Add an event to this handler's tasks; a transfer to those of all its keys.

        It is kept in memory, with this handler alone: the run does not change. Tasks that
        were got before do not have it.

        Raises
        ------
        UnknownTaskError
            Two tasks have the key's text, so that it is not known whose event it is.
        """
        names = [*event.keys] if isinstance(event, WXferEvent) else [event.key]
        for name in names:
            found = self.numbers_of(name)
            if len(found) > 1:
                self.get_task_by_name(name)
            if not found:
                found = [len(self.index.names) + len(self.added_names)]
                self.added_names.append(name)
            self.added.setdefault(found[0], []).append(event)

    @property
    def _all_added(self) -> list[Event]:
        """What was added, each once though it may be in several tasks."""
        each = {id(event): event for events in self.added.values() for event in events}
        return sorted(each.values(), key=when)

    def return_all_events(self) -> Iterator[Event]:
        """Return all events in time order, each once, made as they are asked for."""
        return self._merged(self.index.by_time, self._all_added)

    def return_all_wxfer_events(
        self, filter_type: TransferTypeEnum | None = None
    ) -> Iterator[WXferEvent]:
        """Return all transfers in time order, each once, or those that one end told of.

        A transfer that both of its ends told of is two of these: one INCOMING, one OUTGOING.
        `Run.transfers` has it as one.
        """
        rows = _of_kind(TRANSFER, self.index.by_time.of(TRANSFER))
        added = [e for e in self._all_added if isinstance(e, WXferEvent)]
        for event in self._merged(rows, added):
            if isinstance(event, WXferEvent) and filter_type in (None, event.transfer_type):
                yield event

    def events_of(self, kind: EventTypeEnum) -> Iterator[Event]:
        """Return the events of a kind, by task and then time, each once.

        A transfer is with the first of its tasks; what is of no task, and what was added,
        comes last.
        """
        number = list(EventTypeEnum).index(kind)
        of_tasks = pc.unique(self.index.by_task.of(number))
        every = self.index.by_time.of(number)
        of_none = every.filter(pc.invert(pc.is_in(every, of_tasks)))
        yield from self._made(_of_kind(number, pa.concat_arrays([of_tasks, of_none])))
        yield from (event for event in self._all_added if event.e_type is kind)

    def _merged(self, rows: Rows, added: Sequence[Event]) -> Iterator[Event]:
        recorded = self._made(rows)
        return heapq.merge(recorded, added, key=when) if added else recorded

    def _made(self, rows: Rows) -> Iterator[Event]:
        for start in range(0, len(rows.row), _PAGE):
            yield from self.maker.events(rows.slice(start, min(start + _PAGE, len(rows.row))))

    def sort_tasks_by_time(self) -> None:
        """Do nothing: tasks and their events are in time order already."""

    def unknown_states(self) -> dict[str, int]:
        """Return states that Dask is not known to have, with the number of rows of each."""
        known = pa.array([state.value for state in TaskState])
        found: dict[str, int] = {}
        for table in self.index.columns[:TRANSFER]:
            for name in ("start_state", "finish_state"):
                states = table[name].cast(pa.string())
                odd = states.filter(pc.invert(pc.is_in(states, known)))
                for count in pc.value_counts(odd.drop_null()).to_pylist():
                    found[count["values"]] = found.get(count["values"], 0) + count["counts"]
        return found

    def to_df(self) -> dict[EventTypeEnum, Any]:
        """Return the events as a `pandas.DataFrame` of each kind: one row an event.

        Columns are the older ones, then those it left out: ``t_event``, and what an interval
        of the scheduler is of. Transfers have the first of their keys in ``key`` and all,
        with the bytes of each, as JSON in ``keys``: ``total`` is of all of them.

        Raises
        ------
        StrataError
            pandas is not installed.
        """
        return {
            kind: frames.to_pandas(frames.table(self.events_of(kind), columns, self.tz))
            for kind, columns in frames.FRAMES.items()
        }

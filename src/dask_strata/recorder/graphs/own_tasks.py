"""The tasks of one client among those of a shared cluster.

A task is the client's own if the client submitted it, or if another task of its own depends on it,
from that moment until the scheduler forgets the task.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch

#: Begin of the ids of clients that Dask creates within workers, for tasks that submit tasks.
_WITHIN_WORKER = "Client-worker-"

#: Tasks after which the recorder's thread lets other threads run.
_STEP = 1000


def add_with_dependencies(
    keys: set[Any], tasks: Iterable[tuple[Any, Any]], known: Mapping[Any, Any]
) -> list[Any]:
    """Add the keys of tasks, and of all tasks that they depend on; return those that are new.

    Parameters
    ----------
    keys : set
        The keys, which are changed.
    tasks : iterable
        States of tasks with their definitions.
    known : mapping
        The scheduler's tasks, for dependencies.
    """
    new, pending = [], []
    for ts, spec in tasks:
        pending.append(spec)
        if ts.key not in keys:
            keys.add(ts.key)
            new.append(ts.key)
    n = 0
    while pending:
        n += 1
        if n % _STEP == 0:
            time.sleep(0)
        # A definition never changes; Dask empties a task's own sets when it forgets the task.
        for key in getattr(pending.pop(), "dependencies", None) or ():
            if key not in keys:
                keys.add(key)
                new.append(key)
                if (ts := known.get(key)) is not None:
                    pending.append(ts.run_spec)
    return new


class OwnTasks:
    """Select the rows that are about tasks of one client, and count the others.

    The event loop only collects references, each with the number of Dask's transitions until
    then. The recorder's thread applies them in this order, between the transitions that it reads.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler; create this object when its transitions begin to be followed.
    client : str
        Id of the client.
    """

    def __init__(self, scheduler: Any, client: str) -> None:
        self._scheduler, self.client = scheduler, client
        self._first = scheduler.transition_counter
        self._read = 0
        #: Number of transitions before, the time, the client, and its tasks with their definitions
        #: or the keys of another client's.
        self._new: deque[tuple[int, int | None, str | None, Iterable[Any]]] = deque()
        self._keys: set[Any] = set()
        #: Client and time of the submission of tasks of others; None for those from before.
        self._others: dict[Any, tuple[str | None, int | None]] = {}
        self._joined: list[dict[str, Any]] = []
        self._data: deque[Any] = deque()
        self._left_out: Counter[str] = Counter()
        state = scheduler.clients.get(client)
        wanted = [] if state is None else list(state.wants_what)
        # Evaluated on the recorder's thread: 100,000 pairs would take the event loop 0.1 s, and
        # Python's garbage collection may add seconds.
        self._new.append((0, None, client, ((ts, ts.run_spec) for ts in wanted)))
        self._new.append((0, None, None, list(scheduler.tasks)))

    def submitted(self, client: str, tasks: Sequence[Any]) -> bool:
        """Return whether a submission is own; if not, it is left out. Call it on the event loop.

        Dask gives all tasks of a worker the same client, so that its submissions can be of anyone:
        they are all own.
        """
        if client == self.client or client.startswith(_WITHIN_WORKER):
            return True
        self._add(client, tasks)
        return False

    def add(self, tasks: Sequence[tuple[Any, Any]]) -> None:
        """Add submitted tasks with their definitions, and all that they depend on; likewise."""
        self._add(self.client, tasks)

    def released(self, message: dict[str, Any]) -> None:
        """Add data that the client scattered, before it releases them; likewise."""
        if message.get("client") == self.client:
            known = self._scheduler.tasks
            self._add_data(
                ts for key in message.get("keys", ()) if (ts := known.get(key)) is not None
            )

    def end(self) -> None:
        """Add data that the client scattered and still has; likewise."""
        state = self._scheduler.clients.get(self.client)
        if state is not None:
            self._add_data(list(state.wants_what))

    def _add_data(self, tasks: Iterable[Any]) -> None:
        # Data are in no submission, and have no definition.
        data = [ts for ts in tasks if ts.run_spec is None]
        if data:
            self.add([(ts, None) for ts in data])
            self._data.extend(data)

    @property
    def has_data(self) -> bool:
        """Whether scattered data were added since the last call of `data`."""
        return bool(self._data)

    def data(self) -> list[Any]:
        """Return the states of scattered data that were added since the last call."""
        return [self._data.popleft() for _ in range(len(self._data))]

    def _add(self, client: str, tasks: Sequence[Any]) -> None:
        position = self._scheduler.transition_counter - self._first
        self._new.append((position, now_ns(), client, tasks))

    def select(self, keys: Sequence[Any], finishes: Sequence[str]) -> list[int]:
        """Return the indices of the next transitions that are about own tasks.

        Parameters
        ----------
        keys, finishes : sequence
            Key and state after each transition, in Dask's order, without a gap since the last call.
        """
        own, others, new, position = self._keys, self._others, self._new, self._read
        chosen = []
        for i, (key, finish) in enumerate(zip(keys, finishes, strict=True)):
            while new and new[0][0] <= position + i:
                self._apply()
            if key in own:
                chosen.append(i)
            if finish == "forgotten":
                own.discard(key)
                others.pop(key, None)
        self._read = position + len(keys)
        self._left_out["scheduler_transitions"] += len(keys) - len(chosen)
        return chosen

    def _apply(self) -> None:
        _, submitted, client, tasks = self._new.popleft()
        if client != self.client:
            self._left_out["submissions"] += client is not None
            origin = client, submitted
            for key in tasks:
                if key not in self._keys:
                    self._others.setdefault(key, origin)
            return
        now = now_ns() if submitted is None else submitted
        for key in add_with_dependencies(self._keys, tasks, self._scheduler.tasks):
            if (other := self._others.pop(key, None)) is not None:
                row = {"time": now, "key": wire_key(key), "clients": other[0]}
                self._joined.append({**row, "submitted": other[1]})

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def rows(self) -> Iterable[Batch]:
        """Return rows of the tasks that became own, and of the numbers of rows left out."""
        joined, self._joined = self._joined, []
        if joined:
            yield Batch.of_rows("present_tasks", joined)
        counts = {what: self._left_out.pop(what) for what in list(self._left_out)}
        now = now_ns()
        rows = [{"time": now, "what": what, "count": n} for what, n in counts.items() if n]
        if rows:
            yield Batch.of_rows("left_out_rows", rows)

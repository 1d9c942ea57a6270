"""Tasks that the scheduler has when its recording begins.

The event loop only copies lists of references, in C. The recorder's thread describes the tasks.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Any

from dask_strata.recorder.graphs.own_tasks import OwnTasks, add_with_dependencies
from dask_strata.recorder.pipeline.engine import now_ns, to_ns
from dask_strata.recorder.pipeline.text import wire_keys
from dask_strata.store.segments.frames import Batch

#: Bound on the tasks that are described: copying their references takes the event loop 0.3 µs each
#: at most.
MAX_PRESENT = 200_000

#: Begin of the stimuli of submissions.
_SUBMISSION = "update-graph"

#: Dask's client for tasks that no client waits for.
_FIRE_AND_FORGET = "fire-and-forget"

_STATE = operator.attrgetter("state")


class PresentTasks:
    """The present tasks, and all that Dask still has about their submissions.

    Create it on the scheduler's event loop.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    own : OwnTasks, optional
        The client whose tasks alone are recorded.

    Attributes
    ----------
    known : mapping
        The scheduler's tasks.
    n_more : int
        Number of tasks above the bound, which are not described.
    """

    def __init__(self, scheduler: Any, own: OwnTasks | None = None) -> None:
        self.known = scheduler.tasks
        tasks = list(islice(scheduler.tasks.values(), MAX_PRESENT))
        self._time = now_ns()
        self._tasks, self._states = tasks, list(map(_STATE, tasks))
        self.n_more = len(scheduler.tasks) - len(tasks)
        self._own = None if own is None else own.client
        self._wanted = {
            name: list(client.wants_what)
            for name, client in scheduler.clients.items()
            if name != _FIRE_AND_FORGET
        }
        self._log: Sequence[Any] = list(scheduler.transition_log) if tasks else ()
        self._computations = _computations(scheduler) if tasks else []
        #: Clients and times by key, and times by group, computed on the recorder's thread.
        self._facts: tuple[dict[Any, str], dict[Any, float], dict[Any, float]] | None = None

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def chosen(self) -> list[tuple[Any, Any]]:
        """Return the tasks that are recorded, with their definitions."""
        rows = [(ts, ts.run_spec) for ts in self._tasks]
        if self._own is None:
            return rows
        own: set[Any] = set()
        wanted = [(ts, ts.run_spec) for ts in self._wanted.get(self._own, ())]
        add_with_dependencies(own, wanted, self.known)
        chosen = [i for i, ts in enumerate(self._tasks) if ts.key in own]
        self._states = [self._states[i] for i in chosen]
        return [rows[i] for i in chosen]

    def requested(self) -> frozenset[Any]:
        """Return the keys that clients wait for."""
        return frozenset(ts.key for tasks in self._wanted.values() for ts in tasks)

    def _clients(self) -> dict[Any, str]:
        """Return the clients of each task: those that wait for it, or for one that needs it."""
        found: dict[Any, str] = {}
        for name, tasks in self._wanted.items():
            keys: set[Any] = set()
            add_with_dependencies(keys, ((ts, ts.run_spec) for ts in tasks), self.known)
            for key in keys:
                found[key] = f"{found[key]}, {name}" if key in found else name
        return found

    def rows(self, position: int, tasks: Sequence[tuple[Any, Any]]) -> Batch:
        """Return rows of ``present_tasks`` for those of the `chosen` tasks that begin there."""
        if self._facts is None:
            logged = _logged(self._log)
            groups = {group: start for start, of_start in self._computations for group in of_start}
            self._facts = self._clients(), logged, groups
        clients, logged, groups = self._facts
        states = self._states[position : position + len(tasks)]
        keys = [ts.key for ts, _ in tasks]
        times = [logged.get(ts.key, groups.get(ts.group)) for ts, _ in tasks]
        return Batch(
            "present_tasks",
            len(keys),
            {
                "time": self._time,
                "key": wire_keys(keys),
                "state": states,
                "clients": [clients.get(key) for key in keys],
                "submitted": [None if t is None else to_ns(t) for t in times],
            },
        )


def _logged(log: Sequence[Any]) -> dict[Any, float]:
    """Return the times of submissions that Dask's log of transitions has, by key."""
    found: dict[Any, float] = {}
    for key, start, finish, _, stimulus, when in log:
        if finish == "forgotten":
            found.pop(key, None)
        elif start == "released" and str(stimulus).startswith(_SUBMISSION):
            found.setdefault(key, when)
    return found


def _computations(scheduler: Any) -> list[tuple[float, list[Any]]]:
    """Return start and groups of Dask's computations that consist of one submission.

    Dask adds a group to a computation only when it creates the group: tasks that were submitted
    later are in the same group. So the computation must have had one submission, which created as
    many tasks as its groups have had.
    """
    topic = getattr(getattr(scheduler, "_broker", None), "_topics", {}).get("scheduler")
    if topic is None:
        return []
    events = list(topic.events)
    # Earlier events may be missing if Dask has dropped some.
    since = events[0][0] if topic.count > len(events) else 0.0
    created = [
        (when, event.get("metrics", {}).get("new_tasks"))
        for when, event in events
        if isinstance(event, dict) and event.get("action") == _SUBMISSION
    ]
    times = [when for when, _ in created]
    starts = [computation.start for computation in scheduler.computations]
    found = []
    for computation, start, end in zip(
        scheduler.computations, starts, [*starts[1:], math.inf], strict=True
    ):
        first, last = bisect_left(times, start), bisect_left(times, end)
        groups = list(computation.groups)
        n_tasks = sum(sum(group.states.values()) for group in groups)
        if start >= since and last - first == 1 and created[first][1] == n_tasks:
            found.append((start, groups))
    return found

"""A look at a running cluster: what its scheduler knows of tasks and workers at one moment.

This is the scheduler's TaskState and WorkerState as plain rows. The scheduler forgets a task
soon after nobody wants its result; what it has forgotten is in the record only.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from dask_strata.errors import StrataError, UsageError

R = TypeVar("R")

#: Longer texts of exceptions and annotations are cut.
MAX_TEXT = 10_000


@dataclass(frozen=True)
class LiveTask:
    """One task that the scheduler knows of.

    Attributes
    ----------
    key, key_type : str
        The text that Dask shows for the key, and the type of the key.
    state : str
        Dask's name of its state: released, waiting, no-worker, queued, processing, memory, erred.
    prefix, group : str
        Names of the sets of tasks that it belongs to.
    worker : str or None
        Address of the worker that it is processing on, or of one that has its result.
    n_replicas : int
        How many workers have its result.
    n_dependencies, n_dependents : int
        How many tasks it needs, and how many need it.
    nbytes : int or None
        Size of its result; None before there is one.
    typename : str or None
        Type of its result.
    retries : int
        How many retries it has left.
    suspicious : int
        How many workers have died with it.
    exception : str or None
        Its exception, or that of the task that it failed for.
    blame : str or None
        Key of the task whose exception this is.
    annotations : str or None
        Its annotations, as JSON; values that JSON does not have are named by their type.
    """

    key: str
    key_type: str
    state: str
    prefix: str
    group: str
    worker: str | None
    n_replicas: int
    n_dependencies: int
    n_dependents: int
    nbytes: int | None
    typename: str | None
    retries: int
    suspicious: int
    exception: str | None
    blame: str | None
    annotations: str | None


@dataclass(frozen=True)
class LiveWorker:
    """One worker that the scheduler knows of.

    Attributes
    ----------
    address, name : str
        Its address, and the name that it was given.
    nthreads : int
        Threads that tasks run in.
    status : str
        Dask's name of its status: running, paused, closing_gracefully, …
    n_processing : int
        How many tasks the scheduler has assigned to it.
    processing : tuple of str
        Their keys; at most as many, of all workers together, as the limit of the snapshot.
    executing : tuple of str
        Keys that it was running when it last reported.
    in_memory : int
        How many results it has.
    occupancy_seconds : float
        How long the scheduler expects it to be busy.
    managed_bytes : int
        Size of the results that it has.
    process_bytes : int or None
        Memory of its process when it last reported.
    memory_limit_bytes : int or None
        Memory that it may use; None without a limit.
    last_seen_seconds : float
        How long ago it last reported.
    """

    address: str
    name: str
    nthreads: int
    status: str
    n_processing: int
    processing: tuple[str, ...]
    executing: tuple[str, ...]
    in_memory: int
    occupancy_seconds: float
    managed_bytes: int
    process_bytes: int | None
    memory_limit_bytes: int | None
    last_seen_seconds: float


class Rows(Sequence[R], Generic[R]):
    """Rows of one kind; a sequence that pandas can have as a frame."""

    def __init__(self, kind: type[R], rows: Sequence[R]) -> None:
        self._kind = kind
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[R, ...]: ...
    def __getitem__(self, index: int | slice) -> R | tuple[R, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self._kind.__name__}>"

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; StrataError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise StrataError(
                f"This needs pandas, which is not installed here: {error}.",
                hint="pip install pandas, or loop over the rows: they are dataclasses",
            ) from error
        columns: tuple[Any, ...] = fields(self._kind)  # type: ignore[arg-type]  # a dataclass
        frame = pd.DataFrame(
            [tuple(getattr(row, column.name) for column in columns) for row in self._rows],
            columns=[column.name for column in columns],
        )
        whole = {c.name: "Int64" for c in columns if c.type == "int | None"}
        return frame.astype(whole)


@dataclass(frozen=True, repr=False)
class Snapshot:
    """What a scheduler knew at one moment.

    Attributes
    ----------
    scheduler : str
        The scheduler's address.
    taken : datetime
        When, by the scheduler's clock.
    states : mapping of str to int
        How many tasks were in each state, all tasks counted.
    tasks : sequence of LiveTask
        One row a task, in the order in which the scheduler met them.
    workers : sequence of LiveWorker
        One row a worker.
    """

    scheduler: str
    taken: datetime
    states: Mapping[str, int]
    tasks: Rows[LiveTask]
    workers: Rows[LiveWorker]

    @property
    def n_tasks(self) -> int:
        """How many tasks the scheduler knew of, whether they are in `tasks` or not."""
        return sum(self.states.values())

    @property
    def cut(self) -> bool:
        """Whether there were more tasks than the limit allowed."""
        return self.n_tasks > len(self.tasks)

    def __repr__(self) -> str:
        states = ", ".join(f"{n:,} {state}" for state, n in self.states.items())
        seen = f"the first {len(self.tasks):,} of " if self.cut else ""
        return (
            f"<Snapshot of {self.scheduler} at {self.taken:%H:%M:%S} UTC: "
            f"{len(self.workers):,} workers, {seen}{self.n_tasks:,} tasks"
            f"{f' ({states})' if states else ''}>"
        )


def live(client: Any = None, *, limit: int = 100_000) -> Snapshot:
    """Look at a running cluster: its tasks and workers, as its scheduler sees them now.

    One call to the scheduler, which only reads and keeps nothing. Nothing needs to be installed
    there. The scheduler does nothing else meanwhile: for 100,000 tasks, some tenths of a second.
    Dask logs the call there.

    Parameters
    ----------
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    limit : int, optional
        How many tasks to list at most; a warning says when there are more.

    Returns
    -------
    Snapshot
        With `tasks` and `workers`, each with ``to_pandas()``. An asynchronous client gets an
        awaitable of it, as from Dask's own methods: ``await live(client)``.

    Raises
    ------
    UsageError
        There is no client, or the limit is negative.

    Examples
    --------
    >>> look = live(client)                                  # doctest: +SKIP
    >>> look.states                                          # doctest: +SKIP
    mappingproxy({'memory': 12, 'processing': 4, 'waiting': 31})
    >>> look.workers.to_pandas()                             # doctest: +SKIP
    """
    if limit < 0:
        raise UsageError(f"limit={limit} is negative.", hint="limit=0 lists no task, but counts.")
    client = _current_client() if client is None else client
    answer = client.run_on_scheduler(_looker(), limit=limit, max_text=MAX_TEXT)
    if client.asynchronous:
        return _later(answer)  # type: ignore[return-value]  # as Dask's methods do
    return _snapshot(answer)


def _current_client() -> Any:
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        raise UsageError(
            "There is no Dask client to look with.", hint="Give one: dask_strata.live(client)."
        ) from None


async def _later(answer: Awaitable[dict[str, Any]]) -> Snapshot:
    return _snapshot(await answer)


def _snapshot(found: dict[str, Any]) -> Snapshot:
    tasks = Rows(LiveTask, [LiveTask(*row) for row in found["tasks"]])
    snapshot = Snapshot(
        found["scheduler"],
        datetime.fromtimestamp(found["taken"], timezone.utc),
        MappingProxyType(dict(sorted(found["states"].items()))),
        tasks,
        Rows(LiveWorker, [LiveWorker(*row) for row in found["workers"]]),
    )
    if snapshot.cut:
        warnings.warn(
            f"Only the first {len(tasks):,} of {snapshot.n_tasks:,} tasks are listed; "
            "dask_strata.live(client, limit=…) lists more.",
            stacklevel=3,
        )
    return snapshot


def _looker() -> Callable[..., dict[str, Any]]:
    """Return the function that looks.

    It is local and needs nothing of this module, so that Dask pickles it by value and a
    scheduler without dask-strata can run it.
    """

    def dask_strata_look(limit: int, max_text: int, dask_scheduler: Any = None) -> dict[str, Any]:
        import json
        from itertools import islice
        from time import time

        now = time()
        listed = iter(range(limit))  # of all workers together

        def text(value: Any) -> str | None:
            return None if value is None else str(value)[:max_text]

        def annotations(found: Any) -> str | None:
            if not found:
                return None
            try:
                return text(json.dumps(found, default=lambda value: type(value).__name__))
            except (TypeError, ValueError, RecursionError):
                return None  # keys that are no text, or a ring

        def task(ts: Any) -> tuple[Any, ...]:
            holders = [ws.address for ws in ts.who_has or ()]
            on = ts.processing_on
            blame = ts.exception_blame
            return (
                str(ts.key),
                type(ts.key).__name__,
                ts.state,
                str(ts.group.prefix.name),
                str(ts.group.name),
                min(holders, default=None) if on is None else on.address,
                len(holders),
                len(ts.dependencies),
                len(ts.dependents),
                None if ts.nbytes < 0 else ts.nbytes,
                text(ts.type),
                ts.retries,
                ts.suspicious,
                text(ts.exception_text or (blame and blame.exception_text) or None),
                None if blame is None else str(blame.key),
                annotations(ts.annotations),
            )

        def worker(ws: Any) -> tuple[Any, ...]:
            return (
                ws.address,
                str(ws.name),
                ws.nthreads,
                ws.status.name,
                len(ws.processing),
                tuple(str(ts.key) for ts, _ in zip(ws.processing, listed, strict=False)),
                tuple(str(ts.key) for ts in ws.executing),
                len(ws.has_what),
                float(ws.occupancy),
                ws.nbytes,
                ws.metrics.get("memory"),
                ws.memory_limit or None,
                max(0.0, now - ws.last_seen),
            )

        states: dict[str, int] = {}
        for ts in dask_scheduler.tasks.values():
            states[ts.state] = states.get(ts.state, 0) + 1
        return {
            "scheduler": dask_scheduler.address,
            "taken": now,
            "states": states,
            "tasks": [task(ts) for ts in islice(dask_scheduler.tasks.values(), limit)],
            "workers": [worker(ws) for ws in dask_scheduler.workers.values()],
        }

    return dask_strata_look

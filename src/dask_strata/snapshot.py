"""The present state of a running cluster: tasks, workers, clients and replicas as plain rows.

The rows are copies of Dask's TaskState, WorkerState and ClientState objects. A snapshot needs no
recording. It contains no forgotten tasks: the scheduler forgets a task soon after its last future
is released, and from then on only a recorded run contains it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from dask_strata.errors import StrataError, UsageError

R = TypeVar("R")

_CLIENT_ID = re.compile(
    r"\w+-(?:(?P<name>.+)-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.DOTALL
)

#: Longest text of an exception or annotation, in characters; longer texts are cut.
MAX_TEXT = 10_000


@dataclass(frozen=True)
class LiveTask:
    """One task of the scheduler.

    Attributes
    ----------
    key, key_type : str
        The text that Dask shows for the key, and the type of the key.
    state : str
        State in Dask: released, waiting, no-worker, queued, processing, memory or erred.
    prefix, group : str
        Names of its task prefix and task group in Dask.
    worker : str or None
        Address of the worker on which it is processing, or of one that holds its result.
    n_replicas : int
        Number of workers that hold its result.
    n_dependencies, n_dependents : int
        Number of tasks that it depends on, and that depend on it.
    nbytes : int or None
        Size of its result in bytes; None before there is one.
    typename : str or None
        Type of its result.
    retries : int
        Number of retries left.
    suspicious : int
        Number of workers that died while the task was processing on them.
    exception : str or None
        Its exception, or that of the dependency that failed.
    blame : str or None
        Key of the task that raised this exception.
    annotations : str or None
        Its annotations as JSON; a value without a JSON form is replaced by the name of its type.
    executing_seconds : float or None
        How long its function has been executing, in seconds; None if its worker has reported no
        execution of it in a heartbeat.
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
    executing_seconds: float | None


@dataclass(frozen=True)
class LiveWorker:
    """One worker of the scheduler.

    Attributes
    ----------
    address, name : str
        Its address, and its name in Dask.
    nthreads : int
        Number of threads that execute tasks.
    status : str
        Status in Dask: running, paused, closing_gracefully, …
    n_processing : int
        Number of tasks assigned to it.
    processing : tuple of str
        Keys of these tasks. The limit of the snapshot bounds the keys of all workers together.
    executing : tuple of str
        Keys of the tasks that it was executing at its last heartbeat.
    in_memory : int
        Number of results that it holds.
    occupancy_seconds : float
        The scheduler's estimate of how long its assigned tasks will take, in seconds.
    managed_bytes : int
        Size of the results that it holds, in bytes.
    process_bytes : int or None
        Memory of its process at its last heartbeat, in bytes.
    memory_limit_bytes : int or None
        Memory limit in bytes; None without a limit.
    last_seen_seconds : float
        Time since its last heartbeat, in seconds.
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


@dataclass(frozen=True)
class LiveClient:
    """One client of the scheduler.

    Attributes
    ----------
    client : str
        Dask's id of it.
    name : str or None
        The name that it was given, ``Client(name=…)``, or "worker" for a client within a task; None
        without one.
    address : str or None
        Address that it is connected from.
    connected : datetime or None
        When it last connected, on the scheduler's clock.
    last_seen_seconds : float
        Time since its last heartbeat, in seconds.
    n_wanted : int
        Number of tasks whose results it wants: those of its futures and persisted collections.
    wanted : tuple of str
        Keys of these tasks. The limit of the snapshot bounds the keys of all clients together.
    """

    client: str
    name: str | None
    address: str | None
    connected: datetime | None
    last_seen_seconds: float
    n_wanted: int
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class LiveReplica:
    """One result on one worker that holds it.

    Attributes
    ----------
    key, key_type : str
        The text that Dask shows for the key, and the type of the key.
    worker : str
        Address of the worker.
    nbytes : int or None
        Size of the result in bytes; None if unknown.
    """

    key: str
    key_type: str
    worker: str
    nbytes: int | None


class Rows(Sequence[R], Generic[R]):
    """An immutable sequence of rows of one kind, with a conversion to pandas.

    Parameters
    ----------
    kind : type
        Dataclass of the rows.
    rows : sequence
        The rows.

    Examples
    --------
    >>> Rows(LiveTask, [])
    <0 rows of LiveTask>
    """

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
        """Return the rows as a `pandas.DataFrame`, with a column for each attribute.

        Raises
        ------
        StrataError
            pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise StrataError(
                f"to_pandas() needs pandas, which is not installed: {error}.",
                hint="pip install pandas, or iterate over the rows, which are dataclasses",
            ) from error
        columns: tuple[Any, ...] = fields(self._kind)  # type: ignore[arg-type]  # R is a dataclass
        frame = pd.DataFrame(
            [tuple(getattr(row, column.name) for column in columns) for row in self._rows],
            columns=[column.name for column in columns],
        )
        integers = {c.name: "Int64" for c in columns if c.type == "int | None"}
        return frame.astype(integers)


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The state of a scheduler at one moment.

    Attributes
    ----------
    scheduler : str
        The scheduler's address.
    taken : datetime
        Time of the snapshot on the scheduler's clock.
    states : mapping of str to int
        Number of tasks in each state, over all tasks, listed or not.
    tasks : sequence of LiveTask
        One row per task, oldest first, up to the limit.
    workers : sequence of LiveWorker
        One row per worker.
    clients : sequence of LiveClient
        One row per connected client.
    replicas : sequence of LiveReplica
        One row per result and worker that holds it, up to the limit.
    n_replicas : int
        Number of replicas, whether they are in `replicas` or not.
    """

    scheduler: str
    taken: datetime
    states: Mapping[str, int]
    tasks: Rows[LiveTask]
    workers: Rows[LiveWorker]
    clients: Rows[LiveClient]
    replicas: Rows[LiveReplica]
    n_replicas: int

    @property
    def n_tasks(self) -> int:
        """Number of tasks of the scheduler, whether they are in `tasks` or not."""
        return sum(self.states.values())

    @property
    def cut(self) -> bool:
        """Whether `tasks` lacks some tasks because of the limit."""
        return self.n_tasks > len(self.tasks)

    def __repr__(self) -> str:
        states = ", ".join(f"{n:,} {state}" for state, n in self.states.items())
        listed = f"the first {len(self.tasks):,} of " if self.cut else ""
        return (
            f"<Snapshot of {self.scheduler} at {self.taken:%H:%M:%S} UTC: "
            f"{len(self.workers):,} workers, {len(self.clients):,} clients, "
            f"{listed}{self.n_tasks:,} tasks"
            f"{f' ({states})' if states else ''}>"
        )


def live(client: Any = None, *, limit: int = 100_000) -> Snapshot:
    """Return tasks, workers, clients and replicas of a running cluster, as its scheduler has them.

    This is one call to the scheduler, which reads and changes nothing. The scheduler needs no
    dask-strata. It handles no other messages during the call, for some tenths of a second with
    100,000 tasks. Dask logs the call there.

    Parameters
    ----------
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    limit : int, optional
        Largest number of tasks to list, and of replicas; a warning is issued if there are more.

    Returns
    -------
    Snapshot
        Its `tasks`, `workers`, `clients` and `replicas` have a method ``to_pandas()``. With an
        asynchronous client the result is an awaitable, as from Dask's own methods:
        ``await live(client)``.

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
        raise UsageError(
            f"limit={limit} is negative.", hint="limit=0 lists no tasks, only counts them."
        )
    client = _current_client() if client is None else client
    answer = client.run_on_scheduler(_scheduler_function(), limit=limit, max_text=MAX_TEXT)
    if client.asynchronous:
        return _later(answer)  # type: ignore[return-value]  # as Dask's methods do
    return _snapshot(answer)


def _current_client() -> Any:
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        raise UsageError(
            "There is no Dask client to query.", hint="Pass one: dask_strata.live(client)."
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
        Rows(LiveClient, [_live_client(*row) for row in found["clients"]]),
        Rows(LiveReplica, [LiveReplica(*row) for row in found["replicas"]]),
        found["n_replicas"],
    )
    listed = {
        "tasks": (len(tasks), snapshot.n_tasks),
        "replicas": (len(snapshot.replicas), snapshot.n_replicas),
    }
    cut = [f"{n:,} of {total:,} {what}" for what, (n, total) in listed.items() if n < total]
    if cut:
        warnings.warn(
            f"Only the first {' and '.join(cut)} are listed; "
            "to list more, use dask_strata.live(client, limit=…).",
            stacklevel=3,
        )
    return snapshot


def _live_client(  # noqa: PLR0913, PLR0917  the fields of a row
    client: str,
    address: str | None,
    connected: float | None,
    last_seen_seconds: float,
    n_wanted: int,
    wanted: tuple[str, ...],
) -> LiveClient:
    # Dask's id of a client is the name of its class, its own name if it has one, and a UUID.
    parts = _CLIENT_ID.fullmatch(client)
    when = None if connected is None else datetime.fromtimestamp(connected, timezone.utc)
    name = None if parts is None else parts["name"]
    return LiveClient(client, name, address, when, last_seen_seconds, n_wanted, wanted)


def _scheduler_function() -> Callable[..., dict[str, Any]]:
    """Return the function that the scheduler runs.

    It is local and uses nothing of this module. So Dask pickles it by value, and a scheduler
    without dask-strata can run it.
    """
    holdings = _holdings_function()

    def dask_strata_live(limit: int, max_text: int, dask_scheduler: Any = None) -> dict[str, Any]:
        import json
        from itertools import islice
        from time import time

        now = time()
        slots = iter(range(limit))  # shared by the keys of all workers

        def text(value: Any) -> str | None:
            return None if value is None else str(value)[:max_text]

        def annotations(found: Any) -> str | None:
            if not found:
                return None
            try:
                return text(json.dumps(found, default=lambda value: type(value).__name__))
            except (TypeError, ValueError, RecursionError):
                return None  # keys that JSON cannot have, or a circular reference

        def executing_seconds(ts: Any) -> float | None:
            ws = ts.processing_on
            at_heartbeat = None if ws is None else ws.executing.get(ts)
            return None if at_heartbeat is None else at_heartbeat + max(0.0, now - ws.last_seen)

        def task(ts: Any) -> tuple[Any, ...]:
            holders = [ws.address for ws in ts.who_has or ()]
            processing_on = ts.processing_on
            blame = ts.exception_blame
            return (
                str(ts.key),
                type(ts.key).__name__,
                ts.state,
                str(ts.group.prefix.name),
                str(ts.group.name),
                min(holders, default=None) if processing_on is None else processing_on.address,
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
                executing_seconds(ts),
            )

        def worker(ws: Any) -> tuple[Any, ...]:
            return (
                ws.address,
                str(ws.name),
                ws.nthreads,
                ws.status.name,
                len(ws.processing),
                tuple(str(ts.key) for ts, _ in zip(ws.processing, slots, strict=False)),
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
            **holdings(dask_scheduler, limit, now),
        }

    return dask_strata_live


def _holdings_function() -> Callable[..., dict[str, Any]]:
    """Return the part of the scheduler's function about clients and replicas; local as that is."""

    def connected(scheduler: Any, client: str) -> float | None:
        for when, event in reversed(scheduler.get_events(client)):
            if isinstance(event, dict) and event.get("action") == "add-client":
                return float(when)
        return None

    def holdings(scheduler: Any, limit: int, now: float) -> dict[str, Any]:
        from itertools import islice

        slots = iter(range(limit))  # shared by the keys of all clients

        def client(name: str, cs: Any, batched: Any) -> tuple[Any, ...]:
            peer = getattr(getattr(batched, "comm", None), "peer_address", None)
            return (
                name,
                None if peer is None else str(peer),
                connected(scheduler, name),
                max(0.0, now - cs.last_seen),
                len(cs.wants_what),
                tuple(str(ts.key) for ts, _ in zip(cs.wants_what, slots, strict=False)),
            )

        replicas = (
            (str(ts.key), type(ts.key).__name__, ws.address, None if ts.nbytes < 0 else ts.nbytes)
            for ws in scheduler.workers.values()
            for ts in ws.has_what
        )
        return {
            # Dask's own client without a connection, fire-and-forget, is none.
            "clients": [
                client(name, cs, scheduler.client_comms[name])
                for name, cs in scheduler.clients.items()
                if name in scheduler.client_comms
            ],
            "replicas": list(islice(replicas, limit)),
            "n_replicas": sum(len(ws.has_what) for ws in scheduler.workers.values()),
        }

    return holdings

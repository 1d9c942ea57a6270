"""The Dask processes of a recorded run, and when their threads executed tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.schema.values import DASK_ROLES
from dask_strata.store.reader import Record

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Executions:
    """Executions of tasks on one worker, column by column.

    Attributes
    ----------
    start, stop : numpy.ndarray of int64
        Nanoseconds since the epoch, on the worker's clock.
    thread : numpy.ndarray of int64
        Identity of the thread; 0 where it is not recorded.
    exact : bool
        Whether the executing thread measured the times. Otherwise they are Dask's own intervals,
        which a worker shifts by its estimate of its clock offset.
    """

    start: Times
    stop: Times
    thread: Times
    exact: bool = True

    def __len__(self) -> int:
        return len(self.start)


NO_EXECUTIONS = Executions(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class DaskProcess:
    """A process with one of `DASK_ROLES`; times are nanoseconds since the epoch, None if unknown.

    Its attributes are the columns of ``processes`` with the same names.
    """

    process: str
    role: str
    address: str | None
    host: str | None
    pid: int | None
    start: int | None
    stop: int | None

    @property
    def worker(self) -> str | None:
        """Its address if it is a worker, else None."""
        return self.address if self.role == "worker" else None


@dataclass(frozen=True)
class RecordedProcesses:
    """The Dask processes of a run, its executions by worker, and its first and last time.

    Attributes
    ----------
    processes : tuple of DaskProcess
        The processes.
    executions : mapping of str to Executions
        Executions by address of the worker.
    start, stop : int or None
        First and last time of the run in nanoseconds since the epoch; None if it has no times.
    """

    processes: tuple[DaskProcess, ...]
    executions: Mapping[str, Executions] = field(default_factory=dict)
    start: int | None = None
    stop: int | None = None

    def executions_in(self, process: DaskProcess | None, worker: str | None) -> Executions:
        """Return the executions in a process, which may have been several workers at once."""
        workers = {worker} if worker else set()
        if process is not None and process.pid is not None:
            workers |= {
                p.worker
                for p in self.processes
                if p.worker and (p.host, p.pid) == (process.host, process.pid)
            }
        found = [self.executions[w] for w in sorted(workers) if w in self.executions]
        if not found:
            return NO_EXECUTIONS
        first, *others = found
        if not others:
            return first
        return Executions(
            np.concatenate([e.start for e in found]),
            np.concatenate([e.stop for e in found]),
            np.concatenate([e.thread for e in found]),
            all(e.exact for e in found),
        )


_COLUMNS = ("start", "stop", "thread")


def read_recorded_processes(record: Record) -> RecordedProcesses:
    """Return the processes and executions of a run.

    Parameters
    ----------
    record : Record
        The run's tables.

    Raises
    ------
    StrataError
        Its Parquet cannot be read.
    """
    processes = tuple(_processes(record))
    measured = _by_worker(record.tables["executions"].select(["worker", *_COLUMNS]), exact=True)
    reported = _by_worker(_compute_intervals(record.tables["scheduler_transitions"]), exact=False)
    # Workers of imported runs may have their own transitions only.
    executing = _by_worker(_executing_intervals(record), exact=False)
    executions = executing | reported | measured
    times = [t for p in processes for t in (p.start, p.stop) if t is not None]
    for table in ("scheduler_transitions", "worker_transitions"):
        column = record.tables[table]["time"].cast(pa.int64())
        times += [t for t in pc.min_max(column).as_py().values() if t is not None]
    for on_worker in executions.values():
        times += [int(on_worker.start.min()), int(on_worker.stop.max())]
    return RecordedProcesses(
        processes, executions, min(times, default=None), max(times, default=None)
    )


def _processes(record: Record) -> list[DaskProcess]:
    """Return the Dask processes; several rows of one process are merged, later values win."""
    names = ["process", "role", "address", "host", "pid"]
    table = record.tables["processes"]
    merged: dict[str, dict[str, Any]] = {}
    rows = table.select(names).to_pylist()
    times = zip(*(table[n].cast(pa.int64()).to_pylist() for n in ("start", "stop")), strict=True)
    for row, (start, stop) in zip(rows, times, strict=True):
        process = merged.setdefault(row["process"], {"start": None, "stop": None, **row})
        values = row | {"start": start, "stop": stop}
        process.update({name: value for name, value in values.items() if value is not None})
    return [DaskProcess(**p) for p in merged.values() if p["role"] in DASK_ROLES]


def _compute_intervals(transitions: pa.Table) -> pa.Table:
    """Return the intervals in which tasks computed, as workers reported them to the scheduler."""
    reported = transitions.filter(
        pc.and_(pc.is_valid(transitions["startstops"]), pc.is_valid(transitions["worker"]))
    )
    reported = reported.select(["worker", "thread", "startstops"]).combine_chunks()
    lists = reported["startstops"].combine_chunks()
    flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
    if isinstance(flat, pa.ChunkedArray):
        flat, parents = flat.combine_chunks(), parents.combine_chunks()
    computed = pc.equal(pc.struct_field(flat, "action"), "compute")
    parents = parents.filter(computed)
    return pa.table(
        {
            "worker": reported["worker"].take(parents),
            "start": pc.struct_field(flat, "start").filter(computed),
            "stop": pc.struct_field(flat, "stop").filter(computed),
            "thread": reported["thread"].take(parents),
        }
    )


def _executing_intervals(record: Record) -> pa.Table:
    """Return the intervals in which imported workers had tasks in the state executing."""
    table = record.tables["worker_transitions"]
    table = table.filter(pc.is_valid(table["file"]))
    running = pa.array(["executing", "long-running"])
    begins = pc.equal(table["finish_state"].cast(pa.string()), "executing")
    was_running = pc.is_in(table["start_state"].cast(pa.string()), running)
    is_running = pc.is_in(table["finish_state"].cast(pa.string()), running)
    starts = pc.and_(begins, pc.invert(was_running))
    table = table.append_column("starts", starts)
    table = table.filter(pc.or_(starts, pc.and_(was_running, pc.invert(is_running))))
    worker, key, kind = (_codes(table[name]) for name in ("worker", "key", "key_type"))
    time, seq = (table[name].cast(pa.int64()).fill_null(0).to_numpy() for name in ("time", "seq"))
    order = np.lexsort((seq, time, kind, key, worker))
    begin, end = order[:-1], order[1:]
    same = (worker[begin] == worker[end]) & (key[begin] == key[end]) & (kind[begin] == kind[end])
    begin, end = (
        part[same & table["starts"].to_numpy(zero_copy_only=False)[begin]] for part in (begin, end)
    )
    names = record.tables["processes"].select(["name", "address", "transport"]).to_pylist()
    addresses = {p["name"]: p["address"] for p in names if p["transport"] == "import"}
    workers = [addresses.get(w) or w for w in table["worker"].cast(pa.string()).to_pylist()]
    return pa.table(
        {
            "worker": pa.array(workers, pa.string()).take(pa.array(begin)),
            "start": pa.array(time[begin]),
            "stop": pa.array(time[end]),
            "thread": pa.array(np.zeros(len(begin), np.int64)),
        }
    )


def _codes(column: pa.ChunkedArray) -> Times:
    """Return a number for each distinct value of a column of texts."""
    array = pa.concat_arrays(column.cast(pa.string()).chunks or [pa.array([], pa.string())])
    codes = array.dictionary_encode().indices.fill_null(-1)
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def _by_worker(table: pa.Table, *, exact: bool) -> dict[str, Executions]:
    timed = pc.and_(pc.is_valid(table["start"]), pc.is_valid(table["stop"]))
    table = table.filter(timed)
    workers = table["worker"].cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(workers, pa.ChunkedArray):
        workers = workers.combine_chunks()
    codes = workers.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    start, stop, thread = (table[n].cast(pa.int64()).fill_null(0).to_numpy() for n in _COLUMNS)
    return {
        name: Executions(start[codes == code], stop[codes == code], thread[codes == code], exact)
        for code, name in enumerate(workers.dictionary.to_pylist())
    }

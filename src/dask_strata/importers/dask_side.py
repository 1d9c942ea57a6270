"""What a run on record says of its processes and of when their threads ran tasks."""

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
class Runs:
    """Runs of tasks' functions: when, in nanoseconds on the worker's clock, and in which thread.

    ``exact`` says whether a thread itself measured them; else they are Dask's intervals, which
    a worker shifts by what it takes for its clock's offset.
    """

    start: Times
    stop: Times
    thread: Times
    exact: bool = True

    def __len__(self) -> int:
        return len(self.start)


NO_RUNS = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class DaskProcess:
    """A process of Dask's; times are nanoseconds since the epoch, null if not known."""

    process: str
    role: str
    address: str | None
    host: str | None
    pid: int | None
    start: int | None
    stop: int | None

    @property
    def worker(self) -> str | None:
        """Its address, if it is a worker."""
        return self.address if self.role == "worker" else None


@dataclass(frozen=True)
class DaskSide:
    """The processes of a run, the runs of tasks by worker, and when the run was."""

    processes: tuple[DaskProcess, ...]
    runs: Mapping[str, Runs] = field(default_factory=dict)
    start: int | None = None
    stop: int | None = None

    def runs_in(self, process: DaskProcess | None, worker: str | None) -> Runs:
        """Return the runs in a process, which may be several workers at once."""
        workers = {worker} if worker else set()
        if process is not None and process.pid is not None:
            workers |= {
                p.worker
                for p in self.processes
                if p.worker and (p.host, p.pid) == (process.host, process.pid)
            }
        found = [self.runs[w] for w in sorted(workers) if w in self.runs]
        if len(found) < 2:  # noqa: PLR2004
            return found[0] if found else NO_RUNS
        return Runs(
            np.concatenate([r.start for r in found]),
            np.concatenate([r.stop for r in found]),
            np.concatenate([r.thread for r in found]),
            all(r.exact for r in found),
        )


_COLUMNS = ("start", "stop", "thread")


def dask_side(record: Record) -> DaskSide:
    """Return what a record says. Raises StrataError if its Parquet cannot be read."""
    processes = tuple(_processes(record))
    measured = _by_worker(record.tables["executions"].select(["worker", *_COLUMNS]), exact=True)
    told = _by_worker(_intervals(record.tables["scheduler_transitions"]), exact=False)
    runs = told | measured
    moments = [t for p in processes for t in (p.start, p.stop) if t is not None]
    for table in ("scheduler_transitions", "worker_transitions"):
        column = record.tables[table]["time"].cast(pa.int64())
        moments += [t for t in pc.min_max(column).as_py().values() if t is not None]
    for some in runs.values():
        moments += [int(some.start.min()), int(some.stop.max())]
    return DaskSide(processes, runs, min(moments, default=None), max(moments, default=None))


def _processes(record: Record) -> list[DaskProcess]:
    names = ["process", "role", "address", "host", "pid"]
    table = record.tables["processes"]
    merged: dict[str, dict[str, Any]] = {}
    rows = table.select(names).to_pylist()
    times = zip(*(table[n].cast(pa.int64()).to_pylist() for n in ("start", "stop")), strict=True)
    for row, (start, stop) in zip(rows, times, strict=True):
        known = merged.setdefault(row["process"], {"start": None, "stop": None, **row})
        new = row | {"start": start, "stop": stop}
        known.update({name: value for name, value in new.items() if value is not None})
    return [DaskProcess(**p) for p in merged.values() if p["role"] in DASK_ROLES]


def _intervals(transitions: pa.Table) -> pa.Table:
    """Return the intervals in which tasks computed, by the scheduler's record."""
    there = transitions.filter(
        pc.and_(pc.is_valid(transitions["startstops"]), pc.is_valid(transitions["worker"]))
    )
    there = there.select(["worker", "thread", "startstops"]).combine_chunks()
    lists = there["startstops"].combine_chunks()
    flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
    if isinstance(flat, pa.ChunkedArray):
        flat, parents = flat.combine_chunks(), parents.combine_chunks()
    computed = pc.equal(pc.struct_field(flat, "action"), "compute")
    parents = parents.filter(computed)
    return pa.table(
        {
            "worker": there["worker"].take(parents),
            "start": pc.struct_field(flat, "start").filter(computed),
            "stop": pc.struct_field(flat, "stop").filter(computed),
            "thread": there["thread"].take(parents),
        }
    )


def _by_worker(table: pa.Table, *, exact: bool) -> dict[str, Runs]:
    known = pc.and_(pc.is_valid(table["start"]), pc.is_valid(table["stop"]))
    table = table.filter(known)
    workers = table["worker"].cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(workers, pa.ChunkedArray):
        workers = workers.combine_chunks()
    codes = workers.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    start, stop, thread = (table[n].cast(pa.int64()).fill_null(0).to_numpy() for n in _COLUMNS)
    return {
        name: Runs(start[codes == code], stop[codes == code], thread[codes == code], exact)
        for code, name in enumerate(workers.dictionary.to_pylist())
    }

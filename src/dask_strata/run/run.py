"""A run: the one object that everything takes.

Tables are read when they are first looked at. Times of all processes are put on the
scheduler's clock on the way (see `Run.clock_offsets_ns`).
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb  # noqa: TC002  loaded by `sql` anyway
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import UnknownTaskError
from dask_strata.run.clock import align, clock_offsets
from dask_strata.run.derived.queries import QUERIES
from dask_strata.run.duckdb_session import computing, connect, fetch, fetch_read_only
from dask_strata.run.prepare import merge_processes, name_layers, order_by_time
from dask_strata.run.table_view import TableView, as_type, microseconds
from dask_strata.run.task import Task
from dask_strata.run.workspace import Workspace
from dask_strata.schema import DERIVED, RECORDED, TABLES, split_wire_key, wire_key
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.manifest import Manifest
from dask_strata.store.reader import Record, fingerprint, read_record
from dask_strata.store.segments import Segment, segment_state

_WORD = re.compile(r"\w+")

#: Words of a query that is about tables rather than their rows.
_ABOUT_TABLES = {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}


class Run:
    """What is on record of one run.

    Parameters
    ----------
    path : str or Path
        The run's folder.
    align : bool, optional
        Whether times are put on the scheduler's clock.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is no run, or one of a later version.

    Examples
    --------
    >>> run = open_run("runs/2026-…")                            # doctest: +SKIP
    >>> run.tasks.to_pandas()                                    # doctest: +SKIP
    >>> run.sql("select prefix, count(*) from tasks group by 1") # doctest: +SKIP
    """

    #: Classes of the tables and tasks of this run; the public `Run` has its own.
    table_class: ClassVar[type[TableView]] = TableView
    task_class: ClassVar[type[Task]] = Task

    def __init__(self, path: str | Path, *, align: bool = True) -> None:
        self.path = Path(path)
        self.align = align
        #: What users' queries may use of memory, as DuckDB writes it; None for most of it.
        self.sql_memory_limit: str | None = None
        self.manifest = Manifest.read(self.path)
        self._lock = threading.RLock()
        self._record: Record | None = None
        self._seen: tuple[Any, ...] = ()
        self._offsets: dict[str, int] | None = None
        self._ready: dict[str, pa.Table] = {}
        self._derived: dict[str, pa.Table] = {}
        self._made: set[str] = set()
        self._shown: set[str] = set()
        self._engine: Workspace | None = None
        self._sql: duckdb.DuckDBPyConnection | None = None

    def __repr__(self) -> str:
        return f"<Run {self.manifest.name} {self.manifest.run_id}: {self.state}, {self.path}>"

    def __getattr__(self, name: str) -> TableView:
        if name in TABLES:
            return self[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def __getitem__(self, name: str) -> TableView:
        if name not in TABLES:
            raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}")
        self._catch_up()
        rows = self.record.rows.get(name)
        if rows is not None and name != "processes":  # two rows of a process become one
            return self.table_class(name, lambda: self._table(name), rows)
        table = self._table(name)
        return self.table_class(name, lambda: table)

    # Reading.

    def refresh(self) -> bool:
        """Forget what was read if there is more on record by now; return whether there is."""
        with self._lock:
            seen = fingerprint(self.path)
            if seen == self._seen:
                return False
            self._seen = seen
            self._record = None
            self._offsets = None
            self._ready.clear()
            self._derived.clear()
            for connection in (self._engine, self._sql):
                if connection is not None:
                    connection.close()
            self._engine = self._sql = None
            return True

    def _catch_up(self) -> None:
        """Read again if what was read was still being recorded."""
        if self._record is not None and self.state == "recording":
            self.refresh()

    @property
    def record(self) -> Record:
        """What is on record, as it is: times are not aligned in these tables."""
        with self._lock:
            if self._record is None:
                self._seen = fingerprint(self.path)
                self._record = read_record(self.path)
            return self._record

    def _recorded(self, name: str) -> pa.Table:
        """Return a recorded table, ready to be looked at."""
        if name not in self._ready:
            table = self.record.tables[name]
            if name == "processes":
                table = merge_processes(table)
            if self.align:
                offsets = self.clock_offsets_ns
                table = align(table, offsets, imported=self.record.imported)
            if name == "scheduler_transitions" and self.record.imported:
                table = order_by_time(table)
            if name == "graph_tasks":
                table = name_layers(table, self.record.tables["graph_layers"])
            self._ready[name] = table
        return self._ready[name]

    def _table(self, name: str) -> pa.Table:
        with self._lock:
            if name not in DERIVED:
                return self._recorded(name)
            if name not in self._derived:
                schema = arrow_schema(TABLES[name])
                columns = ", ".join(f'"{field.name}"' for field in schema)
                query = f"select {columns} from {name}"  # noqa: S608  names are ours
                found = self._fetch(query)
                self._derived[name] = pa.Table.from_arrays(
                    [as_type(found[f.name], f.type) for f in schema], schema=schema
                )
            return self._derived[name]

    def _workspace(self, query: str) -> Workspace:
        """Return the workspace that has the tables that a query names, derived ones too."""
        with self._lock:
            if self._engine is None:
                self._engine = Workspace()
                self._made.clear()
            execute = self._engine.connection.execute
            names = list(QUERIES)
            needed = set(_WORD.findall(query))
            for i in reversed(range(len(names))):
                if names[i] in needed:
                    before = {*RECORDED, *names[:i]}
                    needed |= set(_WORD.findall(QUERIES[names[i]])) & before
            needed -= self._made
            for name in RECORDED:
                if name in needed:
                    self._engine.add(name, self._recorded(name))
            for name in names:
                if name in needed:
                    # Again, if it was interrupted before.
                    make = f'create or replace temp table "{name}" as {QUERIES[name]}'
                    with computing():
                        self._engine.do(partial(execute, make))
            self._made |= needed
            return self._engine

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of one of our own queries, as mappings."""
        return microseconds(self.arrow(query, *parameters)).to_pylist()  # type: ignore[no-any-return]

    def rows_by_process(self, name: str) -> dict[str, int]:
        """Return how many rows of a recorded table each process told; nothing else is read."""
        with self._lock:
            found = pc.value_counts(self.record.tables.columns(name, ["process"])["process"])
        return {row["values"]: row["counts"] for row in found.to_pylist()}

    def arrow(self, query: str, *parameters: Any) -> pa.Table:
        """Return the rows of one of our own queries, as columns."""
        with self._lock:
            return self._fetch(query, *parameters)

    def _fetch(self, query: str, *parameters: Any) -> pa.Table:
        workspace = self._workspace(query)
        with computing():
            return workspace.do(lambda: fetch(workspace.connection, query, list(parameters)))

    def _open_sql(self, query: str) -> duckdb.DuckDBPyConnection:
        """Return the connection for users: its tables have times that SQL can reckon with.

        It gets the tables that a query names, or all if the query may be about the tables.
        """
        with self._lock:
            if self._sql is None:
                self._sql = connect(self.sql_memory_limit)
                self._sql.execute("set lock_configuration = true")
                self._shown.clear()
            words = set(_WORD.findall(query.lower()))
            named = words & TABLES.keys()
            if not named or words & _ABOUT_TABLES:
                named = set(TABLES)
            for name in sorted(named - self._shown):
                table = self._table(name)
                times = [f.name for f in table.schema if pa.types.is_timestamp(f.type)]
                casts = ", ".join(f'"{t}"::timestamptz as "{t}"' for t in times)
                self._sql.register(f"_{name}", table)
                view = f" replace ({casts})" if casts else ""
                self._sql.execute(f"create temp view {name} as select *{view} from _{name}")  # noqa: S608  names are ours
            self._shown |= named
            return self._sql

    def interrupt(self) -> None:
        """Have queries that are under way in other threads end with an error."""
        engine = None if self._engine is None else self._engine.connection
        for connection in (engine, self._sql):
            if connection is not None:
                connection.interrupt()

    def sql(self, query: str, *, limit: int | None = None) -> TableView:
        """Return the answer to one SQL query over the tables, by their names.

        The engine is DuckDB, in memory. It can read the tables and nothing else: no file,
        no network, no extension, no change. Times have microseconds there.

        Parameters
        ----------
        query : str
            The query.
        limit : int, optional
            At most so many rows of the answer.

        Raises
        ------
        QueryError
            The query is wrong, or no query.
        """
        self._catch_up()
        with self._lock:
            found = fetch_read_only(self._open_sql(query), query, limit)
        return self.table_class("query", lambda: found)

    # What the run is.

    @property
    def state(self) -> str:
        """complete, recording, cut or imported: whether the scheduler's record has an end."""
        if self.manifest.imported_from is not None:
            return "imported"
        states = {segment_state(s) for s in self.segments if s.process.startswith("scheduler")}
        if "recording" in states:
            return "recording"
        return "complete" if states == {"ended"} else "cut"

    @property
    def segments(self) -> list[Segment]:
        """The segments of the processes on record."""
        return self.record.segments

    @property
    def segment_bytes(self) -> int:
        """Bytes of the segments that are not compacted."""
        size = 0
        for segment in self.segments:
            with suppress(OSError):  # it is compacted just now
                size += segment.path.lstat().st_size
        return size

    @property
    def clock_offsets_ns(self) -> dict[str, int]:
        """Nanoseconds added to the times of each process, by process; see `run.clock`."""
        with self._lock:
            if self._offsets is None:
                tables = self.record.tables
                self._offsets = clock_offsets(tables["processes"], tables["clock_offsets"])
            return self._offsets

    @property
    def flush_interval_seconds(self) -> float:
        """How often records were handed to the operating system."""
        return float(self.manifest.flush_interval_seconds)

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """Effective Dask configuration: process, then dotted name, then value."""
        found: dict[str, dict[str, Any]] = {}
        for row in self["config"].to_arrow().to_pylist():
            found.setdefault(row["process"], {})[row["name"]] = _loads(row["value"])
        return found

    @property
    def job(self) -> dict[str, dict[str, str]]:
        """Facts of the job layer: process, then name, then value."""
        found: dict[str, dict[str, str]] = {}
        for row in self["job"].to_arrow().to_pylist():
            found.setdefault(row["process"], {})[row["name"]] = row["value"]
        return found

    @property
    def script(self) -> dict[str, str]:
        """Facts on the client's script; of the last client, where there were several."""
        return {row["name"]: row["value"] for row in self["script"].to_arrow().to_pylist()}

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """Installed packages: process, then name, then version."""
        found: dict[str, dict[str, str]] = {}
        for row in self["packages"].to_arrow().to_pylist():
            found.setdefault(row["process"], {})[row["name"]] = row["version"]
        return found

    def task(self, key: Any, key_type: str | None = None) -> Task:
        """Return one task.

        Parameters
        ----------
        key : str or any key of Dask
            The key itself, or the text that Dask shows for it.
        key_type : str, optional
            Name of the key's type, for a text that two keys have.

        Raises
        ------
        UnknownTaskError
            No such task is on record, or more than one.
        """
        text, kind = split_wire_key(wire_key(key))
        kinds = self._key_types(text)
        if not isinstance(key, str):
            kinds = [k for k in kinds if k == kind]
        elif key_type is not None:
            kinds = [k for k in kinds if k == key_type]
        elif len(kinds) > 1 and isinstance(key, str):
            raise UnknownTaskError(
                f"More than one task has the key {text}: of type {' and '.join(kinds)}.",
                hint=f"Say which: --key-type {kinds[0]} on the command line, "
                f"key_type={kinds[0]!r} in Python.",
            )
        if not kinds:
            raise UnknownTaskError(f"No task {text} is on record.", hint=self._hint_for(text))
        return self.task_class(self, text, kinds[0])

    def _key_types(self, text: str) -> list[str]:
        found = self.rows(
            "select distinct key_type from (select key, key_type from tasks union all "
            "select key, key_type from graph_tasks union all "
            "select key, key_type from worker_transitions) where key = ? order by 1",
            text,
        )
        return [row["key_type"] for row in found]

    def _hint_for(self, text: str) -> str:
        found = self.rows(
            "select distinct key from tasks where contains(key, ?) "
            "or jaro_winkler_similarity(key[:200], ?) > 0.8 limit 3",
            text,
            text[:200],
        )
        if found:
            return "Did you mean " + " or ".join(row["key"][:200] for row in found) + "?"
        return f"See them all with: dask-strata tasks {self.path}"


def open_run(path: str | Path, *, align: bool = True) -> Run:
    """Open a run's folder; nothing is read before it is looked at.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is no run, or one of a later version.
    """
    return Run(path, align=align)


def _loads(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text

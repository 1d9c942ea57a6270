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
from typing import Any

import duckdb  # noqa: TC002  loaded by `sql` anyway
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.derive import QUERIES
from dask_strata.errors import UnknownTaskError
from dask_strata.ready import align, merge_processes, name_layers, order_by_time
from dask_strata.schema import DERIVED, RECORDED, TABLES, split_wire_key, wire_key
from dask_strata.sql import computing, connect, fetch, fetch_read_only
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.manifest import Manifest
from dask_strata.store.reader import Record, fingerprint, read_record
from dask_strata.store.segments import Segment, segment_state
from dask_strata.tables import TableView, as_type, microseconds
from dask_strata.workspace import Workspace

#: Processes on other hosts are shifted only by more than this many uncertainties.
_SIGNIFICANT = 1.0

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
        return f"<Run {self.manifest.name} {self.manifest.run}: {self.state}, {self.path}>"

    def _repr_html_(self) -> str:
        from dask_strata.report.notebook import run_html

        return run_html(self)

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
            return TableView(name, lambda: self._table(name), rows)
        table = self._table(name)
        return TableView(name, lambda: table)

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
        return TableView("query", lambda: found)

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
        """What is added to the times of each process to put them on the scheduler's clock.

        Zero for processes on the scheduler's host, which has one clock. For those on another
        host the measurement of least uncertainty of any of them, if it is larger than that.
        Imported measurements have no uncertainty of their own: there it is the median of all
        of a host, if it is larger than half the range of their middle half.
        """
        with self._lock:
            if self._offsets is None:
                self._offsets = self._measured_offsets()
            return self._offsets

    def _measured_offsets(self) -> dict[str, int]:
        tables = self.record.tables
        every = tables["processes"].select(["process", "role", "host"]).to_pylist()
        processes = [p for p in every if p["role"]]
        home = {p["host"] for p in processes if p["role"] == "scheduler" and p["host"]}
        hosts = {
            p["process"]: p["host"] or p["process"] for p in processes if p["host"] not in home
        }
        measured: dict[str, list[tuple[float, float | None]]] = {}
        columns = ["process", "offset_seconds", "uncertainty_seconds"]
        for row in tables["clock_offsets"].select(columns).to_pylist():
            host = hosts.get(row["process"])
            if host is not None and row["offset_seconds"] is not None:
                measured.setdefault(host, []).append(
                    (row["offset_seconds"], row["uncertainty_seconds"])
                )
        best = {host: _best(offsets) for host, offsets in measured.items()}
        return {
            process: int(best[host][0] * 1e9)
            for process, host in hosts.items()
            if host in best and abs(best[host][0]) > _SIGNIFICANT * best[host][1]
        }

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
        return Task(self, text, kinds[0])

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

    def check(self) -> Any:
        """Return what is known to be missing from the record: a `Check`."""
        from dask_strata.analysis.completeness import check

        return check(self)

    def lineage(self, key: Any, key_type: str | None = None) -> Any:
        """Return which inputs a task depends on, its own and those of all before it: a `Lineage`.

        Parameters
        ----------
        key, key_type
            As for `task`.

        Raises
        ------
        UnknownTaskError
            No such task is on record, or more than one.
        """
        from dask_strata.analysis.lineage import lineage

        return lineage(self.task(key, key_type))

    def dependents_of(self, uri: str | os.PathLike[str]) -> Any:
        """Return which tasks, results and written files depend on a file: a `Dependents`.

        Parameters
        ----------
        uri : str or path
            The file, store or folder, as the tables name it; a relative path is one of the
            current folder.
        """
        from dask_strata.analysis.lineage import dependents_of

        return dependents_of(self, uri)


def open_run(path: str | Path, *, align: bool = True) -> Run:
    """Open a run's folder; nothing is read before it is looked at.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is no run, or one of a later version.
    """
    return Run(path, align=align)


@dataclass(frozen=True)
class Task:
    """One task of a run. Printing it tells its story.

    Attributes
    ----------
    key, key_type : str
        The text that Dask shows for the key, and the type of the key.
    """

    run: Run
    key: str
    key_type: str

    def __str__(self) -> str:
        from dask_strata.analysis.stories import story
        from dask_strata.report.terminal import plain_story

        return plain_story(story(self))

    def _repr_html_(self) -> str:
        from dask_strata.report.page import story_html

        return story_html(self.run, self.key, self.key_type)

    def rows(self, table: str, column: str = "key") -> list[dict[str, Any]]:
        """Return the rows of a table that are about this task, in the table's order."""
        return self.run.rows(
            f'select * from {table} where "{column}" = ? and "{column}_type" = ?',  # noqa: S608  names are ours
            self.key,
            self.key_type,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The row of its last life in `tasks`; empty if the scheduler's record has none."""
        rows = self.rows("tasks")
        return rows[-1] if rows else {}

    @property
    def state(self) -> str | None:
        """The last state that mattered."""
        return self.facts.get("state")

    @property
    def dependencies(self) -> list[str]:
        """Keys that it needs."""
        return list(dict.fromkeys(r["dependency"] for r in self.rows("graph_edges")))

    @property
    def dependents(self) -> list[str]:
        """Keys that need it."""
        return list(dict.fromkeys(r["key"] for r in self.rows("graph_edges", "dependency")))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Its stays in processing on a worker, in order."""
        rows = sorted(self.rows("attempts"), key=lambda a: a["attempt"])
        return [{name: v for name, v in row.items() if not name.startswith("_")} for row in rows]

    @property
    def transfers(self) -> list[dict[str, Any]]:
        """Transfers of its result, in order."""
        numbers = [r["transfer"] for r in self.rows("transfer_keys")]
        return self.run.rows(
            "select * from transfers where list_contains(?, transfer) order by start", numbers
        )

    @property
    def events(self) -> Iterator[Any]:
        """Everything on record about it, in time order: see `analysis.stories`."""
        from dask_strata.analysis.stories import story

        return iter(story(self).events)


def _best(measured: list[tuple[float, float | None]]) -> tuple[float, float]:
    """Return the offset of a host and its uncertainty, from measurements of its processes."""
    certain = [(u, offset) for offset, u in measured if u is not None]
    if certain:
        uncertainty, offset = min(certain)
        return offset, uncertainty
    offsets = sorted(offset for offset, _ in measured)
    low, middle, high = (offsets[len(offsets) * i // 4] for i in (1, 2, 3))
    return middle, (high - low) / 2


def _loads(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text

"""A recorded run: its tables, its tasks and SQL over them.

Tables are read on first access. Times of all processes are aligned to the scheduler's clock
then (see `Run.clock_offsets_ns`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb  # noqa: TC002  loaded by `sql` anyway
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import UnknownTaskError
from dask_strata.run.clients import find_client
from dask_strata.run.clock import align, clock_offsets
from dask_strata.run.derived import definitions, with_dependencies
from dask_strata.run.duckdb_session import computing, connect, execute, fetch, fetch_read_only
from dask_strata.run.own_tasks import OTHERS_TABLE, OWN, SHARED, TRANSITIONS, OwnKeys
from dask_strata.run.prepare import (
    count_layers,
    mark_rescheduled,
    merge_processes,
    name_layers,
    order_by_time,
)
from dask_strata.run.query_tables import query_tables, words
from dask_strata.run.table_view import TableView, as_type, microseconds
from dask_strata.run.task import Task
from dask_strata.run.workspace import Workspace
from dask_strata.schema import (
    DERIVED,
    LEFT_OUT,
    RECORDED,
    TABLES,
    recorded_text,
    split_wire_key,
    wire_key,
)
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.copies.mirror import Mirror
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.interruptible import interruptible
from dask_strata.store.manifest import Manifest
from dask_strata.store.reader import Record, fingerprint, read_record
from dask_strata.store.segments import Segment, segment_state

#: Words of a query that is about tables rather than their rows.
_ABOUT_TABLES = {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}

#: Functions with the name of a table, or a whole query, as a text.
_TABLE_AS_TEXT = {
    "query", "query_table", "pragma_table_info", "pragma_show", "pragma_storage_info",
    "duckdb_table_sample", "json_execute_serialized_sql", "histogram", "histogram_values",
}  # fmt: skip

#: The name of the first client's program; of one typed interactively only if there is no other.
_FIRST_PROGRAM = """
    select named.value as name
    from script named join processes p using (process)
    left join script kind on kind.process = named.process and kind.name = 'kind'
    where named.name = 'name' and p.role = 'client' and named.value <> ?
    order by kind.value = 'interactive', p.start limit 1
"""

#: Transitions of keys in lives that do not belong to a client.
_OTHER_LIVES = """
    select s.process, s.seq from _transitions t join scheduler_transitions s on s._row = t._row
    left join _task_clients c on c._key = t._key and c.life = t.life
    where t._key in (select _key from _transitions where life > 1)
      and not coalesce(list_contains(string_split(c.clients, ', '), ?), false)
"""


class Run:
    """The record of one run.

    Parameters
    ----------
    path : str or Path
        The run's folder, or its URL.
    align : bool, optional
        Whether times are aligned to the scheduler's clock.
    client : str, optional
        Show only tasks that this client submitted or requested, and their rows: the id of the
        client, the begin of its id, or the name of its script.

    Attributes
    ----------
    path : Path
        The run's folder, or that of its local copy.
    location : str
        The folder or URL of the run, for messages.

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        A later version of dask-strata wrote the run.
    UsageError
        There is no such client.

    Examples
    --------
    >>> run = open_run("runs/2026-…")                            # doctest: +SKIP
    >>> run.tasks.to_pandas()                                    # doctest: +SKIP
    >>> run.sql("select prefix, count(*) from tasks group by 1") # doctest: +SKIP
    """

    #: Classes of the tables and tasks of this run; the public `Run` has its own.
    table_class: ClassVar[type[TableView]] = TableView
    task_class: ClassVar[type[Task]] = Task

    def __init__(self, path: str | Path, *, align: bool = True, client: str | None = None) -> None:
        self._mirror = Mirror(str(path)) if is_url(path) else None
        self.path = local_path(path) if self._mirror is None else self._mirror.fetch()
        self.location = shown(path)
        self.align = align
        #: Memory limit of users' queries in DuckDB's notation; None for DuckDB's default.
        self.sql_memory_limit: str | None = None
        #: Returns a context in which users' queries run, after their tables were computed.
        self.sql_limits: Callable[[], AbstractContextManager[None]] = nullcontext
        self.manifest = Manifest.read(self.path)
        #: Id of the client whose tasks alone are shown; None for all tasks on record.
        self.client = None if client is None else find_client(Run(path, align=align), client)
        self._lock = threading.RLock()
        self._record: Record | None = None
        self._own: OwnKeys | None = None
        self._fingerprint: tuple[Any, ...] = ()
        self._offsets: dict[str, int] | None = None
        self._ready: dict[str, pa.Table] = {}
        self._derived: dict[str, pa.Table] = {}
        self._materialised: set[str] = set()
        self._visible: set[str] = set()
        self._workspace: Workspace | None = None
        self._sql: duckdb.DuckDBPyConnection | None = None

    def __repr__(self) -> str:
        return f"<Run {self.name} {self.manifest.run_id}: {self.state}, {self.location}>"

    def __getattr__(self, name: str) -> TableView:
        if name in TABLES:
            return self[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def __getitem__(self, name: str) -> TableView:
        if name not in TABLES:
            raise KeyError(f"no table {name!r}; the tables are {', '.join(TABLES)}")
        self._catch_up()
        rows = self.record.rows.get(name)
        # The rows of a process are merged, and those of other clients' tasks are removed.
        changed = name == "processes" or (self._of_one_client and name in SHARED)
        if rows is not None and not changed:
            return self.table_class(name, lambda: self._table(name), rows)
        table = self._table(name)
        return self.table_class(name, lambda: table)

    def refresh(self) -> bool:
        """Discard all tables if the record has changed since; return whether it has."""
        with self._lock:
            if self._mirror is not None:
                self._mirror.fetch()
            found = fingerprint(self.path)
            if found == self._fingerprint:
                return False
            self._fingerprint = found
            self._record = None
            self._own = None
            self._offsets = None
            self._ready.clear()
            self._derived.clear()
            for database in (self._workspace, self._sql):
                if database is not None:
                    database.close()
            self._workspace = self._sql = None
            return True

    def _catch_up(self) -> None:
        """Discard all tables if the run was still being recorded and the record has changed."""
        if self._record is not None and self.state == "recording":
            self.refresh()

    @property
    def record(self) -> Record:
        """The record as it was written: times in its tables are not aligned."""
        with self._lock:
            if self._record is None:
                self._fingerprint = fingerprint(self.path)
                self._record = read_record(self.path)
            return self._record

    def _recorded(self, name: str) -> pa.Table:
        """Return a recorded table with aligned times."""
        if name not in self._ready:
            table = self.record.tables[name]
            if self._of_one_client and name in SHARED:
                table, others = self._own_keys.split(name, table)
                if name == TRANSITIONS:
                    self._ready[OTHERS_TABLE] = self._aligned(others)
            if name == "processes":
                table = merge_processes(table)
            table = self._aligned(table)
            if name == "scheduler_transitions" and self.record.imported:
                table = order_by_time(table)
            if name == "graph_tasks":
                table = name_layers(table, self.record.tables["graph_layers"])
            if name == "graph_layers":
                table = count_layers(table, self.record.tables["graph_tasks"])
            if name == "executions":
                columns = ("worker", "key", "key_type", "wanted_state")
                table = mark_rescheduled(
                    table, lambda: self.record.tables.columns("worker_transitions", columns)
                )
            self._ready[name] = table
        return self._ready[name]

    def _aligned(self, table: pa.Table) -> pa.Table:
        if not self.align:
            return table
        return align(table, self.clock_offsets_ns, imported=self.record.imported)

    @property
    def _of_one_client(self) -> bool:
        return self.client is not None or self.manifest.only_client is not None

    @property
    def _own_keys(self) -> OwnKeys:
        if self._own is None and self.client is None:
            columns = ("key", "key_type")
            self._own = OwnKeys(self.record.tables.columns(name, columns) for name in OWN)
        elif self._own is None:
            everything = Run(self.path, align=self.align)
            keys = everything.arrow(
                "select key, key_type from _task_clients join _keys using (_key) "
                "where list_contains(string_split(clients, ', '), ?)",
                self.client,
            )
            texts = pa.dictionary(pa.int32(), pa.string())
            own = [as_type(column, texts) for column in keys.columns]
            lives = everything.arrow(_OTHER_LIVES, self.client)
            self._own = OwnKeys([pa.table(own, keys.column_names)], self.client, lives)
        return self._own

    def _others(self) -> pa.Table:
        """Return the transitions of other clients' tasks on workers."""
        transitions = self._recorded(TRANSITIONS)
        return self._ready.get(OTHERS_TABLE, transitions.slice(0, 0))

    def _table(self, name: str) -> pa.Table:
        with self._lock:
            if name not in DERIVED:
                return self._recorded(name)
            if name not in self._derived:
                schema = arrow_schema(TABLES[name])
                columns = ", ".join(f'"{field.name}"' for field in schema)
                query = f"select {columns} from {name}"  # noqa: S608  names from the schema
                found = self._fetch(query)
                self._derived[name] = pa.Table.from_arrays(
                    [as_type(found[f.name], f.type) for f in schema], schema=schema
                )
            return self._derived[name]

    def _workspace_for(self, query: str) -> Workspace:
        """Return the workspace, with all tables that a query and its derived tables read."""
        with self._lock:
            if self._workspace is None:
                self._workspace = Workspace()
                self._materialised.clear()
            needed = with_dependencies(query_tables(query)) - self._materialised
            for name in RECORDED:
                if name in needed:
                    self._workspace.add(name, self._recorded(name))
            if OTHERS_TABLE in needed:
                self._workspace.add(OTHERS_TABLE, self._others())
            connection = self._workspace.connection
            for name, definition in definitions().items():
                if name in needed:
                    # `or replace`: an interrupted query leaves tables that were not noted yet.
                    make = f'create or replace temp table "{name}" as {definition.sql}'
                    with computing():
                        self._workspace.do(partial(connection.execute, make))
            self._materialised |= needed
            return self._workspace

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a trusted query as mappings.

        Parameters
        ----------
        query : str
            The query; it may name internal tables, whose names begin with an underscore.
        *parameters
            Values of the parameters in the query.

        Raises
        ------
        StrataError
            A value in the record cannot be computed with, or memory is not sufficient.
        InterruptedQueryError
            The query was interrupted.
        """
        return microseconds(self.arrow(query, *parameters)).to_pylist()  # type: ignore[no-any-return]

    def rows_by_process(self, name: str) -> dict[str, int]:
        """Return the number of rows of a recorded table by process; only one column is read."""
        with self._lock:
            found = pc.value_counts(self.record.tables.columns(name, ["process"])["process"])
        return {row["values"]: row["counts"] for row in found.to_pylist()}

    def arrow(self, query: str, *parameters: Any) -> pa.Table:
        """Return the rows of a trusted query as a table of columns; see `rows`."""
        with self._lock:
            return self._fetch(query, *parameters)

    def _fetch(self, query: str, *parameters: Any) -> pa.Table:
        workspace = self._workspace_for(query)
        with computing():
            return workspace.do(lambda: fetch(workspace.connection, query, list(parameters)))

    def _open_sql(self, query: str) -> duckdb.DuckDBPyConnection:
        """Return the connection for users' queries, with the tables that a query names.

        It has all tables if the query names none or may be about tables. Times have
        microseconds, as DuckDB has few functions for nanoseconds.
        """
        with self._lock:
            if self._sql is None:
                locked = connect(self.sql_memory_limit)
                execute(locked, "set lock_configuration = true")
                self._sql = locked  # only now, as Ctrl-C may end either line
                self._visible.clear()
            all_words = words(query)
            named = all_words if all_words & _TABLE_AS_TEXT else query_tables(query)
            named &= TABLES.keys()
            if not named or all_words & _ABOUT_TABLES:
                named = frozenset(TABLES)
            for name in sorted(named - self._visible):
                interruptible(self._sql, partial(_add_view, self._sql, name, self._table(name)))
                self._visible.add(name)
            return self._sql

    def interrupt(self) -> None:
        """Interrupt queries of other threads: they raise InterruptedQueryError."""
        internal = None if self._workspace is None else self._workspace.connection
        for connection in (internal, self._sql):
            if connection is not None:
                connection.interrupt()

    def sql(self, query: str, *, limit: int | None = None) -> TableView:
        """Return the answer to one SQL query over the tables, by their names.

        DuckDB runs the query in memory. The query can read the tables, but no file and no
        network; it cannot load an extension or change anything. Times have microseconds.

        Parameters
        ----------
        query : str
            The query.
        limit : int, optional
            Return at most the first ``limit`` rows.

        Raises
        ------
        QueryError
            The query is wrong, or does anything but read.
        InterruptedQueryError
            The query was interrupted.
        """
        self._catch_up()
        with self._lock:
            connection = self._open_sql(query)
            with self.sql_limits():
                found = fetch_read_only(connection, query, limit)
        return self.table_class("query", lambda: found)

    @property
    def name(self) -> str:
        """Name of the run: as chosen, or that of the first client's script, module or notebook.

        A scheduler that was started on its own names the run before any client is known.
        """
        if self.manifest.named:
            return self.manifest.name
        found = self.rows(_FIRST_PROGRAM, LEFT_OUT)
        return str(found[0]["name"]) if found else self.manifest.name

    @property
    def state(self) -> str:
        """complete, recording, cut or imported: whether the scheduler's segments have an end."""
        if self.manifest.imported_from is not None:
            return "imported"
        states = {segment_state(s) for s in self.segments if s.process.startswith("scheduler")}
        if "recording" in states:
            return "recording"
        return "complete" if states == {"ended"} else "cut"

    @property
    def segments(self) -> list[Segment]:
        """The segments of the recorded processes that are not compacted."""
        return self.record.segments

    @property
    def segment_bytes(self) -> int:
        """Size of the segments that are not compacted, in bytes."""
        size = 0
        for segment in self.segments:
            with suppress(OSError):  # compaction removes it at this moment
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
        """Interval in seconds at which the recorder writes to its files."""
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
        """Facts on the client's script; if there were several, of the last client."""
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
            Name of the key's type, where keys of several types have this text.

        Raises
        ------
        UnknownTaskError
            The record has no such task, or several.
        """
        text, kind = split_wire_key(recorded_text(wire_key(key)))
        kinds = self.key_types(text)
        if not isinstance(key, str):
            kinds = [k for k in kinds if k == kind]
        elif key_type is not None:
            kinds = [k for k in kinds if k == key_type]
        elif len(kinds) > 1 and isinstance(key, str):
            raise UnknownTaskError(
                f"More than one task has the key {text}: of type {' and '.join(kinds)}.",
                hint=f"Choose one: --key-type {kinds[0]} on the command line, "
                f"key_type={kinds[0]!r} in Python.",
            )
        if not kinds:
            raise UnknownTaskError(f"The record has no task {text}.", hint=self._hint_for(text))
        return self.task_class(self, text, kinds[0])

    def key_types(self, text: str) -> list[str]:
        """Return the types of all recorded keys with a text; empty if there is none."""
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
        return f"List all tasks with: dask-strata tasks {self.location}"


def open_run(path: str | Path, *, align: bool = True, client: str | None = None) -> Run:
    """Open a run; tables are read on first access.

    Parameters
    ----------
    path : str or Path
        The run's folder, or its URL.
    align : bool, optional
        Whether times are aligned to the scheduler's clock.
    client : str, optional
        Show only the tasks of this client; see `Run`.

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        A later version of dask-strata wrote the run.
    UsageError
        There is no such client.
    """
    return Run(path, align=align, client=client)


def _add_view(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Register a table and add a view of it with times in microseconds."""
    times = [f.name for f in table.schema if pa.types.is_timestamp(f.type)]
    casts = ", ".join(f'"{time}"::timestamptz as "{time}"' for time in times)
    columns = f"* replace ({casts})" if casts else "*"
    connection.register(f"_{name}", table)
    query = f"select {columns} from _{name}"  # noqa: S608  names from the schema
    connection.execute(f"create or replace temp view {name} as {query}")


def _loads(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text

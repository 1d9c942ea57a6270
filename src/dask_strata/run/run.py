"""A recorded run: its tables, its tasks and SQL over them.

Tables are read on first access. Times of all processes are aligned to the scheduler's clock
then (see `Run.clock_offsets_ns`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import InterruptedQueryError, StrataError, UnknownTaskError
from dask_strata.run.clients import find_client
from dask_strata.run.clock import align, clock_offsets
from dask_strata.run.derived import STORED, definitions, with_dependencies
from dask_strata.run.duckdb_session import (
    UnreadableError,
    connect,
    execute,
    fetch_read_only,
    register,
)
from dask_strata.run.finalise import derive_all
from dask_strata.run.growing.growth import Growth
from dask_strata.run.growing.snapshot import SMALLEST_BYTES, segment_bytes, snapshot_of
from dask_strata.run.growing.views import GrowingViews
from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.own_tasks import OTHERS_TABLE, OWN, SHARED, TRANSITIONS, OwnKeys
from dask_strata.run.prepare import (
    count_layers,
    mark_rescheduled,
    merge_processes,
    name_layers,
    order_by_time,
)
from dask_strata.run.query_tables import mentions_keys, query_tables, words
from dask_strata.run.stored.cache import cached, keep
from dask_strata.run.stored.partitions import WHOLE, dask_frame
from dask_strata.run.stored.views import ParquetViews
from dask_strata.run.table_view import TableView, as_type, microseconds
from dask_strata.run.task import Task
from dask_strata.run.workspace import BATCH_ROWS, WORKING_BYTES, Workspace
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
from dask_strata.store.compact import DerivedFiles
from dask_strata.store.copies.mirror import Mirror
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.interruptible import interruptible
from dask_strata.store.manifest import Manifest
from dask_strata.store.parquet import READ_ERRORS
from dask_strata.store.reader import Record, fingerprint, read_more, read_record
from dask_strata.store.segments.read import Segment, segment_state
from dask_strata.store.zipped.copy import BundleCopy, copy_of, is_bundle, is_current
from dask_strata.store.zipped.copy import keep as keep_copy

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
        The run's folder, its URL, or its bundle: a file that `dask-strata export --to bundle` made.
    align : bool, optional
        Whether times are aligned to the scheduler's clock.
    client : str, optional
        Show only tasks that this client submitted or requested, and their rows: the id of the
        client, the start of its id, or the name of its script.

    Attributes
    ----------
    path : Path
        The run's folder, or that of its local copy; of a bundle, a temporary one.
    location : str
        The folder, URL or bundle of the run, for messages.

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
        #: The copy of the bundle that the run is read from; None if it is read from a folder.
        self.bundle: BundleCopy | None = None
        self.path = local_path(path) if self._mirror is None else self._mirror.fetch()
        if self._mirror is None and is_bundle(self.path):
            self.bundle = copy_of(self.path)
            self.path = self.bundle.folder
        self._place = path
        self.location = shown(path)
        self.align = align
        #: Memory limit of users' queries in DuckDB's notation; None for DuckDB's default.
        self.sql_memory_limit: str | None = None
        #: Memory of derived tables, in bytes, before DuckDB spills them to disk.
        self.working_bytes = WORKING_BYTES
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
        self._parquet: ParquetViews | None = None
        self._growth: Growth | None = None
        #: Bytes of all segments when they were first read.
        self._first_bytes = 0
        self._with_texts: dict[str, bool] = {}
        #: Ids of keys that were asked for.
        self._key_ids: dict[tuple[str, str | None], int | None] = {}
        #: Whether a file could not be read by DuckDB: tables are read into memory instead.
        self._in_memory = False
        #: Whether tables with better definitions have been computed, or cannot be.
        self._improved = False

    def __repr__(self) -> str:
        state = self._state_as_read()
        return f"<Run {self.name} {self.manifest.run_id}: {state}, {self.location}>"

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
        with self._lock:
            if name in DERIVED and (views := self._views) is not None and self._is_stored(name):
                rows = views.n_rows(name)
        if rows is not None and not changed:
            partitions = partial(self._dask_frame, name)
            return self.table_class(name, lambda: self._table(name), rows, partitions)
        table = self._table(name)
        return self.table_class(name, lambda: table)

    def fetch(self) -> None:
        """Copy what is new to the local copy, if the run is at a URL."""
        if self._mirror is not None:
            self._mirror.fetch()

    def refresh(self) -> bool:
        """Discard all tables if the record has changed since; return whether it has."""
        with self._lock:
            if self._mirror is not None:
                self._mirror.fetch()
            if self.bundle is not None and not is_current(self.bundle, local_path(self._place)):
                self._open_bundle(local_path(self._place))
            found = fingerprint(self.path)
            if found == self._fingerprint:
                return False
            self._discard_tables()
            # Of a run that grows, only new rows are read.
            grows = self._record is not None and self._state_as_read() == "recording"
            self._record = read_more(self._record) if self._record and grows else None
            if self._record is not None and self._size() > 2 * self._first_bytes + SMALLEST_BYTES:
                self._record = None  # a new snapshot has most of it
            self._close_files(keep_growth=self._record is not None)
            self._improved = False
            if self._record is None:
                self._in_memory = False
            self._fingerprint = found  # only now: after Ctrl-C, the next call reads the rest
            return True

    def _open_bundle(self, path: Path) -> None:
        """Read the bundle that has replaced the one before."""
        self.bundle = copy_of(path)
        self.path = self.bundle.folder
        self.manifest = Manifest.read(self.path)
        self._fingerprint, self._record = (), None

    def _discard_tables(self) -> None:
        """Discard the tables that were computed from the record, before it is read anew."""
        self._own = None
        self._offsets = None
        self._ready.clear()
        self._derived.clear()

    @property
    def _views(self) -> ParquetViews | None:
        """Views of a finalised run whose rows are all there, or of one that grows; or None."""
        if self.client is not None or self._in_memory:
            return None
        if self._parquet is None:
            try:
                self._parquet = self._made_views()
            except BaseException as error:
                self._close_files()  # a part of the new rows may have been added
                readable = isinstance(error, (StrataError, duckdb.Error, *READ_ERRORS))
                from_snapshot = self._record is not None and self._record.snapshot is not None
                if isinstance(error, InterruptedQueryError) or not (readable and from_snapshot):
                    raise
                self._read_into_memory()  # the snapshot may have been removed meanwhile
        return self._parquet

    def _made_views(self) -> ParquetViews | None:
        tables = self.record.tables
        only_own = self.manifest.only_client is not None
        if (part := tables.finalised()) is not None:
            offsets = self.clock_offsets_ns if self.align else {}
            imported = self.record.imported
            views = ParquetViews(part, offsets, only_own=only_own, imported=imported)
            if self.align and (kept := cached(part)):
                views.use(kept)
            return views
        if (part := tables.growing()) is None:
            return None
        if self._growth is None:
            self._growth = Growth(part, tables, only_own=only_own)
            self._offsets = None  # those of the finalised part do not change while it is used
            self._ready.clear()
        offsets = self.clock_offsets_ns if self.align else {}
        if self._growth.look(tables, offsets, self._recorded("processes")):
            return self._growth.views
        self._read_into_memory()
        return None

    def _improve(self, names: set[str]) -> None:
        """Compute the derived tables with better definitions once, if some tables need one."""
        part = self.record.tables.finalised()
        if self._views is None or part is None or not self.align or self._improved:
            return
        if not self._views.usable(names)[1]:
            return
        outdated = STORED - self._stored
        self._improved = True
        given = frozenset(self._stored)

        def compute(folder: Path) -> Mapping[str, DerivedFiles]:
            return derive_all(part, wanted=outdated, given=given, folder=folder)

        kept = keep(part, compute)
        if kept is not None:
            self._views.use(kept)

    @property
    def _stored(self) -> set[str]:
        """Names of the derived tables in the Parquet; their times are aligned."""
        return self._views.stored() if self._views is not None and self.align else set()

    def _is_stored(self, name: str) -> bool:
        """Return whether a derived table is in the Parquet, undamaged, with aligned times."""
        return name in STORED and self.align and (v := self._views) is not None and v.has(name)

    def _dask_frame(self, name: str, npartitions: int | None) -> Any:
        """Return a Dask DataFrame that reads the Parquet of a table; None if it cannot."""
        part = None if self._views is None else self.record.tables.finalised()
        in_files = self._is_stored(name) if name in DERIVED else name not in WHOLE
        if part is None or not in_files or name not in part.checksums:
            return None
        if self._views is not None and self._views.part_with(name) is not part:
            return None  # a better definition's rows are elsewhere
        if self.bundle is not None:
            keep_copy(self.bundle)
        offsets = self.clock_offsets_ns if self.align else {}
        return dask_frame(part, name, offsets, npartitions, imported=self.record.imported)

    def _catch_up(self) -> None:
        """Discard all tables if the run was still being recorded and the record has changed."""
        if self._record is not None and self.state == "recording":
            self.refresh()

    @property
    def is_growing(self) -> bool:
        """Whether the run is being recorded; of a finalised run no file is read to find out."""
        return segment_bytes(self.path) > 0 and self.state == "recording"

    @property
    def snapshot(self) -> Path | None:
        """Folder of the snapshot that the record is read from; None if there is none."""
        return self.record.snapshot

    @property
    def is_read(self) -> bool:
        """Whether the files of the run were read: they may have changed since."""
        return self._record is not None

    @property
    def record(self) -> Record:
        """The record as it was written: times in its tables are not aligned."""
        with self._lock:
            if self._record is None:
                snapshot = None
                if self.client is None and not self._in_memory:
                    snapshot = snapshot_of(self.path)
                self._fingerprint = fingerprint(self.path)
                self._record = read_record(self.path, snapshot=snapshot)
                self._first_bytes = self._size()
            return self._record

    def _size(self) -> int:
        """Return the bytes of all segments that were read."""
        return 0 if self._record is None else sum(s.size for s in self._record.segments)

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
                self._improve({name})
                if self._is_stored(name) and (order := definitions()[name].order):
                    query += f" order by {order}"
                found = self._fetch(query)
                self._derived[name] = pa.Table.from_arrays(
                    [as_type(found[f.name], f.type) for f in schema], schema=schema
                )
            return self._derived[name]

    def _workspace_for(self, query: str) -> Workspace:
        """Return the workspace, with all tables that a query and its derived tables read."""
        with self._lock:
            views = self._views
            if self._workspace is None:
                growing = views.workspace if isinstance(views, GrowingViews) else None
                self._workspace = growing or Workspace(self.working_bytes)
                self._materialised.clear()
                self._with_texts.clear()
            workspace = self._workspace
            names = query_tables(query)
            self._improve(set(names))
            stored = set() if views is None or not self.align else views.usable(names)[0]
            needed = with_dependencies(names, stored)
            if views is not None:
                views.prepare(needed & stored)
            computed = [
                each
                for name, each in definitions().items()
                if name in needed - stored - self._materialised
            ]
            if self._views is not None:
                texts = any(map(mentions_keys, [query, *(each.sql for each in computed)]))
                self._add_views(workspace, needed, stored, texts=texts)
            else:
                self._add_tables(workspace, needed - self._materialised)
            for each in computed:
                workspace.table(each.name, each.ordered_sql)
                self._materialised.add(each.name)
            return workspace

    def _add_tables(self, workspace: Workspace, names: set[str]) -> None:
        """Add recorded tables to the workspace, from memory."""
        for name in RECORDED:
            if name in names:
                workspace.add(name, self._recorded(name))
                self._materialised.add(name)
        if OTHERS_TABLE in names:
            workspace.add(OTHERS_TABLE, self._others())
            self._materialised.add(OTHERS_TABLE)

    def _add_views(
        self, workspace: Workspace, names: set[str], stored: set[str], *, texts: bool
    ) -> None:
        """Add views of the Parquet to the workspace."""
        views = self._views
        if views is None:
            return
        if KEYS_TABLE not in self._with_texts:
            workspace.view(KEYS_TABLE, views.keys())
            self._with_texts[KEYS_TABLE] = True
        for name in sorted(names):
            if name in RECORDED and self._with_texts.get(name) != texts:
                if name == "processes":
                    register(workspace.connection, name, self._recorded(name))
                else:
                    workspace.view(name, views.recorded(name, texts=texts))
                self._with_texts[name] = texts
            elif name in stored and name not in self._with_texts:
                workspace.view(name, views.derived(name))
                self._with_texts[name] = True
            elif name == OTHERS_TABLE and name not in self._with_texts:
                workspace.view(name, views.others())
                self._with_texts[name] = True

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
        """Return the number of rows of a recorded table by process, of the tasks of all clients."""
        with self._lock:
            if self._views is not None and name != "processes":
                rows = f"select process from {name}"  # noqa: S608  a table
                if name == TRANSITIONS and self._of_one_client:
                    rows += f" union all select process from {OTHERS_TABLE}"  # noqa: S608  a table
                counts = self.rows(f"select process, count(*) as n from ({rows}) group by process")  # noqa: S608
                return {row["process"]: row["n"] for row in counts}
            found = pc.value_counts(self.record.tables.columns(name, ["process"])["process"])
        return {row["values"]: row["counts"] for row in found.to_pylist()}

    def arrow(self, query: str, *parameters: Any) -> pa.Table:
        """Return the rows of a trusted query as a table of columns; see `rows`."""
        with self._lock:
            return self._fetch(query, *parameters)

    def batches(
        self, query: str, *parameters: Any, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a trusted query in parts, which are not all in memory; see `rows`.

        The run answers no other query until the last part was read.

        Parameters
        ----------
        query : str
            The query.
        *parameters
            Values of its parameters.
        batch_rows : int, optional
            Most rows of a part: fewer where rows have long texts.
        """
        with self._lock:
            found = self._batches(query, parameters, batch_rows)
            try:
                first = next(found, None)
            except (duckdb.Error, *READ_ERRORS):
                if self._views is None:
                    raise
                self._read_into_memory()
                found = self._batches(query, parameters, batch_rows)
                first = next(found, None)
            if first is not None:
                yield first
                yield from found

    def _batches(
        self, query: str, parameters: tuple[Any, ...], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        workspace = self._workspace_for(query)
        yield from workspace.batches(query, list(parameters), batch_rows)

    def n_rows(self, name: str) -> int:
        """Return the number of rows of a table, without reading them where it is finalised."""
        if name in DERIVED and self._is_stored(name):
            return int(self.rows(f"select count(*) as n from {name}")[0]["n"])  # noqa: S608  a table
        return len(self[name])

    def _fetch(self, query: str, *parameters: Any) -> pa.Table:
        try:
            return self._workspace_for(query).fetch(query, list(parameters))
        except InterruptedQueryError:
            raise
        except (StrataError, duckdb.Error, *READ_ERRORS):
            if self._in_memory or self._views is None:
                raise
        self._read_into_memory()
        return self._workspace_for(query).fetch(query, list(parameters))

    def _read_into_memory(self) -> None:
        """Read tables into memory from now on, as damage to a file then costs only its rows."""
        self._in_memory = True
        self._close_files()
        self._record = None  # it may read from a snapshot
        self._discard_tables()

    def _close_files(self, *, keep_growth: bool = False) -> None:
        """Close the databases, and the files that they read."""
        growth = None if self._growth is None else self._growth.views
        own: list[Workspace | ParquetViews | duckdb.DuckDBPyConnection | None] = [self._sql]
        if growth is None or self._workspace is not growth.workspace:
            own.append(self._workspace)
        if growth is None or self._parquet is not growth:
            own.append(self._parquet)
        if growth is not None and not keep_growth:
            own.append(growth)
            self._growth = None
        for each in own:
            if each is not None:
                each.close()
        self._workspace = self._sql = self._parquet = None
        self._key_ids.clear()

    def _open_sql(self, query: str) -> duckdb.DuckDBPyConnection:
        """Return the connection for users' queries, with the tables that a query names.

        It has all tables if the query names none or may be about tables. Times have
        microseconds, as DuckDB has few functions for nanoseconds.
        """
        with self._lock:
            all_words = words(query)
            named = all_words if all_words & _TABLE_AS_TEXT else query_tables(query)
            named &= TABLES.keys()
            self._improve(set(named))
            if not named or all_words & _ABOUT_TABLES:
                named = frozenset(TABLES)
            in_files = self._in_files(named - self._visible)
            connection = self._sql
            if connection is None or in_files:
                named |= self._visible
                connection = self._connect_sql(self._in_files(named))
            for name in sorted(named - self._visible):
                interruptible(connection, partial(_add_view, connection, name, self._table(name)))
                self._visible.add(name)
            return connection

    def _in_files(self, names: Collection[str]) -> set[str]:
        """Return which of some tables users' queries read from Parquet."""
        if self._views is None:
            return set()
        in_files = RECORDED.keys() - {"processes"}
        return {name for name in names if name in in_files or self._is_stored(name)}

    def _connect_sql(self, names: Collection[str]) -> duckdb.DuckDBPyConnection:
        """Make the connection for users' queries, with views of some tables in Parquet."""
        queries = {}
        files: list[str] = []
        views = self._views
        if names and views is not None:
            views.prepare(names)
            queries = {n: views.users(n, stored=n in DERIVED) for n in sorted(names)}
            files = views.opened()
        made = connect(self.sql_memory_limit, files=files)
        if views is not None and names:
            for name, rows in views.in_memory([*queries.values(), views.keys()]).items():
                register(made, name, rows)
            execute(made, f"create temp view {KEYS_TABLE} as {views.keys()}")
        for name, query in queries.items():
            execute(made, f'create temp view "{name}" as {query}')
        execute(made, "set lock_configuration = true")
        if self._sql is not None:
            self._sql.close()
        self._sql = made  # only now, as Ctrl-C may end any line
        self._visible = set(queries)
        return made

    def interrupt(self) -> None:
        """Interrupt queries of other threads: they raise InterruptedQueryError."""
        internal = None if self._workspace is None else self._workspace.connection
        for connection in (internal, self._sql):
            if connection is not None:
                connection.interrupt()
        if self._parquet is not None:
            self._parquet.interrupt()

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
            try:
                found = self._answer(query, limit)
            except (UnreadableError, *READ_ERRORS):
                if self._views is None:
                    raise
                self._read_into_memory()
                found = self._answer(query, limit)
        return self.table_class("query", lambda: found)

    def _answer(self, query: str, limit: int | None) -> pa.Table:
        connection = self._open_sql(query)
        with self.sql_limits():
            return fetch_read_only(connection, query, limit)

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
        state = self._state_as_read()
        if state == "cut" and self._mirror is None and self.refresh():
            # The process had written more rows since the record was read, perhaps its last ones.
            state = self._state_as_read()
        return state

    def _state_as_read(self) -> str:
        """Return the state by the rows that were read, and by the processes that are alive now."""
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
                found = clock_offsets(tables["processes"], tables["clock_offsets"])
                self._offsets = found if self._growth is None else self._growth.offsets_ns(found)
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
        if self._views is None:
            found = self.rows(
                "select distinct key_type from (select key, key_type from tasks union all "
                "select key, key_type from graph_tasks union all "
                "select key, key_type from worker_transitions) where key = ? order by 1",
                text,
            )
            return [row["key_type"] for row in found]
        found = self.rows(
            "select _key, key_type from _keys where key = ? order by key_type nulls last", text
        )
        return [row["key_type"] for row in found if self._has_rows(row["_key"])]

    def key_id(self, text: str, kind: str | None) -> int | None:
        """Return the id of a key in the Parquet; None if the run is read into memory.

        Parameters
        ----------
        text : str
            Text of the key.
        kind : str or None
            Name of its type.
        """
        with self._lock:
            if self._views is None:
                return None
            if (text, kind) not in self._key_ids:
                query = "select _key from _keys where key = ? and key_type is not distinct from ?"
                found = self.rows(query, text, kind)
                self._key_ids[text, kind] = found[0]["_key"] if found else None
            return self._key_ids[text, kind]

    def _has_rows(self, key: int) -> bool:
        """Return whether a key is that of a task, and not only one that others name."""
        tables = ("tasks", "graph_tasks", "worker_transitions")
        return any(
            self.rows(f"select 1 as n from {name} where _key = ? limit 1", key)  # noqa: S608
            for name in tables
        )

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
    register(connection, f"_{name}", table)
    query = f"select {columns} from _{name}"  # noqa: S608  names from the schema
    connection.execute(f"create or replace temp view {name} as {query}")


def _loads(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text

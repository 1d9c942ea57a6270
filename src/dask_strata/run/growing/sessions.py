"""Computing derived tables of a run that grows: as a whole, or for changed keys only.

A session is a connection to the database of the run, in which each input of a definition has its
own name: all its rows, or those of the changed keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_strata.run.derived import Definition, definitions
from dask_strata.run.duckdb_session import computing, execute, fetch, register
from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.key_prefix import KEY_PREFIX_MACROS
from dask_strata.run.own_tasks import OTHERS_TABLE
from dask_strata.run.query_tables import mentions_keys
from dask_strata.run.stored.views import OWN_KEYS, ParquetViews
from dask_strata.run.workspace import stored_columns
from dask_strata.schema import RECORDED
from dask_strata.store.key_texts import KEYS, has_buckets

if TYPE_CHECKING:
    import duckdb

    from dask_strata.run.growing.views import GrowingViews

#: Definition that numbers its rows: those that were there keep their numbers, new ones follow.
_NUMBERED = "_attempt_numbers"

#: Definitions whose rows are by the key in another column of their input.
_OTHER_COLUMNS = {"_dependents": "dependency_id"}

#: Definitions that need only the rows of their own key, though they are not computed in buckets.
_ALSO_BY_KEY = {OWN_KEYS, _NUMBERED, *_OTHER_COLUMNS}

#: Definitions that have rows in imported runs only, which do not grow, with such an empty table.
IMPORTED = {
    "_fetches": "select null::bigint as number, null::bigint as execution, null::text as source, "
    "null::bigint as start, null::bigint as stop where false"
}

#: So many changed keys that the Parquet has are listed in a query, so that it skips row groups.
_LISTED_KEYS = 1_000

_DIRTY = "_dirty"


def is_by_key(name: str) -> bool:
    """Return whether a row of a derived table needs only the rows of its own key."""
    # The facts of a shuffle, which has no key, may arrive later than the attempts at its barrier.
    if name == "_shuffle_barriers":
        return False
    return bool(definitions()[name].by_key) or name in _ALSO_BY_KEY


def key_column(name: str) -> str:
    """Return the column of the key that the rows of a derived table are computed by."""
    return _OTHER_COLUMNS.get(name, "key_id")


class Session:
    """A connection that computes derived tables from all rows.

    Parameters
    ----------
    views : GrowingViews
        The tables of the run.
    connection : duckdb.DuckDBPyConnection
        A connection of its own to their database.
    """

    def __init__(self, views: GrowingViews, connection: duckdb.DuckDBPyConnection) -> None:
        self.views, self.connection = views, connection
        #: The inputs that are there, and whether these have the texts of keys.
        self._inputs: dict[str, bool] = {}
        register(self.connection, "processes", views.processes)
        for macro in KEY_PREFIX_MACROS:
            execute(connection, macro)

    def replace(self, definition: Definition) -> None:
        """Compute a derived table and replace the rows that were computed before."""
        self._add_inputs(definition)
        made = f"_made_{definition.name}"
        self._make(made, definition.sql)
        columns = stored_columns(self.connection, made)
        execute(
            self.connection,
            f'create or replace table "_over_{definition.name}" as select {columns} from "{made}"',
        )
        execute(self.connection, f'drop table "{made}"')

    def _make(self, name: str, sql: str) -> None:
        with computing():
            execute(self.connection, f'create or replace temp table "{name}" as {sql}')

    def _view(self, name: str, query: str) -> None:
        execute(self.connection, f'create or replace temp view "{name}" as {query}')

    def _add_inputs(self, definition: Definition) -> None:
        texts = mentions_keys(definition.sql)
        for name in sorted(definition.depends_on - {"processes"}):
            self._add_whole(name, texts=texts)

    def _add_whole(self, name: str, *, texts: bool) -> None:
        """Add a view of all rows of a table."""
        if self._inputs.get(name) in {True, texts}:
            return
        if name == KEYS_TABLE:
            self._view(name, self.views.keys())
        elif name in IMPORTED:
            self._view(name, IMPORTED[name])
        elif name == OTHERS_TABLE:
            self._add_whole(KEYS_TABLE, texts=True)
            self._view(name, self.views.others())
        elif name in RECORDED:
            if texts:
                self._add_whole(KEYS_TABLE, texts=True)
            self._view(name, self.views.recorded(name, texts=texts))
        else:
            self._view(name, self.views.derived(name))
        self._inputs[name] = texts or name not in RECORDED


class KeySession(Session):
    """A connection that computes derived tables for the keys that changed since a look.

    Parameters
    ----------
    views : GrowingViews
        The tables of the run.
    connection : duckdb.DuckDBPyConnection
        A connection of its own to their database.
    since : int
        The look.
    column : str
        Column with the key of a row.
    """

    def __init__(
        self,
        views: GrowingViews,
        connection: duckdb.DuckDBPyConnection,
        since: int,
        column: str,
    ) -> None:
        super().__init__(views, connection)
        changes = views.changes
        query = f"select key_id from {changes.CHANGED} where look > {since}"
        self._make(_DIRTY, query)
        self._slice = _Slice(views, self._old_keys(), column)
        self._make(KEYS_TABLE, self._slice.keys())
        self._inputs[KEYS_TABLE] = True
        #: The tables that have the rows of the changed keys only.
        self._sliced: set[str] = {KEYS_TABLE}

    def _old_keys(self) -> str | None:
        """Return the changed keys that the Parquet has, as SQL; None if there are none."""
        query = f"select key_id from {_DIRTY} where key_id in (from {self.views.changes.REPLACED})"
        ids = fetch(self.connection, query)["key_id"].to_pylist()
        if not ids:
            return None
        return f"({', '.join(map(str, ids))})" if len(ids) <= _LISTED_KEYS else f"(from {_DIRTY})"

    def replace(self, definition: Definition) -> None:
        """Compute a derived table for the changed keys and replace their rows."""
        name, over = definition.name, f'"_over_{definition.name}"'
        self.compute(definition)
        if name == _NUMBERED:
            self._number()
        columns = stored_columns(self.connection, name)
        execute(self.connection, "begin")
        try:
            rows = f'select {columns} from "{name}"'
            execute(self.connection, f"create table if not exists {over} as from ({rows}) limit 0")
            execute(self.connection, f"delete from {over} where key_id in (from {_DIRTY})")
            execute(self.connection, f"insert into {over} by name {rows}")
        except BaseException:
            self.connection.execute("rollback")
            raise
        execute(self.connection, "commit")

    def compute(self, definition: Definition) -> None:
        """Compute a derived table for the changed keys."""
        self._add_inputs(definition)
        self._make(definition.name, definition.sql)
        self._sliced.add(definition.name)

    def _add_inputs(self, definition: Definition) -> None:
        texts = mentions_keys(definition.sql)
        by_key = definition.by_key or (definition.depends_on & RECORDED.keys())
        for name in sorted(definition.depends_on - {"processes", KEYS_TABLE}):
            if name in IMPORTED or name not in by_key:
                if name in self._sliced:
                    self._sliced.discard(name)
                    execute(self.connection, f'drop table if exists temp."{name}"')
                self._add_whole(name, texts=texts)
            elif name not in self._sliced:
                self._add_slice(name)

    def _add_slice(self, name: str) -> None:
        """Add a table with the rows of the changed keys."""
        if self._inputs.pop(name, None) is not None:
            execute(self.connection, f'drop view if exists temp."{name}"')
        if name in RECORDED:
            self._make(name, self._slice.recorded(name, texts=True))
        elif not self.views.in_parquet(name) and is_by_key(name):
            self.compute(definitions()[name])
        else:
            keys = f"_key in (from {_DIRTY})"
            self._make(name, f"from ({self.views.derived(name)}) where {keys}")
        self._sliced.add(name)

    def _number(self) -> None:
        """Give new rows of the numbered table the numbers that follow those of the others."""
        old = (
            f"select _row, number from {self.views.old(_NUMBERED)} where key_id in (from {_DIRTY})"
        )
        latest = f"select max(number) as n from {self.views.old(_NUMBERED)}"
        if f"_over_{_NUMBERED}" in self._tables():
            over = f'"_over_{_NUMBERED}"'
            old += f" union all by name select _row, number from {over}"
            latest += f" union all by name select max(number) as n from {over}"
        self._make(
            _NUMBERED,
            f"""
            with known as (from ({old}) where _row in (select _row from {_NUMBERED}))
            select m._row, m._key, coalesce(k.number, l.n + row_number() over (
                       partition by k.number is null order by m.number)) as number
            from {_NUMBERED} m
            left join (select _row, max(number) as number from known group by 1) k using (_row)
            cross join (select coalesce(max(n), 0) as n from ({latest})) l
            """,
        )

    def _tables(self) -> set[str]:
        rows = fetch(self.connection, "select table_name from duckdb_tables()").to_pylist()
        return {row["table_name"] for row in rows}


class _Slice(ParquetViews):
    """The recorded tables with the rows of some keys only.

    Parameters
    ----------
    views : GrowingViews
        The tables with all rows.
    old_keys : str or None
        The keys that the Parquet has, as SQL; None if there are none.
    column : str
        Column with the key of a row.
    """

    def __init__(self, views: GrowingViews, old_keys: str | None, column: str) -> None:
        super().__init__(views.part, views.offsets_ns, only_own=views.only_own)
        self._views, self._old_keys, self._column = views, old_keys, column

    def has_rows(self, name: str) -> bool:
        """Return whether a recorded table has rows."""
        return self._views.has_rows(name)

    def columns(self, name: str) -> set[str]:
        """Return the names of a table's columns."""
        return self._views.columns(name)

    def n_rows(self, name: str) -> int:
        """Return the number of rows of the whole table."""
        return self._views.n_rows(name)

    def scan(self, name: str, bucket: int | None = None) -> str:
        """Return what queries read the rows of these keys from."""
        if name != KEYS and not (name in RECORDED and has_buckets(RECORDED[name])):
            return self._views.scan(name, bucket)
        column = "key_id" if name == KEYS else self._column
        parts = []
        if self._old_keys is not None and (name == KEYS or self._views.in_parquet(name)):
            parts.append(f"from {self._views.old(name)} where {column} in {self._old_keys}")
        if name == KEYS or self._views.has_new_rows(name):
            parts.append(f'from "_new_{name}" where {column} in (from {_DIRTY})')
        if not parts:
            parts.append(f"from {self._views.scan(name)} limit 0")
        return f"({' union all by name '.join(parts)})"

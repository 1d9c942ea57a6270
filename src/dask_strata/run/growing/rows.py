"""Rows that a run gained since it was finalised, with ids of keys, in a DuckDB database.

They have the columns of the finalised Parquet, so that one query reads both. Keys that the
Parquet does not have get the ids that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.run.duckdb_session import execute, fetch
from dask_strata.schema import RECORDED
from dask_strata.store.finalise.keys import DistinctKeys
from dask_strata.store.finalise.spool import spooled_schema
from dask_strata.store.key_texts import KEYS, ROW, has_buckets, id_name, key_columns

if TYPE_CHECKING:
    import duckdb

_Ints = npt.NDArray[np.int64]

#: Name of a table's new rows.
NEW = "_new_"


class NewRows:
    """The new rows of a run, and the ids of their keys.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The database that gets the tables ``_new_…``.
    n_keys : int
        Number of keys in the Parquet.
    old_keys : callable
        Returns the query for the ids, texts and types of these keys.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, n_keys: int, old_keys: Callable[[], str]
    ) -> None:
        self._connection, self._n_old, self._old_keys = connection, n_keys, old_keys
        #: Ids of the keys in new rows.
        self._ids: dict[tuple[str, str | None], int] = {}
        self._n_keys = n_keys
        #: Number of new rows of each table.
        self.n: dict[str, int] = {}
        execute(connection, f"create table {NEW}{KEYS} (key_id int, key text, key_type text)")

    @property
    def n_keys(self) -> int:
        """Number of keys, those in the Parquet included."""
        return self._n_keys

    def add(self, name: str, rows: pa.Table, n_before: int) -> _Ints:
        """Add rows of a recorded table; return the ids of all keys that they name.

        Parameters
        ----------
        name : str
            Name of the table.
        rows : pyarrow.Table
            The rows, as `store.arrow.Rows` has them.
        n_before : int
            Number of the table's rows in the Parquet.
        """
        first = n_before + self.n.get(name, 0)
        numbers = pa.array(np.arange(first, first + len(rows), dtype=np.int64))
        distinct = {key: DistinctKeys(rows, key) for key in key_columns(RECORDED[name])}
        ids = self._ids_of(distinct)
        columns: dict[str, pa.Array] = {}
        for field in spooled_schema(name):
            if field.name in ids:
                found, index = ids[field.name], distinct[field.name.removesuffix("_id")].index
                values = np.append(found, -1).astype(np.int32)[index]
                columns[field.name] = pa.array(values, mask=index < 0)
            elif field.name != ROW:
                columns[field.name] = rows[field.name].cast(field.type)
        columns[ROW if has_buckets(RECORDED[name]) else "file_row_number"] = numbers
        self._insert(f"{NEW}{name}", pa.table(columns))
        self.n[name] = self.n.get(name, 0) + len(rows)
        return np.unique(np.concatenate([np.empty(0, np.int64), *ids.values()]))

    def keys_of(self, name: str, processes: Collection[str]) -> _Ints:
        """Return the ids of the keys in new rows of some processes."""
        if not has_buckets(RECORDED[name]):
            return np.empty(0, np.int64)
        self._connection.register("_processes", pa.table({"process": sorted(processes)}))
        found = fetch(
            self._connection,
            f'select distinct key_id from "{NEW}{name}" semi join _processes using (process) '
            "where key_id is not null",
        )
        self._connection.unregister("_processes")
        return np.asarray(found["key_id"].to_numpy(), np.int64)

    def _insert(self, table: str, rows: pa.Table) -> None:
        self._connection.register("_added", rows)
        execute(self._connection, f'create table if not exists "{table}" as from _added limit 0')
        execute(self._connection, f'insert into "{table}" by name from _added')
        self._connection.unregister("_added")

    def _ids_of(self, distinct: dict[str, DistinctKeys]) -> dict[str, _Ints]:
        """Return the ids of distinct keys, by the column with the ids."""
        pairs = {
            id_name(column): list(zip(keys.texts.to_pylist(), keys.types.to_pylist(), strict=True))
            for column, keys in distinct.items()
        }
        self._look_up({pair for some in pairs.values() for pair in some} - self._ids.keys())
        return {
            column: np.fromiter((self._ids[pair] for pair in some), np.int64, len(some))
            for column, some in pairs.items()
        }

    def _look_up(self, unknown: set[tuple[str, str | None]]) -> None:
        """Find the ids of keys in the Parquet; the others get ids that follow."""
        if not unknown:
            return
        found = sorted(unknown, key=lambda pair: (pair[0], pair[1] or ""))
        keys = pa.table(
            {
                "key": pa.array([text for text, _ in found], pa.string()),
                "key_type": pa.array([kind for _, kind in found], pa.string()),
            }
        )
        self._connection.register("_wanted", keys)
        old = fetch(
            self._connection,
            f"select o._key, o.key, o.key_type from ({self._old_keys()}) o join _wanted w "
            "on o.key = w.key and o.key_type is not distinct from w.key_type",
        ).to_pylist()
        self._connection.unregister("_wanted")
        for row in old:
            self._ids[row["key"], row["key_type"]] = row["_key"]
        new = [pair for pair in found if pair not in self._ids]
        first = self._n_keys
        self._ids.update((pair, first + i) for i, pair in enumerate(new))
        self._n_keys += len(new)
        ids = pa.array(np.arange(first, self._n_keys, dtype=np.int32))
        texts, kinds = ([pair[i] for pair in new] for i in (0, 1))
        columns = {
            "key_id": ids,
            "key": pa.array(texts, pa.string()),
            "key_type": pa.array(kinds, pa.string()),
        }
        self._insert(f"{NEW}{KEYS}", pa.table(columns))

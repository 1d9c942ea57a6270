"""Buffer the coupler's transfers on disk: duplicates can be found only among all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.importers.mofka.cells import ARROW
from dask_strata.importers.mofka.columns import FIELDS
from dask_strata.store.interruptible import hide_progress, interruptible

_MEMORY_LIMIT = "200MB"

#: Rows that are read back together.
_BATCH = 1 << 15

_SCHEMA = pa.schema(
    [
        *((f.name, ARROW[f.kind]) for f in FIELDS["worker_transfer"]),
        ("file", ARROW["text"]),
        ("line", pa.int64()),
        ("cut", pa.bool_()),
        ("number", pa.int64()),
    ]
)


def bounded_duckdb(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection that uses at most 200 MB of memory, and then files in a folder."""
    connection = duckdb.connect(
        config={"memory_limit": _MEMORY_LIMIT, "temp_directory": str(folder / "tmp")}
    )
    interruptible(connection, lambda: connection.execute("set timezone = 'UTC'"))
    hide_progress(connection)
    return connection


class TransferBuffer:
    """A temporary Parquet file with all rows of the coupler's transfers.

    Parameters
    ----------
    folder : Path
        Folder for the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "transfers.parquet"
        self._rows = 0

    def fill(self, tables: Iterable[pa.Table]) -> None:
        """Write all rows to the file. Raises OSError."""
        with pq.ParquetWriter(self._path, _SCHEMA, compression="lz4") as writer:
            for rows in tables:
                numbers = pa.array(range(self._rows, self._rows + len(rows)), pa.int64())
                self._rows += len(rows)
                columns = [
                    rows[f.name] if f.name in rows.column_names else pa.nulls(len(rows), f.type)
                    for f in _SCHEMA
                    if f.name != "number"
                ]
                writer.write_table(pa.table([*columns, numbers], schema=_SCHEMA))

    def addresses(self) -> dict[str, str]:
        """Return the addresses of workers whose rows contain another name.

        Both ends report a transfer: a row contains the name of its own worker in ``called_from``
        and the address of its peer in ``who``. The rows of both ends, matched by keys and time,
        therefore pair names with addresses; the pairing of the majority counts.
        """
        query = """
            with ends as (
                select called_from, who, type, hash(keys) as keys, epoch_ns(start) as t
                from read_parquet($path)
            ), matched as (
                select i.called_from as receiver, i.who as source,
                       o.called_from as sender, o.who as destination
                from ends i join ends o on o.keys = i.keys and abs(i.t - o.t) < 60000000000
                where i.type = 'incoming_transfer' and o.type = 'outgoing_transfer'
            ), votes as (
                select name, address, count(*) as n from (
                    select receiver as name, destination as address from matched
                    union all select sender, source from matched
                ) where address is not null group by name, address
            )
            select name, address from votes
            qualify n * 2 > sum(n) over (partition by name)
        """
        with bounded_duckdb(self._folder) as connection:
            [(named,)] = self._fetch(
                connection,
                "select count(*) from read_parquet($path) where not contains(called_from, '://')",
            )
            if not named:
                return {}
            found = self._fetch(connection, query)
        return {name: address for name, address in found if name and "://" not in name}

    def _fetch(self, connection: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
        parameters = {"path": str(self._path)}
        return interruptible(connection, lambda: connection.execute(query, parameters).fetchall())

    def numbered(self) -> Iterator[pa.Table]:
        """Yield all rows in order, with `first`: number of the first row of equal content.

        Equal content means equal columns except ``time``, which differs when a row is resent.
        """
        # Cells of keys can be megabytes long, so their 64-bit hash is compared.
        compared = ", ".join(
            "hash(keys)" if f.name == "keys" else f'"{f.name}"'
            for f in FIELDS["worker_transfer"]
            if f.name != "time"
        )
        query = (
            f"select min(number) over (partition by {compared}) as first "  # noqa: S608  the names are constants of dask-strata
            "from read_parquet($path) order by number"
        )
        with bounded_duckdb(self._folder) as connection:
            parameters = {"path": str(self._path)}
            found = interruptible(
                connection, lambda: connection.sql(query, params=parameters).to_arrow_table()
            )
        firsts = found["first"]
        at = 0
        with pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(_BATCH):
                rows = pa.Table.from_batches([batch])
                yield rows.append_column("first", firsts.slice(at, len(rows)))
                at += len(rows)

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink()

"""Transfers of the coupler's file, which must all be known before the resent ones can be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.importers.mofka.cells import ARROW
from dask_strata.importers.mofka.columns import FIELDS

_MEMORY_LIMIT = "200MB"
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
    """Return a connection that takes little memory, and room in a folder beyond that."""
    connection = duckdb.connect(
        config={"memory_limit": _MEMORY_LIMIT, "temp_directory": str(folder / "tmp")}
    )
    connection.execute("set timezone = 'UTC'")
    return connection


class Waiting:
    """Transfers that were read, in a file of their own until all are known.

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
        """Take all transfers. Raises OSError."""
        with pq.ParquetWriter(self._path, _SCHEMA, compression="lz4") as writer:
            for rows in tables:
                numbers = pa.array(range(self._rows, self._rows + len(rows)), pa.int64())
                self._rows += len(rows)
                complete = [
                    rows[f.name] if f.name in rows.column_names else pa.nulls(len(rows), f.type)
                    for f in _SCHEMA
                    if f.name != "number"
                ]
                writer.write_table(pa.table([*complete, numbers], schema=_SCHEMA))

    def addresses(self) -> dict[str, str]:
        """Return the addresses of workers that told of transfers by another name.

        What one end tells by its name, the other end tells of its address.
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
            named = connection.execute(
                "select count(*) from read_parquet($path) where not contains(called_from, '://')",
                {"path": str(self._path)},
            ).fetchone()
            if not named or not named[0]:
                return {}
            found = connection.execute(query, {"path": str(self._path)}).fetchall()
        return {name: address for name, address in found if name and "://" not in name}

    def told_apart(self) -> Iterator[pa.Table]:
        """Yield all in their order, with `first`: number of the first that is the same."""
        # Cells of keys may be megabytes: beside equal times and sizes, 64 bits of them decide.
        same = ", ".join(
            "hash(keys)" if f.name == "keys" else f'"{f.name}"'
            for f in FIELDS["worker_transfer"]
            if f.name != "time"
        )
        query = (
            f"select min(number) over (partition by {same}) as first "  # noqa: S608  names are ours
            "from read_parquet($path) order by number"
        )
        with bounded_duckdb(self._folder) as connection:
            found = connection.sql(query, params={"path": str(self._path)}).to_arrow_table()
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

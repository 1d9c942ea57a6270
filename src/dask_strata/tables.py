"""Tables in memory, and what Arrow needs to be told to hand them over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dask_strata.schema import TABLES


class TableView:
    """One table of a run.

    Parameters
    ----------
    name : str
        Its name in the schema.
    arrow : pyarrow.Table
        Its rows.
    """

    def __init__(self, name: str, arrow: pa.Table) -> None:
        self.name = name
        self._arrow = arrow

    def __len__(self) -> int:
        return len(self._arrow)

    def __repr__(self) -> str:
        row = TABLES[self.name].row if self.name in TABLES else "row"
        return f"<{self.name}: {len(self):,} rows, one per {row}>"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema; each field's metadata has its meaning and unit."""
        return self._arrow.schema

    def to_arrow(self) -> pa.Table:
        """Return the rows as a `pyarrow.Table`."""
        return self._arrow

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; needs pandas."""
        return self._arrow.to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a `polars.DataFrame`; needs polars."""
        import polars as pl

        return pl.from_arrow(self._arrow)

    def to_dask(self, npartitions: int = 1) -> Any:
        """Return the rows as a Dask DataFrame; needs ``dask[dataframe]``."""
        import dask.dataframe

        return dask.dataframe.from_pandas(self.to_pandas(), npartitions=npartitions)


def as_type(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; text becomes a dictionary of text."""
    if column.type == target:
        return column
    if pa.types.is_dictionary(target):
        return column.cast(target.value_type).dictionary_encode().cast(target)
    return column.cast(target)


def microseconds(table: pa.Table) -> pa.Table:
    """Return a table with times that Python has objects for: nanoseconds need pandas."""
    schema = pa.schema([f.with_type(_with_microseconds(f.type)) for f in table.schema])
    return table if schema == table.schema else table.cast(schema, safe=False)


def _with_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_with_microseconds(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_with_microseconds(f.type)) for f in kind])
    return kind

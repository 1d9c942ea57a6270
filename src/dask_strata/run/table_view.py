"""Tables of a run in memory, with conversions between types of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.schema import TABLES


@contextmanager
def needs(package: str) -> Iterator[None]:
    """Let the import of a package that is missing end with a clear error.

    Parameters
    ----------
    package : str
        Its name, as pip installs it.

    Raises
    ------
    StrataError
        The package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise StrataError(
            f"This conversion needs {package}, which is not installed: {error}.",
            hint=f"pip install '{package}', or use .to_arrow()",
        ) from error


class TableView:
    """One table of a run.

    Parameters
    ----------
    name : str
        Name of the table in the schema.
    load : callable
        Returns the rows, a `pyarrow.Table`; called once, on first access.
    rows : int, optional
        Number of rows, if it is known without loading them.
    partitions : callable, optional
        Returns a Dask DataFrame of at most so many partitions that reads them by itself; None if
        the rows have to be loaded first.

    Examples
    --------
    >>> TableView("query", lambda: pa.table({"n": [1, 2]}))
    <query: 2 rows of n>
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], pa.Table],
        rows: int | None = None,
        partitions: Callable[[int | None], Any] | None = None,
    ) -> None:
        self.name = name
        self._load = load
        self._rows = rows
        self._partitions = partitions

    @cached_property
    def _arrow(self) -> pa.Table:
        return self._load()

    def __len__(self) -> int:
        return len(self._arrow) if self._rows is None else self._rows

    def __repr__(self) -> str:
        if self.name not in TABLES:
            return f"<{self.name}: {len(self):,} rows of {', '.join(self.schema.names)}>"
        return f"<{self.name}: {len(self):,} rows, one per {TABLES[self.name].row}>"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; the metadata of each field contains its meaning and unit."""
        return self._arrow.schema

    def to_arrow(self) -> pa.Table:
        """Return the rows as a `pyarrow.Table`."""
        return self._arrow

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`.

        Raises
        ------
        StrataError
            pandas is not installed.
        """
        with needs("pandas"):
            return self._arrow.to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a `polars.DataFrame`.

        Raises
        ------
        StrataError
            Polars is not installed.
        """
        with needs("polars"):
            import polars as pl

        return pl.from_arrow(self._arrow)

    def to_dask(self, npartitions: int | None = None) -> Any:
        """Return the rows as a Dask DataFrame, with the columns and types of `to_pandas`.

        Parameters
        ----------
        npartitions : int, optional
            Largest number of partitions. By default a finalised run has one for each Parquet file,
            and several of a large file; other runs have one.

        Raises
        ------
        StrataError
            ``dask[dataframe]`` is not installed.

        Notes
        -----
        Partitions of a finalised run read their rows themselves, where they are computed: there the
        run's folder has to be at the same path. Their rows are in the order of buckets of keys:
        those of one key stay together and in their order, and the whole has another order than
        `to_pandas` if the table has several files. Other runs, and tables that ``align=False`` or
        ``client=`` changes, are loaded here first.
        """
        with needs("dask[dataframe]"):
            import dask.dataframe

        found = None if self._partitions is None else self._partitions(npartitions)
        if found is not None:
            return found
        frame = self.to_pandas()
        with dask.config.set({"dataframe.convert-string": False}):  # lists would become texts, too
            return dask.dataframe.from_pandas(frame, npartitions=npartitions or 1)


def as_type(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; also text as a dictionary of text.

    Examples
    --------
    >>> as_type(pa.chunked_array([["a", "a"]]), pa.dictionary(pa.int32(), pa.string())).type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    if column.type == target:
        return column
    if pa.types.is_dictionary(target):
        return column.cast(target.value_type).dictionary_encode().cast(target)
    return column.cast(target)


def microseconds(table: pa.Table) -> pa.Table:
    """Return a table with times in microseconds: Python's datetime has no nanoseconds.

    Examples
    --------
    >>> microseconds(pa.table({"t": pa.array([1999], pa.timestamp("ns"))}))["t"].type
    TimestampType(timestamp[us])
    """
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

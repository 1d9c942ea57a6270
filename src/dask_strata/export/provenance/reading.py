"""Rows of a run's tables, in batches, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dask_strata.export.exporter import Job
from dask_strata.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

#: Attempts that are sorted at once.
_RANGE = 1 << 18

#: Rows that are Python objects at once.
_ROWS = 1 << 14


class Reading:
    """Reads a run for an export, and reports the rows that were read.

    Parameters
    ----------
    run : Run
        The run.
    job : Job
        Gets the progress.
    """

    def __init__(self, run: Run, job: Job) -> None:
        self.run = run
        self.job = job
        self._done = 0

    def columns(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query as tuples; only a part of them is in memory."""
        for part in self._parts(query):
            yield from zip(*(column.to_pylist() for column in part.columns), strict=True)

    def mappings(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query by name of column; only a part of them is in memory."""
        for part in self._parts(query):
            yield from part.to_pylist()

    def attempts(self, columns: str, condition: str = "true") -> Iterator[tuple[Any, ...]]:
        """Yield attempts in their order, as tuples.

        Each range of attempts is sorted on its own, as their keys may be long.

        Parameters
        ----------
        columns : str
            Expressions in SQL.
        condition : str, optional
            A condition in SQL.
        """
        last = self.run.rows("select max(attempt) as n from attempts")[0]["n"] or 0
        for first in range(0, last + 1, _RANGE):
            bounds = f"attempt >= {first} and attempt < {first + _RANGE}"
            yield from self.columns(
                f"select {columns} from attempts where {bounds} and {condition} order by attempt"  # noqa: S608  expressions of this package
            )

    def _parts(self, query: str) -> Iterator[pa.RecordBatch]:
        for batch in self.run.batches(query):
            for first in range(0, batch.num_rows, _ROWS):
                yield batch.slice(first, _ROWS)
            self._done += batch.num_rows
            self.job.progress(self._done)

"""Rows of a run's tables, in batches, with progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.export.exporter import Job
from dask_strata.run import Run


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
        """Yield the rows of a query as tuples; only a batch of them is in memory."""
        for batch in self.run.batches(query):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
            self._done += batch.num_rows
            self.job.progress(self._done)

    def mappings(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query by name of column; only a batch of them is in memory."""
        for batch in self.run.batches(query):
            yield from batch.to_pylist()
            self._done += batch.num_rows
            self.job.progress(self._done)

"""Runs: their tables, tasks and SQL; the input of all analyses."""

from dask_strata.run.run import Run, open_run
from dask_strata.run.table_view import TableView
from dask_strata.run.task import Task

__all__ = ["Run", "TableView", "Task", "open_run"]

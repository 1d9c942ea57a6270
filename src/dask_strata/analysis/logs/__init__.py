"""Logs: the entries of a run that answer a question."""

from dask_strata.analysis.logs.logs import (
    Entries,
    Wanted,
    entries_of,
    lost_entries,
    problems,
    select_logs,
    wanted,
)

__all__ = ["Entries", "Wanted", "entries_of", "lost_entries", "problems", "select_logs", "wanted"]

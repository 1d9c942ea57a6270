"""Batch jobs, and workers that never arrived."""

from dask_strata.analysis.jobs.absent_workers import AbsentWorkers, absent_workers
from dask_strata.analysis.jobs.jobs import Jobs, summarize_jobs

__all__ = ["AbsentWorkers", "Jobs", "absent_workers", "summarize_jobs"]

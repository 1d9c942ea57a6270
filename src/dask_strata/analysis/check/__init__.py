"""Completeness of the record: the findings of ``dask-strata check``."""

from dask_strata.analysis.check.check import MISSING, WHOLE, WHOLE_FOR_TASKS, Check, check
from dask_strata.analysis.check.finding import Finding

__all__ = ["MISSING", "WHOLE", "WHOLE_FOR_TASKS", "Check", "Finding", "check"]

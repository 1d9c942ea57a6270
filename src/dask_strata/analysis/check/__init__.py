"""Completeness of the record: the findings of ``dask-strata check``."""

from dask_strata.analysis.check.check import Check, check
from dask_strata.analysis.check.finding import Finding

__all__ = ["Check", "Finding", "check"]

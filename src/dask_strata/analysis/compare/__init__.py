"""Comparison of runs."""

from dask_strata.analysis.compare.compare import Comparison, compare

__all__ = ["Comparison", "compare"]

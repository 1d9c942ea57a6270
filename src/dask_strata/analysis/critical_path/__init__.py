"""The critical path: the cause of each second of the makespan."""

from dask_strata.analysis.critical_path.walk import CAUSES, critical_path

__all__ = ["CAUSES", "critical_path"]

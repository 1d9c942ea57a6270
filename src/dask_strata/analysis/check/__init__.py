"""`check`: is the record whole?"""

from dask_strata.analysis.check.check import Check, check
from dask_strata.analysis.check.finding import Finding

__all__ = ["Check", "Finding", "check"]

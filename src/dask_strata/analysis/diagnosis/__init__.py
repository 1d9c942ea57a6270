"""Diagnosis: the causes of a run's time and failures, with what each cost and how to mend it.

Each rule in ``rules`` recognises one cause by its evidence. ``registry`` has their order and the
rules of other packages, ``evidence`` what rules look at, ``claims`` which insight each second of
the makespan counts for.
"""

from dask_strata.analysis.diagnosis.diagnose import diagnose
from dask_strata.analysis.diagnosis.insight import Insight, Interval

__all__ = ["Insight", "Interval", "diagnose"]

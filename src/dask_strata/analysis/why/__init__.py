"""Why a worker ended: its cause, and what ran, was held and was lost at that moment."""

from dask_strata.analysis.why.why import PostMortem, Why, why

__all__ = ["PostMortem", "Why", "why"]

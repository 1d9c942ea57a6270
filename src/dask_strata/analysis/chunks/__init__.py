"""Chunks of user-visible data: which worker processed them, how fast, and their reads."""

from dask_strata.analysis.chunks.chunks import summarize_chunks

__all__ = ["summarize_chunks"]

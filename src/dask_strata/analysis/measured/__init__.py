"""Dask's own groups, limits and decisions: spans, workers' memory, adaptive scaling."""

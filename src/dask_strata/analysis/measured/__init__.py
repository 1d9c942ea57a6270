"""What Dask itself groups, limits and decides: spans, workers' memory, adaptive scaling."""

"""The graph of a run by prefix and group, and the contents of tasks that Dask fused."""

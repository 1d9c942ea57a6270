"""Tables of what Dask itself groups, limits and decides."""

"""Tables of Dask's own groups, decisions and limits."""

"""Bringing a run to its client's machine, over Dask's connections."""

"""Ordinary Dask scripts to record: `dask-strata demo` runs one of them."""

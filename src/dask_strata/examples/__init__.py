"""Workflows to try things on: ordinary Dask scripts that know nothing of dask-strata."""

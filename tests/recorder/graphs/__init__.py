"""Tests of `dask_strata.recorder.graphs`."""

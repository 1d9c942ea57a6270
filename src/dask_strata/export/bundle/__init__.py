"""A run and its page in one file, which dask-strata reads as it reads a run's folder."""

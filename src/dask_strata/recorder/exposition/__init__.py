"""Series ``dask_strata_*`` in the `/metrics` pages of Dask's scheduler and workers."""

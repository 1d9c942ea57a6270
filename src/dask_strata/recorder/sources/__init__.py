"""Sources: each makes rows of one subject, from Dask's logs, messages, threads or libraries."""

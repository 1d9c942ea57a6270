"""Where rows come from: Dask's logs, its messages, task threads and libraries."""

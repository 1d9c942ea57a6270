"""Computing on the user's own Dask cluster: finalising runs that are large for one machine.

The client's side is in `finalise`, its connection in `connect`, and the functions that workers run
are in `bucket`. Dask sends these by name: workers need dask-strata, and see the run's folder.
"""

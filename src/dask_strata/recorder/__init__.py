"""The part of dask-strata that runs on the cluster. It never raises into Dask or blocks it.

``session`` attaches recorders to a cluster and detaches them, ``launch`` runs a script with all
its clusters recorded, and ``plugins`` holds the plugins that Dask sends to workers and nannies.
``roles`` has a recorder for each kind of process. It combines an engine (``pipeline``) with sources
of rows (``sources``, ``inputs``, ``profiling``) and static facts (``environment``).
"""

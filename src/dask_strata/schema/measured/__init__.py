"""Tables of what Dask reports of itself: groups, decisions, limits, logs, interruptions."""

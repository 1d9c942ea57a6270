"""The first module that Dask preloads in a recorded worker's process, before the worker registers.

Its import sends the process's output through the pipes of its nanny: what a worker prints while it
starts tells why it cannot start.
"""

from dask_strata.recorder.logs.redirect import redirect_from_start

redirect_from_start()

"""``python -m dask_strata.capture``: the same as ``dask-capture``."""

from dask_strata.capture.command import main

if __name__ == "__main__":
    main()

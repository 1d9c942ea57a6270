"""``python -m dask_strata.capture``: the same as ``dask-capture``."""

from dask_strata.cli.capture_ import main

if __name__ == "__main__":
    main()

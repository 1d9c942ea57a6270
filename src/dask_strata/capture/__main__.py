"""Run ``dask-capture`` by ``python -m dask_strata.capture``."""

from dask_strata.capture.command import main

if __name__ == "__main__":
    main()

"""The command ``python -m dask_strata``, the same as ``dask-strata``."""

from dask_strata.cli import main

if __name__ == "__main__":
    main()

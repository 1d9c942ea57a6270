"""The image-processing example: find and label bright objects, on any kind of Dask cluster.

    python examples/image_processing.py --mode LocalCluster --report-dir reports
    python examples/image_processing.py --mode distributed --scheduler-file scheduler.json
    mpirun -n 4 python examples/image_processing.py --mode MPI

The code is part of the package; `dask-strata demo` runs it.
"""

from dask_strata.examples.image_processing import main

if __name__ == "__main__":
    raise SystemExit(main())

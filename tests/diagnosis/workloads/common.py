"""Flags, fixed amounts of work and the last line of output, shared by the workloads.

Each workload is a plain Dask script with one planted sickness: `<area>/<cause>_<n>.py`. Run it
with this folder on the path:

    PYTHONPATH=tests/diagnosis/workloads python tests/diagnosis/workloads/<area>/<cause>_1.py

`--mended` mends the planted sickness, and nothing else: the difference in `seconds` is its cost.
`--mended-also` mends the second, smaller sickness where there is one.
"""

import argparse
import importlib
import json
import time


def options():
    """Return the flags `mended` and `mended_also` of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true", help="without the planted sickness")
    parser.add_argument("--mended-also", action="store_true", help="without the second one")
    return parser.parse_args()


def ready(client, *modules):
    """Wait for the workers, and import `modules` and NumPy there, so that no task has to."""
    for address in client.scheduler_info(n_workers=-1)["workers"]:
        client.run(import_all, ["numpy", "common", *modules], workers=[address])


def import_all(modules):
    """Import the modules of these names."""
    for module in modules:
        importlib.import_module(module)


def report(cause, seconds, planted=None, also=()):
    """Print the truth as the last line of standard output.

    Parameters
    ----------
    cause
        The id of the planted cause.
    seconds
        Wall seconds from the first submission until the results are there.
    planted
        Seconds that the sickness costs, measured by the script itself; None if only the difference
        to the mended script shows them.
    also
        The ids of the second, smaller sickness.
    """
    truth = {
        "cause": cause,
        "seconds": round(seconds, 4),
        "planted": None if planted is None else round(planted, 4),
        "also": list(also),
    }
    print(json.dumps(truth), flush=True)  # noqa: T201


def burn(milliseconds):
    """Compute in pure Python, holding the GIL: a fixed amount of work, about so many ms."""
    total = 0
    for i in range(int(milliseconds * 36_000)):
        total += i & 7
    return total


def crunch(milliseconds):
    """Compute in NumPy, without the GIL: a fixed amount of work, about so many ms."""
    import numpy as np

    values = np.linspace(0.1, 1.0, 25_000)
    for _ in range(int(milliseconds * 5)):
        np.sqrt(np.sin(values, out=values), out=values)
    return float(values.sum())


def work(milliseconds):
    """Wait, as for a remote service, and compute during a quarter of the time.

    A busy machine changes the duration little, so that two runs can be compared.
    """
    time.sleep(milliseconds * 0.75e-3)
    return crunch(milliseconds * 0.25)


def read_records(path, size):
    """Return the number of bytes of a file that is read in pieces; of 16 bytes without a buffer."""
    total = 0
    with open(path, "rb", buffering=0 if size == 16 else -1) as file:  # noqa: PTH123
        while record := file.read(size):
            total += len(record)
    return total


def now():
    """Return the time of the clock that all durations here are measured with."""
    return time.perf_counter()

"""A notebook whose author thinks for seconds between its computations, in a real kernel."""

import json
import os
import sys
import tempfile

import nbformat
from common import options
from jupyter_client import KernelManager
from nbclient import NotebookClient
from truth import report_facts

CELLS = (
    """
import numpy as np
import dask.array as da
from dask.distributed import Client, LocalCluster

from common import now, ready

cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
client = Client(cluster)
ready(client, "dask.array", "numpy.fft")
spent = []
start = now()
""",
    """
begin = now()
frames = da.random.default_rng(3).normal(size=(16, 1_200, 1_024), chunks=(1, 1_200, 1_024))
power = (abs(da.fft.fft2(frames, axes=(1, 2))) ** 2).mean(axis=(1, 2)).compute()
spent.append(now() - begin)
""",
    "import time; time.sleep(2.5)  # the author looks at the numbers",
    """
begin = now()
phases = da.angle(da.fft.fft2(frames, axes=(1, 2))).std(axis=(1, 2)).compute()
spent.append(now() - begin)
""",
    "time.sleep(2)",
    """
begin = now()
norms = np.sqrt(abs(frames)).sum(axis=(1, 2)).compute()
spent.append(now() - begin)
seconds = now() - start
""",
    """
client.close()
cluster.close()
import json
print(json.dumps({"seconds": seconds, "computing": sum(spent)}))
""",
)


def main():
    options()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    with tempfile.TemporaryDirectory() as folder:
        manager = KernelManager(kernel_name="python3")
        manager.kernel_spec.argv[0] = sys.executable
        NotebookClient(
            notebook, km=manager, timeout=120, resources={"metadata": {"path": folder}}
        ).execute(env=dict(os.environ))
    said = json.loads("".join(output.get("text", "") for output in notebook.cells[-1].outputs))
    report_facts(None, said["seconds"], {"computing": round(said["computing"], 3)})


if __name__ == "__main__":
    main()

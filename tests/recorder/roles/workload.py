"""The work of the recorded run that most tests of the roles share, and its task functions."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from distributed import Client, get_worker

from dask_strata import Run
from tests.conftest import rows

#: Value of a secret setting on the client.
SECRET = "hunter2-strata"

#: Environment variables of a job of Slurm, in which the run seems to execute.
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NAME": "cells",
    "SLURM_JOB_PARTITION": "short",
    "SLURM_JOB_NODELIST": "node[01-02]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "4",
    "SLURM_MEM_PER_NODE": "2048",
    "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_END_TIME": "1700003600",
    "SLURM_PROCID": "1",
}


def inc(x: Any) -> Any:
    """Return the next number."""
    return x + 1


def add(x: Any, y: Any) -> Any:
    """Return a sum."""
    return x + y


def nap(seconds: float, *_: Any) -> float:
    """Sleep."""
    time.sleep(seconds)
    return seconds


def length(x: Any) -> int:
    """Return the length of a value."""
    return len(x)


def block(n: int, *_: Any) -> bytes:
    """Return random bytes."""
    return os.urandom(n)


def where_and_when() -> dict[str, Any]:
    """Return the worker, thread, process and times of this execution."""
    start = time.time()
    time.sleep(0.05)
    return {
        "worker": get_worker().address,
        "thread": threading.get_ident(),
        "pid": os.getpid(),
        "start": start,
        "stop": time.time(),
    }


def explode() -> None:
    """Raise an exception."""
    raise ZeroDivisionError("on purpose")


def succeed_the_third_time(folder: str) -> str:
    """Raise an exception in the first two calls with this folder."""
    path = Path(folder) / "tries"
    tries = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(tries))
    if tries < 3:
        raise OSError(f"try {tries}")
    return "third time"


def log_hello() -> None:
    """Log an event of Dask."""
    get_worker().log_event("from-a-worker", {"greeting": "hello"})


def kill_this_process() -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


#: A graph with a shared dependency, as Dask accepts it.
DIAMOND = {
    "diamond-a": (inc, 1),
    "diamond-b": (inc, "diamond-a"),
    "diamond-c": (add, "diamond-a", "diamond-b"),
}


@dataclass
class RecordedWork:
    """A recorded run, and facts that the cluster itself reported meanwhile."""

    run: Run
    pids: dict[str, int]
    workers: list[str] = field(default_factory=list)
    client: str = ""
    scheduler: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    counted_at_least: int = 0
    counted_at_most: int = 0
    began: float = 0.0
    ended: float = 0.0


def submit_everything(
    client: Client, folder: Path, workers: list[str], facts: dict[str, Any]
) -> None:
    """Submit work in each way that Dask offers; put results into `facts`."""
    a, b = workers
    kept = [client.submit(inc, 1, key="cell-submit")]  # line: submit
    kept += client.map(inc, range(5), key=[f"cell-map-{i}" for i in range(5)])  # line: map
    delayed = [dask.delayed(inc)(i, dask_key_name=f"cell-delayed-{i}") for i in range(3)]
    facts["delayed"] = dask.compute(*delayed)  # line: compute
    array = (da.ones((8, 8), chunks=4) + 1).sum()
    facts["array"] = array.compute()  # line: array
    facts["array layers"] = dict(array.__dask_graph__().dependencies)
    kept.append((da.arange(6, chunks=2) * 2).persist())  # line: persist
    facts["diamond"] = client.get(DIAMOND, ["diamond-c"])  # line: get
    try:
        import dask.dataframe as dd
        import pandas as pd
    except ImportError:
        facts["frame"] = None
    else:
        frame = dd.from_pandas(pd.DataFrame({"x": range(10)}), npartitions=2)
        facts["frame"] = frame.x.sum().compute()  # line: frame
    with dask.annotate(custom={"who": "me", "n": 3}):
        kept.append(client.submit(inc, 10, key="cell-annotated", priority=7))
    kept.append(client.submit(length, b"small", key="cell-small"))
    kept.append(client.submit(length, np.zeros(50_000), key="cell-large"))
    facts["there"] = client.submit(where_and_when, key="cell-there", workers=[a]).result()
    source = client.submit(block, 3_000_000, key="cell-source", workers=[a])
    kept.append(client.submit(length, source, key="cell-moved", workers=[b]))
    distributed.wait(kept)
    bad = client.submit(explode, key="cell-bad")
    worse = client.submit(inc, bad, key="cell-worse")
    facts["bad"] = [type(f.exception()).__name__ for f in (bad, worse)]
    tried = client.submit(succeed_the_third_time, str(folder), key="cell-tried", retries=2)
    facts["tried"] = tried.result()
    client.log_event("from-the-client", {"answer": 42})
    client.submit(log_hello).result()
    other = Client(client.scheduler.address, set_as_default=False)
    facts["other"] = other.id
    other.close()
    busy = client.map(nap, [1.0] * 8, key=[f"cell-nap-{i}" for i in range(8)])
    client.gather(busy)
    facts["pids"] = client.run(os.getpid)


def line_of(mark: str) -> tuple[int, str]:
    """Return the number and the text of the line of this file with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = [(i, x.strip()) for i, x in enumerate(lines, 1) if x.endswith(f"# line: {mark}")]
    assert len(found) == 1
    return found[0]


def query_now(run: Run, query: str) -> list[dict[str, Any]]:
    """Return the answer to a query of the rows recorded so far."""
    run.refresh()
    return rows(run, query)


def nanoseconds(time: Any) -> int:
    """Return a time of a table as nanoseconds since the epoch."""
    return round(time.timestamp() * 1e9)


def processes_of(run: Run, role: str) -> list[str]:
    """Return the process ids of a role."""
    query = f"select process from processes where role = '{role}' order by process"
    return [row["process"] for row in rows(run, query)]

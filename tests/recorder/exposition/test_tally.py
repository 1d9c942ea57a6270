"""Counts of encoded rows: bounds on labels, forms of columns, left-out facts."""

from __future__ import annotations

import subprocess
import sys

from dask.utils import key_split

from dask_strata.config import read_settings
from dask_strata.recorder.exposition.tally import MAX_VALUES, OTHER, Tally
from dask_strata.schema import wire_key
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch
from dask_strata.store.segments.replacing import Replacing


def ended(keys: list[object], finish: str = "memory") -> Batch:
    """Return transitions out of processing."""
    columns = {
        "key": [wire_key(key) for key in keys],
        "start_state": "processing",
        "finish_state": finish,
        "stimulus_id": "task-finished-1",
    }
    return Batch("scheduler_transitions", len(keys), columns)


def test_prefixes_are_those_of_dask() -> None:
    """Also of keys that are tuples, bytes or numbers."""
    keys = ["inc-1", ("x-y-0123456789abcdef0123456789abcdef", 0), ("add-mul", 1), "('add-mul', 1)"]
    keys += [("it's-1", 0), b"raw-1", 17, "", ("x", ("y", 1))]
    for key in keys:
        tally = Tally(key_split)
        tally.add([ended([key])])
        text = str(key) if isinstance(key, (bytes, int)) else key
        assert tally.attempts == {(key_split(text), "memory"): 1}, key


def test_labels_are_bounded() -> None:
    """Of 300 prefixes, 100 have series of their own; no attempt is missing."""
    tally = Tally(key_split)
    for repeat in range(2):
        keys = [
            f"{'abcdefghij'[i // 100]}{chr(97 + i // 10 % 10)}{chr(97 + i % 10)}-1"
            for i in range(300)
        ]
        tally.add([ended(keys, "erred" if repeat else "memory")])
    prefixes = {prefix for prefix, _ in tally.attempts}
    assert len(prefixes) == MAX_VALUES + 1
    assert tally.attempts[OTHER, "memory"] == tally.attempts[OTHER, "erred"] == 200
    assert sum(tally.attempts.values()) == 600
    tally.add([Batch("losses", 300, {"what": [f"kind-{i}" for i in range(300)], "count": 2})])
    assert len(tally.losses) == MAX_VALUES + 1
    assert sum(tally.losses.values()) == 600
    long = Tally(key_split)
    long.add([ended(["x" * 10_000])])
    ((prefix, _),) = long.attempts
    assert len(prefix) == 200


def test_missing_values_count_as_nothing() -> None:
    """Sizes that are null add no bytes; a loss without a count is one."""
    tally = Tally(key_split)
    tally.add(
        [
            Batch("transfer_ends", 2, {"end": "incoming", "total_bytes": Sparse([1], [5])}),
            Batch("spills", 2, {"action": ["spill", "unspill"], "seconds": [0.5, None]}),
            Batch("losses", 2, {"what": "rows", "count": [None, 3]}),
        ]
    )
    assert tally.moved == {"incoming": 5}
    assert tally.spilled == {"spill": 0, "unspill": 0}
    assert tally.seconds() == {"spill": 0.5, "unspill": 0}
    assert tally.losses == {"rows": 4}


def test_paths_in_prefixes_are_replaced_if_the_record_leaves_them_out() -> None:
    """A prefix is a label only in the form that the record contains."""
    settings = read_settings({"leave-out": "paths", "leave-out-secret": "s"})
    tally = Tally(lambda key: key, Replacing(settings).text)
    tally.add([ended(["read /home/me/secret.csv"])])
    ((prefix, _),) = tally.attempts
    assert prefix.startswith("read path-")
    assert "secret" not in prefix


_WITHOUT = """
import sys, urllib.request
sys.modules["prometheus_client"] = None
import dask_strata
from distributed import Client, LocalCluster

with (
    LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
    Client(cluster) as client,
    dask_strata.record(sys.argv[1], client=client) as run,
):
    assert client.submit(sum, [1, 2]).result() == 3
    port = cluster.scheduler.http_server.port
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert "not available" in text, text
assert run.check().ok
"""


def test_without_prometheus_client_the_recording_is_as_usual(tmp_path: object) -> None:
    """Dask's page reports that there are no metrics; nothing is missing from the record."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

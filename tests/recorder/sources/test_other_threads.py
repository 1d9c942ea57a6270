"""Bytes that a library reads in threads of its own, next to the task's own thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster

import dask_strata
from dask_strata import Run
from tests.conftest import rows, wait_until

pytestmark = pytest.mark.long

SIZE = 20_000_000

#: Dask's own monitor reads some files of /proc on the event loop's thread, about 10 kB a second.
NOISE = 300_000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def pool_reads() -> Callable[[Path], int]:
    """A task that reads a file in a pool of threads, as zarr does."""

    def read_in_pool(path: Path) -> int:
        with ThreadPoolExecutor(4) as pool:
            return sum(map(len, pool.map(Path.read_bytes, [path])))

    return read_in_pool


#: Executions of each kind: a few have no values, as the recorder wrote or sampled at their ends.
TIMES = 4


@contextmanager
def quiet(client: Client, runs: Path) -> Iterator[Run]:
    """Record, and begin the block when the recorder has gathered all facts of the worker."""
    with dask_strata.record(runs, client=client) as run:
        wait_until(lambda: facts_gathered(client), what="the end of the facts")
        yield run


def facts_gathered(client: Client) -> bool:
    """Return whether the recorder's background thread in the worker has ended."""

    def names() -> list[str]:
        import threading

        return [t.name for t in threading.enumerate() if t.name.endswith("-facts")]

    return not any(client.run(names).values())


def attempts(run: Run) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in rows(run, "from attempts")}


def known(run: Run, kind: str) -> list[dict[str, Any]]:
    """Return the attempts with keys of this kind for which the bytes of other threads are known."""
    alike = [row for key, row in attempts(run).items() if key.startswith(f"{kind}-")]
    assert len(alike) == TIMES
    found = [row for row in alike if row["other_read_bytes"] is not None]
    assert found
    return found


def test_bytes_of_other_threads_are_known(
    client: Client, runs: Path, tmp_path: Path, pool_reads: Callable[[Path], int], strata: Any
) -> None:

    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))

    def write_in_pool(target: Path) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(target.write_bytes, bytes(SIZE)).result()

    with quiet(client, runs) as run:
        for i in range(TIMES):
            assert client.submit(pool_reads, path, key=f"pool-{i}").result() == SIZE
            client.submit(write_in_pool, tmp_path / "out", key=f"write-{i}").result()
            assert len(client.submit(path.read_bytes, key=f"own-{i}").result()) == SIZE
            client.submit(abs, -1, key=f"nothing-{i}").result()
    pool, write, own, nothing = (known(run, kind) for kind in ("pool", "write", "own", "nothing"))
    for each in pool:
        assert SIZE <= each["other_read_bytes"] <= SIZE + NOISE
        assert each["read_bytes"] < NOISE
    for each in write:
        assert SIZE <= each["other_write_bytes"] <= SIZE + NOISE
    for each in own:
        assert SIZE <= each["read_bytes"] <= SIZE + NOISE
        assert each["other_read_bytes"] <= NOISE
    for each in nothing:
        assert each["other_read_bytes"] <= NOISE
        assert each["other_write_bytes"] == 0
    story = strata("story", run.path, pool[0]["key"], check=True).stdout
    assert "other threads of the process read 19." in story  # MiB
    assert "other threads" not in strata("story", run.path, own[0]["key"], check=True).stdout
    (io,) = rows(run, "from process_io where process like 'worker%'")
    assert io["read_bytes"] >= 2 * TIMES * SIZE
    noise = 4 * TIMES * NOISE
    assert len(pool) * SIZE <= io["other_read_bytes"] <= len(pool) * SIZE + noise
    assert len(write) * SIZE <= io["other_write_bytes"] <= len(write) * SIZE + noise
    assert 0 < io["recorder_write_bytes"] < io["write_bytes"]
    assert io["unattributed_write_bytes"] < (TIMES - len(write)) * SIZE + noise


def test_with_another_task_they_are_the_processs_only(
    client: Client, runs: Path, tmp_path: Path, pool_reads: Callable[[Path], int]
) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    end = Event("end", client=client)

    def wait() -> None:
        Event("begun").set()
        Event("end").wait(60)

    with quiet(client, runs) as run:
        waiting = client.submit(wait, key="waiting")
        assert Event("begun", client=client).wait(60)
        client.submit(pool_reads, path, key="pool").result()
        end.set()
        waiting.result()
    found = attempts(run)
    for key in ("pool", "waiting"):
        assert found[key]["shared"]
        assert found[key]["other_read_bytes"] is None
    (io,) = rows(run, "from process_io where process like 'worker%'")
    assert io["unattributed_read_bytes"] >= SIZE


def test_zarr_reads_in_threads_of_its_own(client: Client, runs: Path, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    import numpy as np

    store = tmp_path / "x.zarr"
    array = zarr.create_array(
        store, shape=(8, 1 << 18), chunks=(1, 1 << 18), dtype="f8", compressors=None
    )
    array[:] = np.random.default_rng(1).random(array.shape)
    stored = sum(p.stat().st_size for p in store.rglob("*") if p.is_file())
    assert stored > 16_000_000

    def read(path: Path) -> float:
        import zarr

        return float(zarr.open_array(path, mode="r")[:].sum())

    with quiet(client, runs) as run:
        client.submit(read, store, key="first").result()  # imports zarr
        for i in range(TIMES):
            client.submit(read, store, key=f"zarr-{i}", pure=False).result()
    for each in known(run, "zarr"):
        assert each["read_bytes"] < stored / 10
        read_bytes = each["read_bytes"] + each["other_read_bytes"]
        assert stored <= read_bytes <= stored + NOISE

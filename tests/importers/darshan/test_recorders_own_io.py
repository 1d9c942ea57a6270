"""The recorder's own reads and writes belong to no task; each task's bytes are exact."""

from __future__ import annotations

import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.io import summarize_io
from dask_strata.importers.registry import add_files
from tests.conftest import rows, wait_until
from tests.support import traced_io
from tests.support.traced_io import Traced

pytestmark = pytest.mark.long

N_TASKS = 24


def copy_part(number: int, folder: str, run: str) -> tuple[int, int]:
    """Read one file, wait until the recorder has written, write another; return both sizes."""
    segments = list((Path(run) / "segments").iterdir())

    def written() -> int:
        return sum(segment.stat().st_size for segment in segments)

    before = written()
    content = Path(folder, f"in-{number}").read_bytes()
    wait_until(lambda: written() > before, what="the recorder's next write")
    size = 1000 * (number + 1)
    Path(folder, f"out-{number}").write_bytes(content[:size])
    return len(content), min(size, len(content))


@dataclass
class Recorded:
    """A recorded run, the bytes that each task read and wrote, and the trace of its workers."""

    run: Path
    sizes: dict[str, tuple[int, int]]
    traces: list[Traced]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("traced")
    library = traced_io.compile_tracer(folder)
    data, traces = folder / "data", folder / "traces"
    for made in (data, traces):
        made.mkdir()
    for number in range(N_TASKS):
        (data / f"in-{number}").write_bytes(bytes(7_000 * (number + 1)))
    variables = traced_io.environment(library, traces)
    settings = {
        "distributed.nanny.pre-spawn-environ": variables,
        "dask-strata.flush-interval": "50 ms",
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        # One at a time: whatever else the process does meanwhile, only this task ran in it.
        sizes = {}
        for number in range(N_TASKS):
            future = client.submit(
                copy_part, number, str(data), str(run.path), key=f"copy-{number}"
            )
            sizes[future.key] = future.result()
    return Recorded(run.path, sizes, traced_io.read_traces(traces))


def add_logs(recorded: Recorded, folder: Path, *, threads: bool) -> Run:
    """Return a copy of the run, with the workers' logs."""
    run = Path(shutil.copytree(recorded.run, folder / recorded.run.name))
    logs = folder / "logs"
    logs.mkdir()
    host = socket.gethostname()
    traced_io.write_logs(recorded.traces, logs, host=host, threads=threads)
    assert add_files(run, [logs]).problems == []
    opened = open_run(run)
    tied = rows(opened, "select role from darshan_logs where tied_by is not null")
    assert tied == [{"role": "worker"}] * 2
    return opened


def test_each_tasks_bytes_are_exact(recorded: Recorded, tmp_path: Path) -> None:
    run = add_logs(recorded, tmp_path, threads=True)
    own = [t for t in recorded.traces if f"/{recorded.run.name}/" in t.path]
    assert len(own) > N_TASKS
    found = rows(run, "select key, io_read_bytes, io_write_bytes from tasks")
    assert {row["key"]: (row["io_read_bytes"], row["io_write_bytes"]) for row in found} == (
        recorded.sizes
    )
    by = rows(
        run,
        f"select attributed_by as by, count(*) as n, count(attempt) as n_attempts from io_segments "
        f"where contains(uri, '/{recorded.run.name}/') group by 1",
    )
    assert by == [{"by": "recorder", "n": len(own), "n_attempts": 0}]


def test_without_threads_the_recorders_files_are_nobodys(
    recorded: Recorded, tmp_path: Path
) -> None:
    run = add_logs(recorded, tmp_path, threads=False)
    found = rows(
        run,
        f"select distinct attributed_by as by, attempt from io_segments "
        f"where contains(uri, '/{recorded.run.name}/')",
    )
    assert found == [{"by": "recorder", "attempt": None}]
    found = rows(run, "select key, io_write_bytes from tasks")
    assert {row["key"]: row["io_write_bytes"] for row in found} == {
        key: written for key, (_, written) in recorded.sizes.items()
    }


def test_no_total_contains_the_recorders_bytes(recorded: Recorded, tmp_path: Path) -> None:
    run = add_logs(recorded, tmp_path, threads=True)
    io = summarize_io(run)
    assert io is not None
    assert not [file.uri for file in io.files if f"/{recorded.run.name}/" in file.uri]
    written = sum(size for _, size in recorded.sizes.values())
    assert sum(file.write_bytes for file in io.files if "/data/" in file.uri) == written
    assert sum(file.task_write_bytes for file in io.files) == written

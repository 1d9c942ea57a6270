"""A real Prometheus scrapes a recorded cluster: PromQL equals SQL on the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster, Reschedule

import dask_strata
from dask_strata import Run
from dask_strata.recorder.inputs.extractors import _registered, register
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.exposition.prometheus import Prometheus, needs_prometheus, page, prometheus
from tests.support.eventful import processing

pytestmark = [needs_prometheus, pytest.mark.long]

MEMORY = {
    "distributed.worker.memory.target": 0.02,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Two workers that spill results beyond 10 MB."""
    with (
        dask.config.set(MEMORY),
        LocalCluster(
            n_workers=2, threads_per_worker=2, memory_limit="500MB", dashboard_address=":0"
        ) as made,
    ):
        yield made


def bytes_of(i: int, size: int) -> bytes:
    """Return bytes."""
    return bytes([i]) * size


def total(parts: list[bytes]) -> int:
    """Return the length of all parts."""
    return sum(map(len, parts))


def first_fails(folder: str, name: str, error: type[Exception]) -> str:
    """Fail at the first call."""
    path = Path(folder) / name
    if not path.exists():
        path.touch()
        raise error
    return name


def wait_for(name: str) -> str:
    """Wait for an event."""
    Event(name).wait(timeout="60s")
    return name


def claims_nothing(call: Any) -> Any:
    """Fail, as an extractor of inputs with an error does."""
    raise ValueError(call)


@pytest.fixture
def failing_extractor() -> Iterator[None]:
    name = f"{total.__module__}.total"
    register(name, claims_nothing)
    yield
    del _registered[name]


def work(client: Client, cluster: LocalCluster, folder: Path) -> None:
    """Attempts with each outcome, transfers, spills and a loss of the recorder."""
    waiting = client.submit(wait_for, "go", key="lost-one")
    wait_until(lambda: waiting.key in processing(cluster), what="a task under way")
    os.kill(cluster.workers[processing(cluster)[waiting.key]].pid, signal.SIGKILL)
    wait_until(lambda: len(cluster.scheduler.workers) == 1, what="the end of a worker")
    wait_until(lambda: len(cluster.scheduler.workers) == 2, what="two workers")
    Event("go").set()
    assert waiting.result() == "go"
    parts = client.map(bytes_of, range(20), [4_000_000] * 20, key=[("part", i) for i in range(20)])
    assert client.submit(total, parts, key="total-1").result() == 80_000_000
    again = [client.submit(total, parts[i::2], key=("total-of-some", i)) for i in range(2)]
    assert sum(client.gather(again)) == 80_000_000
    failed = client.submit(first_fails, str(folder / "none"), "x", ValueError, key="failing-1")
    assert failed.exception() is not None
    for error in (ValueError, Reschedule):
        name = error.__name__
        once = client.submit(first_fails, str(folder), name, error, retries=1, key=f"{name}-0")
        assert once.result() == name
    cancelled = client.submit(wait_for, "never", key="cancelled-1")
    wait_until(lambda: cancelled.key in processing(cluster), what="a task under way")
    cancelled.cancel()
    wait_until(lambda: cancelled.key not in cluster.scheduler.tasks, what="a cancelled task")
    Event("never").set()


def pages(client: Client) -> list[str]:
    """Return host and port of the pages of the scheduler and of all workers."""
    info = client.scheduler_info()
    ports = [info["services"]["dashboard"]]
    ports += [w["services"]["dashboard"] for w in info["workers"].values()]
    return [f"127.0.0.1:{port}" for port in ports]


async def flush_here() -> bool:
    """Flush beside the event loop, which may have to send the rows."""
    return await asyncio.to_thread(dask_strata.flush)


def flush(client: Client) -> None:
    """Make all recorders encode their rows."""
    assert dask_strata.flush()
    assert all(client.run(flush_here).values())


def by(run: Run, query: str) -> dict[tuple[str, ...], float]:
    """Return the last column of a query by the others."""
    found = [tuple(row.values()) for row in rows(run, query)]
    return {row[:-1]: pytest.approx(float(row[-1]), rel=1e-9) for row in found}


#: PromQL with its labels, and the same as SQL. `{alive}` are the processes that were scraped; the
#: scheduler's counts include attempts on the worker that was killed.
EQUAL = (
    (
        "sum by (prefix, outcome) (dask_strata_attempts_total{%s})",
        ("prefix", "outcome"),
        "select prefix, outcome, count(*) from attempts where outcome != 'running' group by all",
    ),
    (
        "sum by (kind) (dask_strata_phase_seconds_total{process=~'scheduler.*', %s})",
        ("kind",),
        "select action, sum(seconds) from phases where action != 'executing' group by all",
    ),
    (
        "sum by (process, kind) (dask_strata_phase_seconds_total{process=~'worker.*', %s})",
        ("process", "kind"),
        "select process, action, sum(seconds) from spills where {alive} group by all",
    ),
    (
        "sum by (process, direction) (dask_strata_moved_bytes_total{%s})",
        ("process", "direction"),
        'select process, "end", sum(total_bytes) from transfer_ends where {alive} group by all',
    ),
    (
        "sum(dask_strata_moved_bytes_total{direction='incoming', %s})",
        (),
        "select sum(total_bytes) from transfers where seen_by in ('destination', 'both')",
    ),
    (
        "sum by (process, action) (dask_strata_spilled_bytes_total{%s})",
        ("process", "action"),
        "select process, action, sum(nbytes) from spills where {alive} group by all",
    ),
    (
        "sum by (process, kind) (dask_strata_losses_total{%s})",
        ("process", "kind"),
        "select process, what, sum(coalesce(count, 1)) from losses where {alive} group by all",
    ),
    *(
        (
            f"sum by (process) (dask_strata_rows_total{{table='{table}', %s}})",
            ("process",),
            f"select process, count(*) from {table} where {{alive}} group by all",
        )
        for table in ("scheduler_transitions", "worker_transitions", "transfer_ends", "spills")
    ),
)


@pytest.mark.usefixtures("failing_extractor")
def test_promql_equals_sql_and_detaching_removes_the_series(
    client: Client, cluster: LocalCluster, runs: Path, tmp_path: Path
) -> None:
    """Attempts, seconds, bytes, losses and rows; a second recording has series of its own."""
    with contextlib.ExitStack() as stack:
        with dask_strata.record(runs, client=client, clients="all") as run:
            work(client, cluster, tmp_path)
            server = stack.enter_context(prometheus(tmp_path, pages(client)))
            record_another(runs, client, server, run)
            flush(client)
            server.scrape(3)
            of_run = server.ask("count by (run) (dask_strata_rows_total)")
            assert [series["metric"]["run"] for series in of_run] == [run.manifest.run_id]
            label = f"run='{run.manifest.run_id}'"
            alive = {process for (process,) in server.values("dask_strata_rows_total", "process")}
            answers = [server.values(promql % label, *labels) for promql, labels, _ in EQUAL]
            written = server.values("dask_strata_written_bytes_total", "process")
        for address in pages(client):
            text = page(address)
            assert "dask_strata_" not in text
            assert "dask_" in text
        query = "count({__name__=~'dask_strata_.*'})"
        wait_until(lambda: server.ask(query) == [], what="the end of all series")
    assert len(alive) == 3
    condition = f"process in {tuple(sorted(alive))}"
    for (promql, _, sql), answer in zip(EQUAL, answers, strict=True):
        assert answer == by(run, sql.format(alive=condition)), promql
        assert answer, promql
    outcomes = {outcome for _, outcome in answers[0]}
    assert outcomes == {"memory", "erred", "retried", "rescheduled", "lost", "released"}
    assert answers[0]["part", "memory"] >= 20
    last = by(run, "select process, max(written_bytes) from overheads group by all")
    assert all(0 < n <= last[process].expected for process, n in written.items())


def record_another(runs: Path, client: Client, server: Prometheus, run: Run) -> None:
    """Record the cluster once more at the same time, and compare the series of both runs."""
    with Client(client.scheduler.address) as other, dask_strata.record(runs, client=other) as own:
        assert other.submit(len, b"xy", key="second-1").result() == 2
        flush(client)
        server.scrape(3)
        both = server.values("sum by (run) (dask_strata_attempts_total)", "run")
    assert both[own.manifest.run_id,] == 1
    assert both[run.manifest.run_id,] > 25
    assert_whole(own)

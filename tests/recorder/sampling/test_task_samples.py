"""Samples of tasks: what they waited for, at which line, compared with their own clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_strata import Run, record
from tests.conftest import rows
from tests.recorder.sampling import sampled_tasks as tasks

#: A sum of samples has the error of about one look at each end of a wait.
LOOK = 0.1


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
    """A client of one worker process with three threads."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.gather(made.map(lambda _: None, range(3)))
        yield made


def sampled(run: Run, function: str) -> dict[tuple[str | None, int | None], dict[str, Any]]:
    """Return the sums of a function's samples by reason and line."""
    found = rows(
        run,
        f"""
        select waiting, line, any_value(calls) as calls, sum(n_samples) as n,
               sum(seconds) as seconds, sum(cpu_seconds) as cpu, sum(delay_seconds) as delay
        from task_samples where function = '{function}' group by all
        """,
    )
    return {(row["waiting"], row["line"]): row for row in found}


def total(found: dict[tuple[str | None, int | None], dict[str, Any]], waiting: str | None) -> float:
    return sum(row["seconds"] for (reason, _), row in found.items() if reason == waiting)


@pytest.fixture(scope="module")
def waits(workers: Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run of tasks that wait, each kind alone, with the seconds that they measured."""
    folder = tmp_path_factory.mktemp("waits")
    with record(folder / "runs", client=workers) as run:
        measured: dict[str, Any] = {
            "sleeps": [workers.submit(tasks.sleeps, 0.8).result()],
            "lock": workers.gather(workers.map(tasks.holds_lock, [0.4] * 3, range(3))),
            "Dask's lock": workers.gather(workers.map(tasks.holds_dask_lock, [0.4] * 3, range(3))),
            "pipe": [workers.submit(tasks.reads_pipe, 0.6).result()],
            "process": [workers.submit(tasks.runs_process, 0.6).result()],
            "file": [workers.submit(tasks.writes_file, str(folder / "written"), 0.6).result()],
            "native": workers.gather(workers.map(tasks.runs_without_gil, [0.6], range(1))),
        }
    return run, measured


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize(
    ("mark", "function", "waiting", "calls"),
    [
        ("sleeps", "sleeps", "sleep", None),
        ("lock", "holds_lock", "lock", None),
        ("Dask's lock", "holds_dask_lock", "lock", "distributed/semaphore.py:__enter__"),
        ("pipe", "reads_pipe", "process", None),
        ("process", "runs_process", "process", "subprocess.py:run"),
    ],
)
def test_a_wait_has_its_reason_line_and_seconds(
    waits: tuple[Run, dict[str, Any]], mark: str, function: str, waiting: str, calls: str | None
) -> None:
    """Samples agree with the time that tasks measured around the line."""
    run, measured = waits
    found = sampled(run, function)[waiting, tasks.line_with(mark)]
    expected = measured[mark]
    assert found["seconds"] == pytest.approx(sum(expected), abs=len(expected) * LOOK)
    if calls is None or mark == "process":
        assert found["calls"] == calls
    else:  # older versions of Dask have the lock in a module of its own
        assert found["calls"].startswith("distributed/")
    assert found["cpu"] < 0.2 * found["seconds"]


@pytest.mark.long
@pytest.mark.alone
def test_a_task_that_computes_is_running(waits: tuple[Run, dict[str, Any]]) -> None:
    """A function that releases the GIL and computes waits for nothing."""
    run, measured = waits
    found = sampled(run, "runs_without_gil")
    running = total(found, None)
    assert running == pytest.approx(sum(measured["native"]), abs=2 * LOOK)
    used = sum(row["cpu"] + row["delay"] for row in found.values())
    assert used == pytest.approx(running, abs=2 * LOOK)


@pytest.mark.long
@pytest.mark.alone
def test_the_seconds_of_file_operations(waits: tuple[Run, dict[str, Any]]) -> None:
    """The samples of a task that writes and syncs are at these lines, and wait for the file."""
    run, measured = waits
    found = sampled(run, "writes_file")
    assert {reason for reason, _ in found} <= {"files", "gil", "other", None}
    everything = sum(row["seconds"] for row in found.values())
    assert everything == pytest.approx(sum(measured["file"]), abs=2 * LOOK)


def test_rows_name_executions(waits: tuple[Run, dict[str, Any]]) -> None:
    """Each row leads to its execution, and its times are within it."""
    run, _ = waits
    [found] = rows(
        run,
        """
        select count(*) as n, count(e.key) as matched,
               bool_and(s.first >= e.start and s.last <= e.stop + interval '100 ms') as within
        from task_samples s
        left join executions e using (process, execution, key, worker, run_id)
        """,
    )
    assert found["n"] == found["matched"] > 0
    assert found["within"]
    assert not rows(run, "select * from losses")


@pytest.mark.long
@pytest.mark.alone
def test_threads_that_share_the_gil(workers: Client, runs: Path) -> None:
    """Of two tasks in Python, each runs for its CPU time and waits for the GIL in the rest."""
    with record(runs, client=workers) as run:
        measured = workers.gather(workers.map(tasks.runs_python, [0.8] * 2, range(2)))
    found = sampled(run, "runs_python")
    assert {None, "gil"} <= {reason for reason, _ in found} <= {None, "gil", "other"}
    running, gil = total(found, None), total(found, "gil")
    # A thread may hand over the GIL at the moment of a look, which then did not wait for it.
    assert total(found, "other") <= 2 * LOOK
    assert running + gil == pytest.approx(sum(measured), abs=4 * LOOK, rel=0.1)
    used = sum(row["cpu"] + row["delay"] for row in found.values())
    assert running == pytest.approx(used, abs=4 * LOOK, rel=0.15)
    assert gil == pytest.approx(sum(measured) - used, abs=4 * LOOK + 0.15 * sum(measured))
    assert gil > 0.5


@pytest.mark.long
@pytest.mark.alone
def test_a_call_that_holds_the_gil(workers: Client, runs: Path) -> None:
    """While one task holds the GIL in one call, the thread that looks is frozen, too."""
    for number in range(5):
        with record(runs, client=workers) as run:
            futures = workers.map(tasks.holds_gil, [30_000_000] * 2, [number, number], pure=False)
            workers.gather(futures)
        found = rows(run, "select * from task_samples where key like 'holds_gil%'")
        # A task that begins and ends while that thread is frozen is not seen: the operating
        # system decides which thread has the GIL next.
        if len({row["key"] for row in found}) == 2:
            break
    [measured] = rows(
        run,
        "select sum(epoch(stop) - epoch(start)) as s, sum(cpu_seconds) as cpu from executions "
        "where key like 'holds_gil%'",
    )
    running = sum(row["seconds"] for row in found if row["waiting"] is None)
    gil = sum(row["seconds"] for row in found if row["waiting"] == "gil")
    assert running + gil == pytest.approx(measured["s"], abs=4 * LOOK)
    assert running == pytest.approx(
        sum(row["cpu_seconds"] + row["delay_seconds"] for row in found), abs=3 * LOOK
    )
    assert running > 0.5 * measured["cpu"]
    assert gil > 0.1


def test_without_the_setting_there_are_no_rows(workers: Client, runs: Path) -> None:
    """The setting `sampling` switches all samples off."""
    with record(runs, client=workers, sampling=False) as run:
        workers.submit(tasks.sleeps, 0.3).result()
    for table in ("task_samples", "client_samples", "client_calls"):
        assert not rows(run, f"select * from {table}")


def test_paths_are_left_out(workers: Client, runs: Path) -> None:
    """Files and lines of code are as private as in other tables."""
    with record(runs, client=workers, leave_out=("paths", "code")) as run:
        workers.submit(tasks.sleeps, 0.3, pure=False).result()
    for table in ("task_samples", "client_samples", "client_calls"):
        found = rows(run, f"select * from {table} where file is not null")
        assert found
        for row in found:
            assert row["file"].startswith("path-")
            assert row.get("code") in (None, "(left out)")


@pytest.mark.long
def test_more_threads_than_cpus(runs: Path) -> None:
    """Threads that compete for CPUs are ready to run and have none: delay."""
    import os

    n = 3 * (os.cpu_count() or 1)
    cluster = LocalCluster(n_workers=1, threads_per_worker=n, dashboard_address=":0")
    with cluster, Client(cluster) as client, record(runs, client=client) as run:
        measured = client.gather(client.map(tasks.runs_without_gil, [2.0] * n, range(n)))
    found = sampled(run, "runs_without_gil")
    cpu = sum(row["cpu"] for row in found.values())
    delay = sum(row["delay"] for row in found.values())
    assert delay > 0.4 * sum(measured)
    # A thread that holds the GIL between two hashes and has no CPU makes the others wait for it.
    waited = total(found, "gil")
    assert cpu + delay + waited == pytest.approx(sum(measured), rel=0.15)


@pytest.mark.long
def test_many_short_tasks_are_not_overcounted(workers: Client, runs: Path) -> None:
    """Most tasks shorter than a look have no sample, and the sum is that of all."""
    with record(runs, client=workers) as run:
        measured = workers.gather(workers.map(tasks.sleeps, [0.02 + i / 1e6 for i in range(600)]))
    found = sampled(run, "sleeps")
    assert total(found, "sleep") == pytest.approx(sum(measured), rel=0.2)


@pytest.mark.long
def test_a_long_task_has_rows_before_its_end(workers: Client, runs: Path) -> None:
    """A killed process loses only the samples of the last seconds."""
    from dask_strata import open_run

    with record(runs, client=workers) as run:
        future = workers.submit(tasks.sleeps, 6.0)
        deadline, found = time.monotonic() + 5, 0
        while not found and time.monotonic() < deadline:
            time.sleep(0.2)
            found = len(rows(open_run(run.path), "select * from task_samples"))
        assert found
        assert not future.done()
        future.cancel()
    assert not [t.name for t in threading.enumerate() if t.name.endswith("-samples")]

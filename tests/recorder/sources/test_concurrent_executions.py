"""Executions that overlap: threads, processes, workers, recordings, and tasks within tasks."""

from __future__ import annotations

import subprocess
import threading
import uuid
from pathlib import Path

from distributed import Client, LocalCluster, as_completed, get_client, secede, worker_client

import dask_strata
from tests.conftest import assert_whole, rows
from tests.recorder.sources.measured_tasks import (
    MEASURES,
    attempt,
    meet,
    needs_accounting,
    nothing,
    opens,
    rest,
    write_pieces,
)

pytestmark = needs_accounting


def test_overlapping_executions_are_shared(two_threads: Client, runs: Path) -> None:
    """Two executions at the same time in one process are shared, one alone is not."""
    with dask_strata.record(runs, client=two_threads) as run:
        two_threads.submit(nothing, key="alone").result()
        pair = [two_threads.submit(meet, i, key=f"meets-{i}") for i in range(2)]
        two_threads.gather(pair)
        two_threads.submit(nothing, key="alone-again").result()
    shared = {r["key"]: r["shared"] for r in rows(run, "select key, shared from attempts")}
    assert shared == {"alone": False, "meets-0": True, "meets-1": True, "alone-again": False}


def test_two_workers_in_one_process(runs: Path) -> None:
    """Two workers in one process have one row per execution, each with its own address."""
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    with (
        LocalCluster(**options, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        pair = [client.submit(meet, i, key=f"meets-{i}") for i in range(2)]
        workers = dict(zip(("meets-0", "meets-1"), client.gather(pair), strict=True))
    assert_whole(run)
    assert len(set(workers.values())) == 2
    found = rows(run, "select key, worker from executions order by key")
    assert [(r["key"], r["worker"]) for r in found] == sorted(workers.items())
    assert all(attempt(run, key)["shared"] for key in workers)


def test_two_recordings_at_once(client: Client, runs: Path) -> None:
    """Both recordings have each execution once with equal measures, even if one ends earlier."""
    with dask_strata.record(runs, client=client, name="outer") as outer:
        client.submit(nothing, key="a").result()
        with dask_strata.record(runs, client=client, name="inner") as inner:
            client.submit(rest, key="b").result()
        client.submit(nothing, key="c").result()
    assert {r["key"] for r in rows(outer, "select key from executions")} == {"a", "b", "c"}
    columns = ", ".join(("key", "kind", "thread", "n_opened", *MEASURES))
    query = f"select {columns} from executions where key = 'b'"
    assert len(rows(inner, query)) == 1
    assert rows(inner, query) == rows(outer, query)
    assert_whole(outer)
    assert_whole(inner)


def use_thread(path: str) -> None:
    """Write from a new thread."""
    thread = threading.Thread(target=write_pieces, args=(path, 50))
    thread.start()
    thread.join()


def use_process(path: str) -> None:
    """Write from a new process."""
    subprocess.run(["/bin/sh", "-c", 'echo hello > "$0"', path], check=True)


def test_threads_are_marked(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that starts threads is marked: their usage is not counted."""
    path = tmp_path / "new"
    with dask_strata.record(runs, client=client) as run:
        client.submit(use_thread, str(path), key="threads").result()
    assert path.stat().st_size == 500
    found = attempt(run, "threads")
    assert (found["write_bytes"], found["elsewhere"]) == (0, "threads")


def test_processes_are_marked(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that starts processes is marked: their usage is not counted."""
    paths = [tmp_path / name for name in ("other", "own")]
    with dask_strata.record(runs, client=client) as run:
        client.submit(use_process, str(paths[0]), key="processes").result()
        client.submit(write_pieces, str(paths[1]), 5, key="none").result()
    assert all(path.stat().st_size for path in paths)
    assert "processes" in attempt(run, "processes")["elsewhere"].split(", ")
    assert str(paths[0]) not in {uri for uri, _, _ in opens(run, "processes")}
    found = attempt(run, "none")
    assert (found["write_bytes"], found["elsewhere"]) == (50, None)


def write_and_submit(path: str) -> int:
    """Write, submit another task that writes, and write again."""
    # Where libuuid has a state file, it writes 56 bytes there for the id of a client.
    uuid._generate_time_safe = None  # type: ignore[attr-defined]
    write_pieces(f"{path}-1", 1)
    with worker_client() as client:
        result = client.submit(write_pieces, f"{path}-2", 20, key="child").result()
    write_pieces(f"{path}-3", 300)
    return result


def write_as_completed(path: str) -> int:
    """Submit three tasks, and write once for each one that completes."""
    client = get_client()
    children = [
        client.submit(write_pieces, f"{path}-{i}", 4, key=f"as-completed-{i}") for i in range(3)
    ]
    secede()
    for number, _ in enumerate(as_completed(children)):
        write_pieces(f"{path}-{number}-parent", 10)
    return 3


def test_tasks_within_tasks(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that waits for others has only its own bytes, before and after it secedes."""
    path = str(tmp_path / "file")
    with dask_strata.record(runs, client=client) as run:
        client.submit(write_and_submit, path, key="parent").result()
        client.submit(write_as_completed, path, key="as-completed").result()
    # Messages of the clients within tasks do not count as writes.
    written = {r["key"]: r["write_bytes"] for r in rows(run, "select * from attempts")}
    assert written["child"] == 200
    assert [written[f"as-completed-{i}"] for i in range(3)] == [40] * 3
    assert all(attempt(run, key)["shared"] for key in ("parent", "child", "as-completed"))
    files = {uri for uri, _, _ in opens(run, "parent")}
    assert {f"{path}-1", f"{path}-3"} <= files
    assert f"{path}-2" not in files
    assert {uri for uri, _, _ in opens(run, "child")} == {f"{path}-2"}
    assert written["parent"] == 3010
    assert written["as-completed"] == 300
    assert_whole(run)


def write_long(path: str) -> int:
    """Secede, and write before and after."""
    write_pieces(path, 3)
    secede()
    write_pieces(path, 40)
    return threading.get_ident()


def test_tasks_that_seceded(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that secedes is measured to its end, in its own thread."""
    with dask_strata.record(runs, client=client) as run:
        thread = client.submit(write_long, str(tmp_path / "new"), key="secedes").result()
        client.submit(nothing, key="next").result()
    found = attempt(run, "secedes")
    assert (found["outcome"], found["thread"], found["write_bytes"]) == ("memory", thread, 430)

"""Who had what, and how many workers there were, at any time: as Dask itself said then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from tests.conftest import rows, wait_until

WhoHas = dict[str, frozenset[str]]


class Moments:
    """What Dask said at some moments: who has what; workers, threads and paused workers."""

    run: Run
    who_has: list[tuple[float, WhoHas]]
    sizes: list[tuple[float, tuple[int, int, int]]]


def add(x: int, y: int) -> int:
    """Return the sum."""
    return x + y


def in_memory(dask_worker: Any) -> list[str]:
    """Return the keys of the results that the worker itself holds."""
    return [str(key) for key in dask_worker.data]


def set_status(status: str, dask_worker: Any) -> None:
    """Set the worker's status."""
    dask_worker.status = distributed.core.Status.lookup[status]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    """Scale a cluster up and down while results are computed, copied and released."""
    made = Moments()
    made.who_has, made.sizes = [], []
    with (
        # Otherwise Dask drops replicas every two seconds, also between its answer and its time.
        dask.config.set({"distributed.scheduler.active-memory-manager.start": False}),
        # Without a memory limit, Dask itself neither pauses nor resumes a worker.
        LocalCluster(
            n_workers=1, threads_per_worker=2, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        scheduler = cluster.scheduler

        def note() -> None:
            """Note the moment in which scheduler and workers agree on who has what."""

            def agreed() -> WhoHas | None:
                said = {str(k): frozenset(v) for k, v in client.who_has().items()}
                has = {w: set(keys) for w, keys in client.run(in_memory).items()}
                same = all({k for k in said if w in said[k]} == keys for w, keys in has.items())
                return said if same and client.who_has() and said.keys() == wanted() else None

            def wanted() -> set[str]:
                return {str(future) for future in client.futures}

            said = wait_until(agreed, what="agreement")
            made.who_has.append((time.time(), said))
            statuses = [ws.status.name for ws in scheduler.workers.values()]
            threads = sum(ws.nthreads for ws in scheduler.workers.values())
            made.sizes.append((time.time(), (len(statuses), threads, statuses.count("paused"))))

        before = client.submit(add, 1, 1, key="before")
        before.result()
        recording = dask_strata.record(tmp_path_factory.mktemp("replicas"), client=client)
        with recording as run:
            note()
            cluster.scale(3)
            client.wait_for_workers(3)
            first, second, third = sorted(scheduler.workers)
            a = client.submit(add, 1, 2, key="a", workers=first)
            b = client.submit(add, a, 1, key="b", workers=second)
            sent = client.scatter({"sent": 7}, workers=[third])["sent"]
            b.result()
            note()
            client.replicate(a, workers=[third])
            note()
            client.run(set_status, status="paused", workers=[third])
            wait_until(lambda: scheduler.workers[third].status.name == "paused", what="the pause")
            note()
            client.run(set_status, status="running", workers=[third])
            wait_until(lambda: scheduler.workers[third].status.name == "running", what="its end")
            before.release()
            del before
            wait_until(lambda: "before" not in scheduler.tasks, what="the release of a result")
            note()
            client.retire_workers([second])
            wait_until(lambda: len(scheduler.workers) == 2, what="a worker less")
            note()
            del b
            again = client.submit(add, 5, 5, key="b", workers=first)
            again.result()
            note()
            del a, sent, again
        made.run = open_run(run.path)
    return made


def test_replicas_are_those_of_who_has(moments: Moments) -> None:
    """At each moment the table has the workers and keys of Dask's own `who_has`."""
    assert len({frozenset(said.items()) for _, said in moments.who_has}) >= 5
    for when, said in moments.who_has:
        found: dict[str, set[str]] = {}
        for row in rows(
            moments.run,
            f"""
            select key, worker from replicas
            where coalesce(epoch_ns(start), 0) / 1e9 <= {when}
              and (stop is null or epoch_ns(stop) / 1e9 > {when})
            """,
        ):
            found.setdefault(row["key"], set()).add(row["worker"])
        assert found == said


def test_origins_and_ends(moments: Moments) -> None:
    """A replica was computed, fetched or scattered; it was released, or its worker removed."""
    found = rows(
        moments.run, "select key, origin, start, ended_by, seen_by from replicas order by start"
    )
    by_key: dict[str, list[Any]] = {}
    for row in found:
        by_key.setdefault(row["key"], []).append((row["origin"], row["ended_by"]))
    assert by_key["before"] == [(None, "released")]
    assert next(row["start"] for row in found if row["key"] == "before") is None
    assert by_key["a"][0][0] == "computed"
    assert {origin for origin, _ in by_key["a"][1:]} == {"fetched"}
    assert {origin for origin, _ in by_key["sent"]} == {"scattered"}
    # The worker that computed it was retired; another one had fetched it before.
    assert ("computed", "removed") in by_key["b"]
    assert "fetched" in {origin for origin, _ in by_key["b"]}
    assert {row["seen_by"] for row in found} == {"worker"}


def test_workers_and_threads_over_time(moments: Moments) -> None:
    """At each moment there were as many workers, threads and paused workers as Dask had."""
    assert {size for _, size in moments.sizes} >= {(1, 2, 0), (3, 6, 0), (3, 6, 1), (2, 4, 0)}
    for when, size in moments.sizes:
        [row] = rows(
            moments.run,
            f"""
            select n_workers, n_threads, n_paused from cluster_sizes
            where epoch_ns(start) / 1e9 <= {when}
              and (stop is null or epoch_ns(stop) / 1e9 > {when})
            """,
        )
        assert (row["n_workers"], row["n_threads"], row["n_paused"]) == size
        [counted] = rows(
            moments.run,
            f"""
            select count(*) as n, sum(nthreads)::bigint as threads from workers
            where epoch_ns(start) / 1e9 <= {when}
              and (stop is null or epoch_ns(stop) / 1e9 > {when})
            """,
        )
        assert (counted["n"], counted["threads"]) == size[:2]


def test_results_beyond_the_bound_are_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorder lists a bounded number of results that were held before it; more are a loss."""
    monkeypatch.setattr("dask_strata.recorder.roles.worker.MAX_HELD", 2)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        held = client.map(add, range(3), range(3))
        client.gather(held)
        with dask_strata.record(tmp_path, client=client) as run:
            pass
    [loss] = rows(run, "select * from losses where what = 'replicas'")
    assert loss["count"] == 1
    [listed] = rows(run, "select count(*) as n, count(start) as since from replicas")
    assert (listed["n"], listed["since"]) == (2, 0)
    assert any("replicas" in finding.text for finding in run.check().missing)

"""Memory of all workers over time, compared with the scheduler's own sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.timeline.resources import BINS, resources
from dask_strata.analysis.timeline.timeline import timeline
from tests.conftest import rows, wait_until
from tests.support.synthetic import SECOND, T0, Process, new_run

MIB = 2**20


def managed(path: Path) -> list[float]:
    """Return the results in memory of all workers, by bin, where they are known."""
    run = open_run(path)
    found = resources(run, timeline(run)).values["managed"][0]
    return found[~np.isnan(found)].round(3).tolist()


def held_by_workers(dask_scheduler: Any) -> int:
    """Return the bytes of results on all workers, as the scheduler counts them."""
    return sum(ws.memory.managed for ws in dask_scheduler.workers.values())


def sampled(run: dask_strata.Run, n_workers: int, nbytes: int) -> bool:
    """Return whether the last two samples of the scheduler have these workers and this memory."""
    found = rows(
        open_run(run.path),
        "select count(*) as n, sum(managed_bytes) as nbytes from worker_samples "
        "where seen_by = 'scheduler' group by time order by time desc limit 2",
    )
    return [(row["n"], row["nbytes"]) for row in found] == [(n_workers, nbytes)] * 2


def test_memory_of_a_removed_worker_ends_with_it(tmp_path: Path) -> None:
    """The last sum has the memory of the workers that are still connected, and no other."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        stays, leaves = cluster.workers.values()
        held = [
            client.scatter(np.zeros(n * MIB, "u1"), workers=[worker.address], hash=False)
            for n, worker in ((10, stays), (30, leaves))
        ]
        both = client.run_on_scheduler(held_by_workers)
        assert both == 40 * MIB
        wait_until(lambda: sampled(run, 2, both), what="samples of both workers")
        client.sync(leaves.close)
        one = client.run_on_scheduler(held_by_workers)
        assert one == 10 * MIB
        wait_until(lambda: sampled(run, 1, one), what="samples of one worker")
        del held
    found = managed(run.path)
    # The mean of a bin is between those of its samples where a worker leaves in it.
    rest = found[found.index(both) :]
    assert rest[: rest.count(both)] == [both] * rest.count(both)
    assert rest[-rest.count(one) :] == [one] * rest.count(one)
    assert len(rest) - rest.count(both) - rest.count(one) <= 2


@pytest.mark.parametrize("back_at", [8, None], ids=["comes back", "stays away"])
def test_a_worker_counts_from_its_sample_to_its_removal(
    tmp_path: Path, back_at: int | None
) -> None:
    """A worker that is away has no memory, also if its address comes back."""
    scheduler = Process(new_run(tmp_path / "run"), "scheduler-1")
    events = [(0, "add", "a"), (0, "add", "b"), (4, "remove", "b")]
    samples = [(second, "a", 1) for second in range(11)] + [(second, "b", 2) for second in (1, 2)]
    if back_at:
        events.append((back_at, "add", "b"))
        samples.append((back_at + 1, "b", 4))
    scheduler.write(
        "worker_events",
        [
            {"time": T0 + at * SECOND, "action": action, "worker": f"tcp://{worker}:1"}
            for at, action, worker in events
        ],
    )
    scheduler.write(
        "worker_samples",
        [
            {
                "time": T0 + at * SECOND,
                "worker": f"tcp://{worker}:1",
                "seen_by": "scheduler",
                "managed_bytes": nbytes,
            }
            for at, worker, nbytes in samples
        ],
    )
    scheduler.end()
    per_second = BINS // 10
    away = [1] * ((back_at + 1 if back_at else 10) - 4) * per_second
    expected = [1] * per_second + [3] * 3 * per_second + away
    if back_at:
        expected += [5] * per_second
    assert managed(tmp_path / "run") == expected


def test_servers_that_share_a_process_or_a_host_count_once(tmp_path: Path) -> None:
    """CPU of a shared process counts once for all workers, as does the network of a host."""
    folder = new_run(tmp_path / "run")
    Process(folder, "scheduler-1").end()
    for n, pid in enumerate((7, 7, 8)):
        address = f"tcp://{n}:1"
        worker = Process(folder, f"worker-{n}", address=address, nthreads=1, pid=pid)
        worker.write(
            "process_samples",
            [{"time": T0 + t * SECOND, "cpu_seconds": float(t)} for t in range(10)],
        )
        worker.write(
            "worker_samples",
            [
                {
                    "time": T0 + t * SECOND,
                    "worker": address,
                    "seen_by": "worker",
                    "net_read_bytes_per_second": 100.0 * (n + 1),
                    "rss_bytes": 10,
                }
                for t in range(10)
            ],
        )
        worker.end()
    run = open_run(folder)
    values = resources(run, timeline(run)).values
    assert values["cpu"][:, 100] == pytest.approx([2, 1, 1, 1, np.nan], nan_ok=True)
    assert values["received"][:, 100] == pytest.approx([200, 100, 200, 300, np.nan], nan_ok=True)
    assert values["rss"][:, 100] == pytest.approx([30, 10, 10, 10, np.nan], nan_ok=True)


def test_workers_beyond_the_most_count_only_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of the largest memory have lines of their own; all count in the sum."""
    monkeypatch.setattr("dask_strata.analysis.timeline.resources.WORKERS", 2)
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1")
    addresses = [f"tcp://{n}:1" for n in range(5)]
    scheduler.write(
        "worker_events", [{"time": T0, "action": "add", "worker": a} for a in addresses]
    )
    scheduler.write(
        "worker_samples",
        [
            {"time": T0 + t * SECOND, "worker": a, "seen_by": "scheduler", "rss_bytes": size}
            for t in range(10)
            for a, size in zip(addresses, (5, 40, 7, 30, 6), strict=True)
        ],
    )
    scheduler.end()
    run = open_run(folder)
    found = resources(run, timeline(run))
    assert [worker for worker, _ in found.names] == [addresses[1], addresses[3]]
    assert found.n_left_out == 3
    assert found.values["rss"][:3, 100].tolist() == [88, 40, 30]

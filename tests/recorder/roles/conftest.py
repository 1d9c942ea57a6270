"""The recorded run that the tests of the roles share: made once a test process."""

from __future__ import annotations

import time

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import wait_until
from tests.recorder.roles.workload import SECRET, SLURM, RecordedWork, submit_everything


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedWork:
    """Record the shared work on a cluster of two workers with two threads each."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SLURM, "DASK_ICE__FLAVOUR": "chocolate"}.items():
            patch.setenv(name, value)
        with (
            LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            dask.config.set(
                {
                    "ice.flavour": "vanilla",
                    "ice.api-token": SECRET,
                    "ice.store": f"postgres://me:{SECRET}@example.org/db",
                    "distributed.admin.tick.limit": "7s",
                    "distributed.diagnostics.computations.nframes": 3,
                }
            ),
        ):
            made = RecordedWork(None, {}, began=time.time())  # type: ignore[arg-type]
            made.workers = sorted(cluster.scheduler.workers)
            made.client, made.scheduler = client.id, cluster.scheduler.address
            counted = cluster.scheduler.transition_counter
            recording = dask_strata.record(folder / "runs", client=client, sample_interval="100ms")
            with recording as made.run:
                submit_everything(client, folder, made.workers, made.facts)
                # The scheduler receives the release of futures a little later.
                wanted = cluster.scheduler.clients[client.id].wants_what
                wait_until(lambda: {ts.key for ts in list(wanted)} == set(client.refcount))
                made.counted_at_least = cluster.scheduler.transition_counter - counted
            # Futures in reference cycles may be released at any time, also now.
            made.counted_at_most = cluster.scheduler.transition_counter - counted
            made.ended = time.time()
            made.pids = made.facts["pids"]
    # The variables are unset by now: other tests of this process look at the launcher, too.
    return made

"""Tasks that were submitted before the recording: their submission where Dask still has it.

The truth is a scheduler plugin of this test, which notes the time of each submission.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster, SchedulerPlugin, wait

from dask_strata import record
from tests.conftest import assert_whole, rows, wait_until

pytestmark = pytest.mark.parametrize(
    "clients", ["own", pytest.param("all", marks=pytest.mark.long)]
)


class Submissions(SchedulerPlugin):
    """Notes the time of each task's first submission."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def update_graph(self, scheduler: Any, *, tasks: Any, **_: Any) -> None:
        for key in tasks:
            self.times.setdefault(str(key), time.time())


@pytest.fixture
def busy() -> Iterator[tuple[LocalCluster, Client, Submissions]]:
    """A cluster in this process whose log has few transitions, and whose threads wait."""
    with (
        dask.config.set({"distributed.admin.low-level-log-length": 120}),
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        truth = Submissions()
        cluster.scheduler.add_plugin(truth)
        held = client.map(_hold, range(2), key=["gate-0", "gate-1"])
        wait_until(
            lambda: all(
                (ts := cluster.scheduler.tasks.get(f.key)) and ts.state == "processing"
                for f in held
            ),
            what="busy threads",
        )
        yield cluster, client, truth


def _hold(i: int) -> int:
    Event("gate").wait(60)
    return i


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=timezone.utc).timestamp()


def test_queued_tasks_have_their_submission_and_prefix(
    busy: tuple[LocalCluster, Client, Submissions], runs: Path, strata, clients: str
) -> None:
    """By Dask's log, else by its computations; null where neither has it, and no wait is 0."""
    cluster, client, truth = busy
    # The log of 120 transitions loses the first ones: of these only their computation could have
    # had the time, which is not their own, as the submission of the gates began it.
    early = client.map(str, range(40), key=[f"early-part-{i}" for i in range(40)])
    wait_until(lambda: "early-part-39" in cluster.scheduler.tasks, what="the early tasks")
    late = [client.submit(len, early[0], key=("late-part", i)) for i in range(60)]
    wait_until(lambda: ("late-part", 59) in cluster.scheduler.tasks, what="the late tasks")
    logged = {entry[0] for entry in cluster.scheduler.transition_log if entry[1] == "released"}
    assert 0 < len(logged) < 100
    began = time.time()
    with record(runs, client=client, clients=clients) as run:
        wait_until(lambda: len(run["present_tasks"]) == 102, what="the present tasks")
        Event("gate", client=client).set()
        wait([*early, *late])
    assert_whole(run)
    found = {row["key"]: row for row in rows(run, "select * from tasks")}
    assert len(found) == 102
    assert {row["prefix"] for row in found.values()} == {"gate", "early-part", "late-part"}
    assert {row["client"] for row in found.values()} == {client.id}
    known = {key for key, row in found.items() if row["submitted"] is not None}
    assert known == {str(key) for key in logged}
    for key in known:
        assert _seconds(found[key]["submitted"]) == pytest.approx(truth.times[key], abs=0.5)
        assert _seconds(found[key]["submitted"]) < began
    for key, row in found.items():
        if key in known and not key.startswith("gate"):
            waited = _seconds(row["started"]) - _seconds(row["submitted"])
            assert row["wait_seconds"] == pytest.approx(waited, abs=1e-5)
            assert row["wait_seconds"] > 0
        else:
            assert row["wait_seconds"] is None
    shown = strata("show", run.path, "--format", "json", check=True).stdout
    facts = json.loads(shown)
    assert facts["n_tasks"] == 102
    assert facts["n_unfinished"] == 0
    assert facts["active_seconds"] <= facts["duration_seconds"]


@pytest.mark.long
def test_a_large_graph_has_the_time_of_its_computation(
    busy: tuple[LocalCluster, Client, Submissions], runs: Path, clients: str
) -> None:
    """Dask's computation has the time if one submission created all tasks of its groups."""
    cluster, client, truth = busy
    Event("gate", client=client).set()
    wait_until(lambda: cluster.scheduler.is_idle, what="an idle scheduler")
    Event("gate", client=client).clear()
    many = client.map(_hold, range(300), key=[("many-part", i) for i in range(300)])
    wait_until(lambda: ("many-part", 299) in cluster.scheduler.tasks, what="the tasks")
    logged = {entry[0] for entry in cluster.scheduler.transition_log}
    assert ("many-part", 0) not in logged or ("many-part", 299) not in logged
    with record(runs, client=client, clients=clients) as run:
        wait_until(lambda: len(run["present_tasks"]), what="the present tasks")
        Event("gate", client=client).set()
        wait(many)
    assert_whole(run)
    found = rows(run, "select key, submitted from tasks where prefix = 'many-part'")
    assert len(found) == 300
    for row in found:
        assert _seconds(row["submitted"]) == pytest.approx(truth.times[row["key"]], abs=0.5)

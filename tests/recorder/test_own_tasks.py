"""Recordings of one client's tasks on a cluster that others use: exactly these, and all counted.

The truth are a scheduler plugin of this test, and the ids that Dask gave to the clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Event, Future, LocalCluster, SchedulerPlugin, wait

from dask_strata import Run, open_run, record
from dask_strata.errors import UsageError
from tests.conftest import assert_whole, rows, wait_until


class Truth(SchedulerPlugin):
    """Notes each submission and counts the transitions of each key."""

    name = "truth"

    def __init__(self) -> None:
        self.submitted: dict[Any, set[str]] = {}
        self.transitions: Counter[Any] = Counter()

    def update_graph(self, scheduler: Any, *, client: str, tasks: Any, **_: Any) -> None:
        for key in tasks:
            self.submitted.setdefault(client, set()).add(key)

    def transition(self, key: Any, *_: Any, **__: Any) -> None:
        self.transitions[key] += 1


@pytest.fixture
def shared() -> Iterator[tuple[LocalCluster, Client, Client]]:
    """A cluster in this process, with two clients."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as one,
        Client(cluster) as two,
    ):
        yield cluster, one, two


def _hold(_: Any, gate: str) -> str:
    Event(gate).wait(60)
    return gate


def _keys(run: Run) -> set[str]:
    return {row["key"] for row in rows(run, "select key from tasks")}


@pytest.mark.parametrize("tap", ["auto", pytest.param("plugin", marks=pytest.mark.long)])
def test_the_run_has_the_tasks_of_its_client_and_counts_the_others(
    shared: tuple[LocalCluster, Client, Client], runs: Path, tap: str
) -> None:
    """No row of the scheduler is about another's task; with those left out, Dask's count is met."""
    cluster, mine, other = shared
    held = other.submit(_hold, 0, "never", key="theirs-held")
    tasks = cluster.scheduler.tasks
    wait_until(
        lambda: held.key in tasks and tasks[held.key].state == "processing", what="a held task"
    )
    truth = Truth()
    with record(runs, client=mine, tap=tap) as run:
        cluster.scheduler.add_plugin(truth)
        theirs = other.map(str, range(30), key=[f"theirs-{i}" for i in range(30)])
        own = mine.map(abs, range(20), key=[f"own-{i}" for i in range(20)])
        total = mine.submit(sum, own, key="own-total")
        data = mine.scatter([1.5])
        used = mine.submit(max, data, key="own-max")
        theirs_too = other.scatter([2.5])
        wait([*theirs, total, used])
        del own, theirs
        wait_until(
            lambda: (
                not any(f"theirs-{i}" in tasks for i in range(30))
                and all(tasks[f"own-{i}"].state == "released" for i in range(20))
            ),
            what="the release",
        )
        cluster.scheduler.remove_plugin("truth")
    mine_keys = {str(key) for key in truth.submitted[mine.id]}
    assert len(mine_keys) == 23
    assert _keys(run) == mine_keys
    assert {row["client"] for row in rows(run, "select client from submissions")} == {mine.id}
    for table in ("graph_tasks", "scheduler_transitions", "worker_transitions", "executions"):
        found = {row["key"] for row in rows(run, f"select distinct key from {table}")}
        assert found, table
        assert found <= mine_keys, table
    of_mine = sum(n for key, n in truth.transitions.items() if str(key) in mine_keys)
    assert len(run["scheduler_transitions"]) == of_mine
    [left_out] = rows(
        run, "select sum(count) as n from left_out_rows where what = 'scheduler_transitions'"
    )
    assert left_out["n"] == truth.transitions.total() - of_mine > 60
    assert_whole(run)
    assert rows(run, "select key from tasks where finished is null and state <> 'memory'") == []
    assert {
        row["client"] for row in rows(run, "select client from tasks where prefix = 'own'")
    } == {mine.id}
    Event("never", client=other).set()
    wait(held)
    del theirs_too


@pytest.mark.long
def test_a_left_out_row_that_is_not_counted_is_missing(
    shared: tuple[LocalCluster, Client, Client], runs: Path
) -> None:
    """The check stays strict: one row less is reported."""
    _, mine, other = shared
    with record(runs, client=mine) as run:
        wait([*mine.map(abs, range(3)), *other.map(str, range(3))])
    assert_whole(run)
    strict = open_run(run.path)
    original = strict._recorded
    strict._recorded = lambda name: (
        original(name).slice(0, 0) if name == "left_out_rows" else original(name)
    )
    assert any("are missing" in finding.text for finding in strict.check().missing)


def test_tasks_that_own_tasks_depend_on_belong_to_the_run(
    shared: tuple[LocalCluster, Client, Client], runs: Path
) -> None:
    """Another's task joins the run when an own task needs it, with its client and submission."""
    cluster, mine, other = shared
    with record(runs, client=mine) as run, record(runs, client=other, clients="all") as whole:
        first = other.submit(_hold, 0, "gate", key="first-1")
        second = other.submit(str, first, key="second-1")
        wait_until(lambda: "second-1" in cluster.scheduler.tasks, what="the other's tasks")
        third = mine.submit(len, Future("second-1", client=mine), key="third-1")
        wait_until(lambda: "third-1" in cluster.scheduler.tasks, what="the own task")
        Event("gate", client=other).set()
        wait([third, second, first])
    for each in (run, whole):
        assert_whole(each)
    assert _keys(run) == _keys(whole) == {"first-1", "second-1", "third-1"}
    columns = "select key, client, clients, submitted from tasks order by key"
    found = {row["key"]: row for row in rows(run, columns)}
    expected = {row["key"]: row for row in rows(whole, columns)}
    assert found["third-1"] == expected["third-1"]
    assert found["third-1"]["client"] == mine.id
    assert found["second-1"]["client"] == expected["second-1"]["client"] == other.id
    assert expected["second-1"]["clients"] == f"{other.id}, {mine.id}"
    # The whole run has the first transition, the own run the submission right before it.
    late = expected["second-1"]["submitted"] - found["second-1"]["submitted"]
    assert 0 <= late.total_seconds() < 1
    assert {row["key"] for row in rows(run, "select key from present_tasks")} == {
        "first-1",
        "second-1",
    }


@pytest.mark.long
def test_a_key_that_both_clients_submit_one_after_the_other(
    shared: tuple[LocalCluster, Client, Client], runs: Path
) -> None:
    """Each life of a key has its own client; a life of another's is not recorded."""
    cluster, mine, other = shared

    def once(client: Client) -> None:
        future = client.submit(abs, -1, key="same-1")
        wait(future)
        del future
        wait_until(lambda: "same-1" not in cluster.scheduler.tasks, what="the end of the life")

    with record(runs, client=mine) as run, record(runs, client=mine, clients="all") as whole:
        for client in (mine, other, other, mine, other):
            once(client)
    for each in (run, whole):
        assert_whole(each)
    lives = "select client from tasks order by life"
    assert [row["client"] for row in rows(run, lives)] == [mine.id, mine.id]
    assert [row["client"] for row in rows(whole, lives)] == [
        mine.id,
        other.id,
        other.id,
        mine.id,
        other.id,
    ]
    for client, n in ((mine, 2), (other, 3)):
        selected = open_run(whole.path, client=client.id)
        assert [row["client"] for row in rows(selected, lives)] == [client.id] * n
        assert [row["client"] for row in rows(selected, "from attempts")] == [client.id] * n
        assert_whole(selected)


@pytest.mark.release
@pytest.mark.long
def test_a_run_of_all_can_be_read_by_client(
    shared: tuple[LocalCluster, Client, Client], runs: Path, strata
) -> None:
    """By the begin of the id and the script's name; other clients' time is shown as such."""
    _, mine, other = shared
    with record(runs, client=mine, clients="all") as whole:
        wait([*mine.map(abs, range(5)), *other.map(str, range(4)), other.submit(_busy, 0.3)])
    of_other = open_run(whole.path, client=other.id)
    assert len(of_other.tasks) == 5
    assert {row["client"] for row in rows(of_other, "select client from tasks")} == {other.id}
    assert len(of_other["submissions"]) < len(whole["submissions"])
    assert of_other.check().ok
    of_mine = open_run(whole.path, client=mine.id)
    assert len(of_mine.tasks) == 5
    from dask_strata.analysis.breakdown import breakdown

    spent = breakdown(of_mine)
    assert spent.seconds["other clients"] > 0.25
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)
    assert breakdown(whole).seconds["other clients"] == 0
    with pytest.raises(UsageError, match="No client matches nobody") as caught:
        open_run(whole.path, client="nobody")
    assert mine.id in caught.value.hint
    assert other.id in caught.value.hint
    listed = strata("tasks", whole.path, "--client", other.id, "--format", "json", check=True)
    assert listed.stdout.count('"key"') == 5
    shown = strata("show", whole.path, "--client", other.id, check=True).stdout
    assert f"dask-strata tasks {whole.path} --client {other.id} --sort" in shown
    ambiguous = strata("show", whole.path, "--client", "Client-")
    assert ambiguous.returncode == 2
    assert "2 clients match Client-." in ambiguous.stderr


def _busy(seconds: float) -> None:
    import time

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_the_clients_id_is_left_out_of_the_manifest_with_hosts(
    shared: tuple[LocalCluster, Client, Client], runs: Path
) -> None:
    """The id has the address of the host's network card; the run is read as before."""
    _, mine, _ = shared
    with record(runs, client=mine, leave_out="hosts") as run:
        mine.submit(sum, [1, 2], key="ours").result()
    found = open_run(run.path)
    assert mine.id.rpartition("-")[2] not in (run.path / "run.json").read_text()
    assert rows(found, "select key from tasks") == [{"key": "ours"}]
    clients = {row["client"] for row in rows(found, "select client from graphs")}
    assert clients == {found.manifest.only_client}

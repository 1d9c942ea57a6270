"""Several recordings of one cluster, and processes that join or leave during one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from dask_strata import Run, record
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.leftovers import assert_nothing_left

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("long_timeouts")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes with nannies; each test removes its recordings."""
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as made:
        yield made


def square(x: int) -> int:
    return x * x


def compute(client: Client, tag: str, n: int = 20) -> None:
    futures = [client.submit(square, i, key=f"{tag}-{i}") for i in range(n)]
    assert client.gather(futures) == [i * i for i in range(n)]


def tags(run: Run) -> set[str]:
    """Return the prefixes of the keys in a run's attempts."""
    return {
        row["prefix"]
        for row in rows(run, "select distinct split_part(key, '-', 1) as prefix from attempts")
    }


@pytest.mark.parametrize("first", ["inner", "outer"])
def test_two_clients_record_at_once_and_end_in_either_order(
    cluster: LocalCluster, client: Client, runs: Path, first: str
) -> None:
    """Each run is complete and has the tasks of its own time; no trace is left."""
    with Client(cluster) as other:
        outer = record(runs, client=client, clients="all")
        inner = record(runs, client=other, clients="all")
        ends = {"outer": outer, "inner": inner}
        with contextlib.ExitStack() as stack:
            begun = {"outer": stack.enter_context(outer)}
            compute(client, "one")
            begun["inner"] = stack.enter_context(inner)
            compute(other, "two")
            compute(client, "three")
            stack.pop_all()
            ends.pop(first).__exit__(None, None, None)
            compute(client, "four")
            (last,) = ends
            ends[last].__exit__(None, None, None)
        assert_nothing_left(client, runs)
        assert "_graph_to_futures" not in vars(other)
        compute(client, "five")
    for run in begun.values():
        assert_whole(run)
    both, alone = {"two", "three"}, {"four"}
    assert tags(begun["outer"]) == {"one"} | both | (alone if first == "inner" else set())
    assert tags(begun["inner"]) == both | (alone if first == "outer" else set())


_ORDERS = ["A+ A- B+ B-", "A+ B+ A- B-", "A+ B+ B- A-", "B+ A+ A- B-"]


@pytest.mark.parametrize("order", _ORDERS)
def test_two_clients_record_their_own_tasks_in_any_order(
    cluster: LocalCluster, client: Client, runs: Path, order: str
) -> None:
    """Each run has its own folder, name and end, and exactly its client's tasks of its time."""
    with Client(cluster) as other:
        clients = {"A": client, "B": other}
        blocks = {
            each: record(runs, client=clients[each], name=f"of {each}", tap=tap)
            for each, tap in (("A", "auto"), ("B", "plugin"))
        }
        begun: dict[str, Run] = {}
        expected: dict[str, set[str]] = {"A": set(), "B": set()}
        active: set[str] = set()
        for n, step in enumerate(order.split()):
            each, begins = step[0], step[1] == "+"
            if begins:
                begun[each] = blocks[each].__enter__()
                active.add(each)
            else:
                blocks[each].__exit__(None, None, None)
                active.discard(each)
            for name, of_name in clients.items():
                tag = f"{name.lower()}{'xyzw'[n]}"
                compute(of_name, tag, 5)
                if name in active:
                    expected[name].add(tag)
        assert_nothing_left(client, runs)
        assert "_graph_to_futures" not in vars(other)
    assert len({run.path for run in begun.values()}) == 2
    for each, run in begun.items():
        assert_whole(run)
        assert run.manifest.name == f"of {each}"
        assert run.state == "complete"
        assert tags(run) == expected[each]
        found = rows(
            run,
            "select count(*) as n, any_value(client) as client from tasks "
            "where not finished_before",
        )
        assert found == [{"n": 5 * len(expected[each]), "client": clients[each].id}]
        lines = rows(run, "select distinct client from client_submissions")
        assert lines == [{"client": clients[each].id}]


_DIES = """
import os, sys
from distributed import Client
from dask_strata import record

with Client(sys.argv[1]) as client, record(sys.argv[2], client=client, name="dies"):
    assert client.submit(abs, -1, key="dying-1").result() == 1
    os._exit(9)
"""


def test_a_client_that_dies_ends_its_own_recording_only(
    cluster: LocalCluster, client: Client, runs: Path, script: Any
) -> None:
    """The scheduler ends the run of a client that is gone; the other run goes on."""
    with record(runs, client=client, name="lives") as run:
        compute(client, "one")
        address = cluster.scheduler_address
        died = subprocess.run([sys.executable, script(_DIES), address, runs], check=False)
        assert died.returncode == 9
        wait_until(
            lambda: {each.state for each in runs_in(runs)} == {"recording", "complete"},
            what="the end of the other run",
        )
        compute(client, "two")
    assert_nothing_left(client, runs)
    assert_whole(run)
    assert tags(run) == {"one", "two"}
    [other] = [each for each in runs_in(runs) if each.manifest.name == "dies"]
    assert tags(other) == {"dying"}
    reasons = {
        row["role"]: row["exit_reason"]
        for row in rows(other, "select role, exit_reason from processes")
    }
    assert reasons["scheduler"] == "its client disconnected"
    assert {finding.process.partition("-")[0] for finding in other.check().missing} == {"client"}


def test_a_client_joins_no_recording_of_another_clients_tasks(
    cluster: LocalCluster, client: Client, runs: Path
) -> None:
    """Neither with the preload nor under `dask-strata record`, where it gets a run of its own."""
    preload = {"distributed.client.preload": ["dask_strata"], "dask_strata.runs": str(runs)}
    with record(runs, client=client, name="own") as run:
        with dask.config.set(preload), Client(cluster) as late:
            compute(late, "late")
        with (
            dask.config.set({**preload, "dask_strata.session": "s1", "dask_strata.name": "all"}),
            Client(cluster) as script,
        ):
            compute(script, "script")
            compute(client, "mine")
        compute(client, "after")
    assert_nothing_left(client, runs)
    wait_until(
        lambda: {each.state for each in runs_in(runs)} == {"complete"}, what="the end of both runs"
    )
    [of_script] = [each for each in runs_in(runs) if each.manifest.name == "all"]
    assert len(runs_in(runs)) == 2
    for each in (run, of_script):
        assert_whole(each)
    assert tags(run) == {"mine", "after"}
    assert tags(of_script) == {"script", "mine"}
    addresses = {row["address"] for row in rows(run, "select address from processes")}
    assert client.id in addresses
    assert not addresses & {late.id, script.id}


def test_one_client_records_nested_and_twice_the_same(
    cluster: LocalCluster, client: Client, runs: Path
) -> None:
    """A recording inside another of the same client does not affect the outer one."""
    with record(runs, client=client) as outer:
        compute(client, "before")
        with record(runs, client=client) as inner, record(runs, client=client, tap="plugin") as by:
            compute(client, "within")
        compute(client, "after")
    assert_nothing_left(client, runs)
    for run in (outer, inner, by):
        assert_whole(run)
        assert [f.text for f in run.check().findings if "was recorded by" in f.text] == []
    assert tags(outer) == {"before", "within", "after"}
    assert tags(inner) == tags(by) == {"within"}
    lines = [rows(run, "select code from client_submissions") for run in (outer, inner, by)]
    assert [len(found) for found in lines] == [60, 20, 20]


def test_a_preload_and_a_block_record_at_once(runs: Path) -> None:
    """The block's run has the block's tasks; the preload's run has all tasks, also later ones."""
    with (
        dask.config.set(
            {
                "distributed.scheduler.preload": ["dask_strata"],
                "distributed.client.preload": ["dask_strata"],
                "dask_strata.runs": str(runs / "whole"),
            }
        ),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        compute(client, "before")
        with record(runs / "block", client=client) as block:
            compute(client, "within")
        compute(client, "after")
    (whole,) = runs_in(runs / "whole")
    wait_until(lambda: runs_in(runs / "whole")[0].state == "complete", what="the preload's run")
    (whole,) = runs_in(runs / "whole")
    for run in (whole, block):
        assert_whole(run)
    assert tags(whole) == {"before", "within", "after"}
    assert tags(block) == {"within"}
    assert not [t.name for t in threading.enumerate() if "dask-strata" in t.name]


async def add_plugins_again(dask_scheduler: Any = None) -> list[Any]:
    """Add the plugins to all workers and nannies once more, as Dask may do."""
    statuses = []
    for nanny, operation in ((False, "plugin-add"), (True, "plugin_add")):
        plugins = dask_scheduler.nanny_plugins if nanny else dask_scheduler.worker_plugins
        for name, plugin in plugins.items():
            if name.startswith("dask-strata"):
                message = {"op": operation, "plugin": plugin, "name": name}
                answers = await dask_scheduler.broadcast(msg=message, nanny=nanny)
                statuses += [answer["status"] for answer in answers.values()]
    return statuses


def test_a_client_joins_the_recording_of_the_scheduler(runs: Path) -> None:
    """It has the source lines of a client that connects during a shorter recording of all tasks."""
    preload = {f"distributed.{role}.preload": ["dask_strata"] for role in ("scheduler", "client")}
    with (
        dask.config.set({**preload, "dask-strata.runs": str(runs)}),
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        record(runs, client=client, name="block", clients="all"),
        Client(cluster, set_as_default=False) as late,
    ):
        compute(late, "late", 1)
    [run] = [run for run in runs_in(runs) if run.name != "block"]
    assert_whole(run)
    assert rows(run, "select first_key, function from client_submissions") == [
        {
            "first_key": "late-0",
            "function": "<listcomp>" if sys.version_info < (3, 12) else "compute",
        }
    ]


def test_a_plugin_that_is_added_twice_records_once(client: Client, runs: Path) -> None:
    """Dask may add a plugin twice: one recorder is active at a time, and both are removed."""
    with record(runs, client=client) as run:
        compute(client, "one")
        assert client.run_on_scheduler(add_plugins_again) == ["OK"] * 4
        compute(client, "two")
    assert_nothing_left(client, runs)
    assert_whole(run)
    assert tags(run) == {"one", "two"}
    found = rows(run, "select role, address, start, stop from processes order by start")
    assert sum(row["role"] == "nanny" for row in found) == 2
    by_worker: dict[str, list[Any]] = {}
    for row in found:
        if row["role"] == "worker":
            by_worker.setdefault(row["address"], []).append(row)
    for first, second in by_worker.values():
        assert first["stop"] <= second["start"]


def test_a_nanny_whose_worker_restarts_at_the_end_detaches(
    client: Client, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler cannot reach a nanny without a worker: the nanny checks the announcement."""
    monkeypatch.setattr("dask_strata.recorder.plugins._REMOVAL_SECONDS", 1)
    victim = next(iter(client.nthreads()))
    pid = client.run(os.getpid, workers=[victim])[victim]
    with record(runs, client=client) as run:
        compute(client, "one")
        os.kill(pid, 9)
        wait_until(lambda: victim not in client.nthreads(), what="the end of the worker")
    client.wait_for_workers(2)
    assert_nothing_left(client, runs)
    compute(client, "two")
    assert tags(run) == {"one"}
    cut = {f.process for f in run.check().incomplete if "was killed" in f.text}
    (process,) = rows(run, f"select process from processes where pid = {pid}")
    assert cut == {process["process"]}


def test_a_restarted_cluster_is_still_announced(client: Client, runs: Path) -> None:
    """Dask clears all metadata in a restart: clients that connect later still find the run."""
    with record(runs, client=client, clients="all") as run:
        client.restart(wait_for_workers=False)
        client.wait_for_workers(1)
        compute(client, "after")
        with (
            dask.config.set({"distributed.client.preload": ["dask_strata"]}),
            Client(client.scheduler.address) as late,
        ):
            compute(late, "late")
            name = late.id
    assert_nothing_left(client, runs)
    assert tags(run) == {"after", "late"}
    assert name in {row["address"] for row in rows(run, "select address from processes")}

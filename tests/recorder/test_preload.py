"""Recording by preload: separate schedulers and workers, unchanged clients."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.deployment import PRELOAD, Deployment, workers_of

pytestmark = pytest.mark.long


def one(run: Run, query: str) -> Any:
    """Return the single value of a query's result."""
    (row,) = rows(run, query)
    (value,) = row.values()
    return value


def make_wait_for() -> Callable[[str, int], int]:
    """Return a task that waits for a file; as a local function it is pickled by value."""

    def wait_for(path: str, result: int) -> int:
        while not os.path.exists(path):  # noqa: PTH110  it imports as little as possible
            time.sleep(0.02)
        return result

    return wait_for


def assert_all_ended(run: Run) -> None:
    """Assert that each recorded process has written its last row."""
    assert run.state == "complete"
    assert not rows(run, "select * from processes where exit_reason is null or stop is null")


def assert_whole_but_for_killed(run: Run) -> None:
    """Assert that only the last rows of workers are missing that Dask's nannies killed.

    If a retired worker and its nanny close at the same time, each may wait for the other until the
    nanny kills the process after 4 s. Without recording this happens as often. One whose last row
    is on record is whole.
    """
    assert run.state == "complete"
    killed = rows(
        run,
        "select p.process from processes p join worker_events e on e.action = 'process-exit' "
        "and e.reason = format('pid {} was killed by SIGKILL', p.pid) "
        "where p.role = 'worker' and p.stop is null",
    )
    incomplete = run.check().incomplete
    assert {f.process for f in incomplete} == {row["process"] for row in killed}
    assert all("was killed" in f.text for f in incomplete)
    assert any(f.severity == "ok" for f in run.check().findings)


SCRIPT = """
    import sys
    from distributed import Client

    def square(x):
        return x * x

    if __name__ == "__main__":
        with Client(scheduler_file=sys.argv[1]) as client:
            client.wait_for_workers(2)
            squares = client.map(square, range(30), pure=False)
            print(client.submit(sum, squares, key="sum").result())
"""


def test_a_deployment_by_hand_is_recorded_with_an_unchanged_client(
    deployment: Deployment, script: Callable[..., Path]
) -> None:
    """Scheduler, nannies and workers are recorded; the client's output is as usual."""
    deployment.scheduler(*PRELOAD)
    deployment.worker(*PRELOAD, "--name", "with-nanny")
    deployment.worker(*PRELOAD, "--name", "without-nanny", "--no-nanny")
    done = subprocess.run(
        [sys.executable, script(SCRIPT), deployment.file],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "8555\n", "")
    run = deployment.run()
    assert_whole(run)
    assert_all_ended(run)
    found = rows(run, "select role, name, transport from processes order by role, name")
    assert [(r["role"], r["name"]) for r in found if r["role"] != "scheduler"] == [
        ("nanny", "with-nanny"),
        ("worker", "with-nanny"),
        ("worker", "without-nanny"),
    ]
    assert {r["transport"] for r in found} == {"file"}
    assert one(run, "select count(*) from tasks where prefix = 'square' and state = 'memory'") == 30
    assert one(run, "select count(*) from graph_edges where key = 'sum'") == 30
    actions = rows(run, "select action from clients order by time, seq")
    assert [a["action"] for a in actions] == ["connect", "disconnect"]
    workers = {r["worker"] for r in rows(run, "select worker from workers")}
    assert len(workers) == 2
    assert {r["worker"] for r in rows(run, "select worker from attempts")} <= workers


def test_workers_come_late_leave_and_are_retired(deployment: Deployment) -> None:
    """Starts and ends of workers are recorded with reasons, and the result is right."""
    deployment.environment["PYTHONFAULTHANDLER"] = "1"
    deployment.scheduler(*PRELOAD)
    first = deployment.worker("--name", "first", "--no-nanny")
    go = deployment.folder / "go"
    with deployment.client() as client:
        client.wait_for_workers(1)
        early = [client.submit(pow, i, 2, key=f"early-{i}") for i in range(5)]
        assert sum(client.gather(early)) == 30

        deployment.worker("--name", "late")
        client.wait_for_workers(2)
        held = [client.submit(lambda x: x, i, key=f"held-{i}") for i in range(20)]
        assert sum(client.gather(held)) == 190
        slow = [client.submit(make_wait_for(), str(go), i, key=f"slow-{i}") for i in range(2)]
        wait_until(
            lambda: sum(map(len, client.processing().values())) == 2, what="a task on each worker"
        )
        addresses = workers_of(client)
        first.terminate()  # it executes a task, which moves to the other worker
        wait_until(lambda: set(workers_of(client)) == {"late"}, what="the end of the first worker")
        go.touch()
        assert not deployment.ended_by_signal(first) or first.returncode == 0
        assert sum(client.gather(slow)) == 1
        assert sum(client.gather(held)) == 190

        deployment.worker("--name", "last", "--no-nanny")
        client.wait_for_workers(2)
        client.retire_workers([addresses["late"]], close_workers=True)
        wait_until(
            lambda: set(workers_of(client)) == {"last"}, what="the end of the retired worker"
        )
        assert sum(client.gather(held)) == 190
    run = deployment.run()
    assert_whole(run)
    assert_all_ended(run)
    events = rows(run, "select worker, name, action, reason from worker_events order by time, seq")
    added = [e["name"] for e in events if e["action"] == "add"]
    assert added == ["first", "late", "last"]
    removed = [e["worker"] for e in events if e["action"] == "remove"]
    assert removed[:2] == [addresses["first"], addresses["late"]]
    assert len(removed) == 3
    retired = [e["worker"] for e in events if e["action"] == "retired"]
    assert set(retired) == {addresses["late"]}
    found = rows(run, "select name, end_reason from workers")
    assert {r["name"] for r in found} == {"first", "late", "last"}
    assert all(r["end_reason"] for r in found)
    start = {r["name"]: r["start"] for r in rows(run, "select name, start from workers")}
    assert start["first"] < start["late"] < start["last"]
    lost = rows(run, "select prefix, worker from attempts where outcome = 'lost'")
    assert [(r["prefix"], r["worker"]) for r in lost] == [("slow", addresses["first"])]


def test_a_worker_without_a_name_has_its_address_and_its_nanny_none(
    deployment: Deployment,
) -> None:
    """Dask names such a worker by its address; its nanny has no name."""
    deployment.scheduler(*PRELOAD)
    deployment.worker()
    with deployment.client() as client:
        client.wait_for_workers(1)
        [address] = client.nthreads()
    run = deployment.run()
    found = rows(run, "select name from processes where role in ('nanny', 'worker') order by role")
    assert [row["name"] for row in found] == [None, address]
    assert rows(run, "select count(*) as n from worker_events where name = 'None'") == [{"n": 0}]


def test_a_worker_that_is_killed_is_restarted_by_its_nanny(deployment: Deployment) -> None:
    """SIGKILL, the lost attempts and the new process are recorded, and the result is right."""
    deployment.scheduler(*PRELOAD)
    deployment.worker("--name", "victim")
    deployment.worker("--name", "other")
    go = deployment.folder / "go"
    with deployment.client() as client:
        client.wait_for_workers(2)

        victim = workers_of(client)["victim"]
        pid = client.run(os.getpid, workers=[victim])[victim]
        waiting = [
            client.submit(
                make_wait_for(),
                str(go),
                i,
                key=f"waiting-{i}",
                workers=["victim"],
                allow_other_workers=True,
            )
            for i in range(3)
        ]
        wait_until(lambda: len(client.processing()[victim]) == 3, what="tasks on the victim")
        wait_until(
            lambda: client.run(lambda dask_worker: dask_worker.state.executing_count)[victim] == 1,
            what="a task that executes",
        )
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: workers_of(client).get("victim", victim) != victim,
            what="the new process",
        )
        go.touch()
        assert sum(client.gather(waiting)) == 3
        new = workers_of(client)["victim"]
        new_pid = client.run(os.getpid, workers=[new])[new]
    run = deployment.run()
    assert run.state == "complete"
    events = rows(
        run,
        "select e.action, e.reason from worker_events e join processes p using (process) "
        "where p.role = 'nanny' and e.name = 'victim' order by e.time, e.seq",
    )
    # The kernel's counter did not rise: the test killed the process.
    no_oom_kill = next(e for e in events if e["action"] == "no-oom-kill")
    assert no_oom_kill["reason"].startswith(f"pid {pid}: ")
    events.remove(no_oom_kill)
    assert [(e["action"], e["reason"]) for e in events][:3] == [
        ("process-start", f"pid {pid}"),
        ("process-exit", f"pid {pid} was killed by SIGKILL"),
        ("process-start", f"pid {new_pid}"),
    ]
    attempts = rows(run, "select key, worker, outcome from attempts order by key, attempt")
    assert {a["key"] for a in attempts} == {f"waiting-{i}" for i in range(3)}
    for i in range(3):
        first, *_, last = [a for a in attempts if a["key"] == f"waiting-{i}"]
        assert (first["worker"], first["outcome"]) == (victim, "lost")
        assert last["outcome"] == "memory"
        assert last["worker"] != victim
    # Only the last rows of the killed process are missing.
    (killed,) = rows(run, f"select process from processes where pid = {pid}")
    assert [f.process for f in run.check().incomplete] == [killed["process"]]
    assert "was killed" in run.check().incomplete[0].text
    assert one(run, f"select count(exit_reason) from processes where pid = {new_pid}") == 1


ADAPTIVE = """
    import time
    from distributed import Client, LocalCluster

    def nap(i):
        time.sleep(0.2)
        return i

    if __name__ == "__main__":
        with LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            cluster.adapt(
                minimum=0, maximum=2, interval="100ms", wait_count=2, target_duration="1s"
            )
            print(sum(client.gather(client.map(nap, range(30)))))
            deadline = time.monotonic() + 60
            while cluster.scheduler.workers and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not cluster.scheduler.workers
"""


def test_adaptive_scaling_and_environment_variables(
    script: Callable[..., Path], runs: Path, tmp_path: Path
) -> None:
    """With environment variables alone a script is recorded, including adaptive scaling."""
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "dask_strata",
        "DASK_DISTRIBUTED__CLIENT__PRELOAD": "dask_strata",
        "DASK_DASK_STRATA__RUNS": str(runs),
        "DASK_DASK_STRATA__NAME": "by variables",
        "DASK_DASK_STRATA__FLUSH_INTERVAL": "50ms",
    }
    path = script(ADAPTIVE)
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "435\n"), done.stderr
    (run,) = runs_in(runs)
    assert_whole_but_for_killed(run)
    assert run.manifest.name == "by variables"
    assert run.flush_interval_seconds == 0.05
    events = rows(run, "select worker, action from worker_events where worker is not null")
    added = {e["worker"] for e in events if e["action"] == "add"}
    assert len(added) == 2
    for action in ("retired", "remove"):
        assert {e["worker"] for e in events if e["action"] == action} == added
    assert not rows(run, "select * from workers where end_reason is null or process is null")
    assert one(run, "select count(*) from tasks where prefix = 'nap' and state = 'memory'") == 30
    assert run.script["path"] == str(path)


def test_a_configuration_file_is_enough(
    deployment: Deployment, script: Callable[..., Path]
) -> None:
    """With preloads and settings in a YAML file no command needs another option."""
    config = deployment.folder / "dask.yaml"
    config.write_text(
        textwrap.dedent(f"""
            distributed:
              scheduler:
                preload: [dask_strata]
              worker:
                preload: [dask_strata]
              nanny:
                preload: [dask_strata]
              client:
                preload: [dask_strata]
            dask_strata:
              runs: {deployment.runs}
              name: by-file
              sample-interval: 200ms
              code: false
        """)
    )
    deployment.environment = {"DASK_CONFIG": str(config)}
    deployment.scheduler()
    deployment.worker()
    deployment.worker("--no-nanny")
    done = subprocess.run(
        [sys.executable, script(SCRIPT), deployment.file],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **deployment.environment},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "8555\n"), done.stderr
    run = deployment.run()
    assert_whole(run)
    assert_all_ended(run)
    assert run.manifest.name == "by-file"
    roles = rows(run, "select role, count(*) as n from processes group by role order by role")
    assert [(r["role"], r["n"]) for r in roles] == [
        ("client", 1),
        ("nanny", 1),
        ("scheduler", 1),
        ("worker", 2),
    ]
    assert "text" not in run.script
    sources = rows(run, "select distinct source from config where name = 'dask_strata.name'")
    assert [s["source"] for s in sources] == [str(config)]


def test_a_preload_that_is_switched_off_records_nothing(deployment: Deployment) -> None:
    """With `enabled: false` the preload does nothing."""
    deployment.environment["DASK_DASK_STRATA__ENABLED"] = "false"
    deployment.scheduler(*PRELOAD)
    deployment.worker(*PRELOAD, "--no-nanny")
    with deployment.client() as client:
        assert client.submit(abs, -1).result() == 1
    deployment.end_all()
    assert not deployment.runs.exists()


def test_a_cluster_works_if_the_folder_cannot_be_created(
    deployment: Deployment,
) -> None:
    """If no run can be created, the cluster works and logs one warning."""
    deployment.runs.write_text("a file, where a folder should be")
    deployment.scheduler(*PRELOAD)
    deployment.worker(*PRELOAD, "--no-nanny")
    with deployment.client() as client:
        assert client.submit(abs, -1).result() == 1
    deployment.end_all()
    assert deployment.output().count("dask-strata does not record") == 1


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_a_worker_that_does_not_see_the_folder_sends_its_records(
    deployment: Deployment, nanny: str
) -> None:
    """All records of a worker that cannot see the folder are sent over Dask's comms."""
    unshare = shutil.which("unshare")
    probe = [str(unshare), "--mount", "mount", "-t", "tmpfs", "none", str(deployment.folder)]
    if unshare is None or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("NOT TESTED: this needs `unshare --mount`, which is root's here")
    deployment.runs.mkdir()
    deployment.scheduler(*PRELOAD)
    # The worker sees an empty tmpfs in place of the folder of runs.
    hide = f'mount -t tmpfs none "{deployment.runs}" && exec "$@"'
    blind = (unshare, "--mount", "sh", "-c", hide, "sh")
    deployment.worker(nanny, "--name", "blind", before=blind)
    deployment.worker("--no-nanny", "--name", "sighted")
    with deployment.client() as client:
        client.wait_for_workers(2)
        listings = client.run(os.listdir, str(deployment.runs))
        found = {name: listings[address] for name, address in workers_of(client).items()}
        assert {name: len(entries) for name, entries in found.items()} == {"blind": 0, "sighted": 1}

        data = [
            client.submit(bytes, 1000 + i, key=f"data-{i}", workers=[("blind", "sighted")[i % 2]])
            for i in range(40)
        ]
        assert len(client.submit(b"".join, data, key="all", workers=["blind"]).result()) == 40780
        assert client.run(os.listdir, str(deployment.runs)) == listings
    run = deployment.run()
    found = rows(run, "select role, name, process, transport from processes where name is not null")
    transports = {(r["role"], r["name"]): r["transport"] for r in found if r["role"] != "scheduler"}
    expected = {("worker", "blind"): "comm", ("worker", "sighted"): "file"}
    if nanny == "--nanny":
        expected["nanny", "blind"] = "comm"
    assert transports == expected
    for row in found:
        assert (run.path / "segments" / f"{row['process']}.seg").stat().st_size
    assert_whole(run)
    assert_all_ended(run)
    between = rows(run, "select seen_by from transfers where destination is not null")
    assert {r["seen_by"] for r in between} == {"both"}
    assert one(run, "select count(*) from tasks where state = 'memory'") == 41

"""`dask-strata record`: clusters of all kinds are recorded from start to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.recorded import (
    Script,
    Strata,
    assert_all_ended,
    keys_of,
    only_run,
)
from tests.conftest import assert_whole, rows, runs_in


def test_a_client_that_starts_its_own_cluster_is_recorded_completely(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`Client()` and its scheduler, workers and nannies are on record from first to last."""
    path = script("""
        from distributed import Client

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            client = Client(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            futures = [client.submit(double, i, key=f"double-{i}") for i in range(20)]
            print(sum(client.gather(futures)))
            client.close()
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "380\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {f"double-{i}" for i in range(20)}
    assert {row["state"] for row in rows(run, "select state from tasks")} == {"memory"}
    roles = rows(
        run,
        "select role, count(*) as n from processes where role <> 'record' group by 1 order by 1",
    )
    assert [(r["role"], r["n"]) for r in roles] == [
        ("client", 1),
        ("nanny", 2),
        ("scheduler", 1),
        ("worker", 2),
    ]
    lines = rows(run, "select distinct file, code from client_submissions")
    assert [(r["file"], "client.submit(double" in r["code"]) for r in lines] == [(str(path), True)]
    assert str(run.path.relative_to(runs.parent)) in done.stderr


def test_a_cluster_in_one_process_is_recorded_completely(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`LocalCluster(processes=False)` keeps everything in the script's process, and on record."""
    path = script("""
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
        client = Client(cluster)
        print(client.submit(sum, client.map(abs, range(-10, 0), pure=False)).result())
        client.close()
        cluster.close()
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "55\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    prefixes = rows(run, "select prefix, count(*) as n from tasks group by prefix order by prefix")
    assert [(r["prefix"], r["n"]) for r in prefixes] == [("abs", 10), ("sum", 1)]
    pids = rows(
        run,
        "select count(distinct pid) as pids, count(*) as n from processes where role <> 'record'",
    )
    assert pids == [{"pids": 1, "n": 4}]


@pytest.mark.long
def test_a_cluster_that_is_not_closed_is_recorded_completely(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A script that does not close its cluster and client has a complete record."""
    path = script("""
        from distributed import Client

        client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
        print(client.submit(sum, [1, 2], key="left-open").result())
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "3\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"left-open"}


@pytest.mark.long
def test_cluster_and_client_in_a_with_are_recorded_completely(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`with LocalCluster(…) as cluster, Client(cluster)` is on record to its end."""
    path = script("""
        from distributed import Client, LocalCluster

        if __name__ == "__main__":
            with Client(
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            ) as client:
                total = client.submit(sum, [1, 2, 3], key="total")
                print(client.submit(abs, total, key="abs").result())
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "6\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"total", "abs"}
    edges = rows(run, "select distinct key, dependency from graph_edges")
    assert edges == [{"key": "abs", "dependency": "total"}]


TWO_CLUSTERS = """
    from distributed import Client, LocalCluster

    def cluster():
        return LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
"""


def assert_a_run_each(folder: Path) -> None:
    """Assert that there are two complete runs, each with the tasks of its own cluster only."""
    found = runs_in(folder)
    assert sorted(sorted(keys_of(run)) for run in found) == [
        [f"{name}-{i}" for i in range(5)] for name in ("first", "second")
    ]
    for run in found:
        assert_whole(run)
        assert_all_ended(run)
        seen = rows(run, "select first_key from client_submissions")
        assert {row["first_key"] for row in seen} == keys_of(run)


@pytest.mark.long
def test_two_clusters_one_after_the_other_are_a_run_each(
    strata: Strata, script: Script, runs: Path
) -> None:
    """Each of two clusters in turn has a run with its tasks and no others."""
    path = script(
        TWO_CLUSTERS
        + """
    for name in ("first", "second"):
        with cluster() as made, Client(made) as client:
            client.gather([client.submit(abs, i, key=f"{name}-{i}") for i in range(5)])
    """
    )
    done = strata("record", "-o", runs, path, check=True)
    assert_a_run_each(runs)
    for run in runs_in(runs):
        assert run.path.name in done.stderr


@pytest.mark.release
@pytest.mark.long
def test_two_clusters_at_once_are_a_run_each(strata: Strata, script: Script, runs: Path) -> None:
    """Each of two clusters in one process has a run with its tasks and no others."""
    path = script(
        TWO_CLUSTERS
        + """
    with cluster() as one, cluster() as two, Client(one) as a, Client(two) as b:
        for i in range(5):
            x, y = a.submit(abs, i, key=f"first-{i}"), b.submit(abs, i, key=f"second-{i}")
            assert (x.result(), y.result()) == (i, i)
    """
    )
    done = strata("record", "-o", runs, path, check=True)
    assert_a_run_each(runs)
    for run in runs_in(runs):
        assert run.path.name in done.stderr


ELSEWHERE = """
    import sys
    from distributed import Client

    with Client(scheduler_file=sys.argv[1]) as client:
        print(sum(client.gather([client.submit(abs, i, key=f"abs-{i}") for i in range(10)])))
"""


@pytest.mark.long
def test_a_scheduler_elsewhere_is_recorded_while_the_script_runs(
    strata: Strata, script: Script, runs: Path, elsewhere: Callable[..., Path]
) -> None:
    """A scheduler that was not recorded is recorded while the script is connected."""
    file = elsewhere()
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert done.stdout == "45\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {f"abs-{i}" for i in range(10)}
    assert run.path.name in done.stderr
    here = rows(run, "select distinct pid from processes where role = 'client'")
    there = rows(run, "select distinct pid from processes where role = 'scheduler'")
    assert len(here) == len(there) == 1
    assert here != there
    # And again: the first recording has left nothing that the second one stumbles over.
    strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    first, second = runs_in(runs)
    assert_whole(second)
    assert keys_of(first) == keys_of(second)


@pytest.mark.long
def test_a_client_joins_the_run_of_a_recorded_scheduler(
    strata: Strata, script: Script, runs: Path, tmp_path: Path, elsewhere: Callable[..., Path]
) -> None:
    """A client of a scheduler with the preload is recorded in that scheduler's run."""
    there = tmp_path / "there"
    file = elsewhere("--preload", "dask_strata", DASK_DASK_STRATA__RUNS=str(there))
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert done.stdout == "45\n"
    assert not runs_in(runs)
    run = only_run(there)
    assert run.state == "recording"
    assert keys_of(run) == {f"abs-{i}" for i in range(10)}
    clients = rows(run, "select exit_reason from processes where role = 'client'")
    assert [c["exit_reason"] for c in clients] == ["closed"]
    assert len(rows(run, "select * from client_submissions")) == 10
    assert_whole(run)


@pytest.mark.long
def test_the_run_of_a_recorded_scheduler_is_named(
    strata: Strata, script: Script, runs: Path, tmp_path: Path, elsewhere: Callable[..., Path]
) -> None:
    """Where the script's client was recorded in its scheduler's own run, that run is named."""
    there = tmp_path / "there"
    file = elsewhere("--preload", "dask_strata", DASK_DASK_STRATA__RUNS=str(there))
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert only_run(there).path.name in done.stderr
    assert "nothing was recorded" not in done.stderr


def test_a_script_without_a_cluster_runs_with_a_message(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A script without a cluster runs; a line reports it, and a second one how to get one."""
    path = script("print('no Dask here'); raise SystemExit(4)")
    done = strata("record", "-o", runs, path)
    assert (done.returncode, done.stdout) == (4, "no Dask here\n")
    assert "nothing was recorded" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not runs_in(runs)

"""Profiles on request: functions, coroutines and threads of chosen roles, and no trace left."""

from __future__ import annotations

import json
import os
import pstats
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client  # noqa: TC002  as in the other tests

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.profile import summarize_profile
from dask_strata.importers.profiles.yappi_files import read_profile
from tests.conftest import assert_whole, rows, runs_in

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]
Script = Callable[..., Path]

PIPELINE = """
    from distributed import Client
    from functions import spin, wait_a_little

    if __name__ == "__main__":
        with Client(n_workers=2, threads_per_worker=2, dashboard_address=":0") as client:
            client.gather(client.map(spin, range(8), pure=False))
            client.gather(client.map(wait_a_little, range(4), pure=False))
        print("done")
"""


#: A module beside the script: cloudpickle sends its functions by name, so they keep their file.
FUNCTIONS = """
    import asyncio

    def spin(n):
        return sum(square(i) for i in range(20_000))

    def square(i):
        return i * i

    async def wait_a_little(n):
        await asyncio.sleep(0.01)
        return n
"""


def pipeline(script: Script) -> Path:
    """Write the script and the module beside it; return the script's path."""
    script(FUNCTIONS, "functions.py")
    return script(PIPELINE)


def only_run(runs: Path) -> Run:
    """Return the one run in a folder."""
    found = runs_in(runs)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("clock", ["wall", pytest.param("cpu", marks=pytest.mark.long)])
def test_functions_coroutines_and_threads_of_workers_are_recorded(
    strata: Strata, script: Script, runs: Path, clock: str
) -> None:
    """Each call of the user's functions is counted, by thread, clock, kind and owner."""
    done = strata("record", "--yappi", clock, "-o", runs, pipeline(script), check=True)
    run = only_run(runs)
    assert_whole(run)
    found = {
        row["name"]: row
        for row in rows(
            run,
            "select name, any_value(owner) as owner, bool_or(is_coroutine) as coroutine, "
            "bool_or(waiting) as waiting, any_value(clock) as clock, sum(ncall) as n "
            "from functions where module like '%functions.py' group by 1",
        )
    }
    assert found["spin"] == {
        "name": "spin",
        "owner": "user",
        "coroutine": False,
        "waiting": False,
        "clock": clock,
        "n": 8,
    }
    assert found["square"]["n"] == 160_000
    assert (found["wait_a_little"]["coroutine"], found["wait_a_little"]["n"]) == (True, 4)
    # Executions and profile identify threads alike.
    ran = rows(run, "select distinct process, thread from executions where kind = 'thread'")
    seen = rows(run, "select distinct process, thread from functions where name = 'spin'")
    assert sorted(map(str, seen)) == sorted(map(str, ran))
    assert rows(run, "select thread_name from functions where name = 'spin'")[0]["thread_name"]
    roles = rows(run, "select distinct role from functions join processes using (process)")
    assert roles == [{"role": "worker"}]
    assert len(run.profile_threads) > 0
    waits = rows(run, "select bool_and(waiting) as w from functions where name = 'TCP.read'")
    assert waits == [{"w": clock == "wall"}]
    assert f"{clock} clock, 2 processes" in done.stderr
    assert f"dask-strata profile {run.path.relative_to(runs.parent)}" in done.stderr


def test_idle_threads_of_the_recorder_count_as_waiting(client: Client, runs: Path) -> None:
    """By the wall clock a recorder's thread is idle nearly all the time, and its share is small."""

    def nap(_: int) -> None:
        time.sleep(0.5)

    with dask_strata.record(runs, client=client, yappi="wall") as run:
        began = time.monotonic()
        client.gather(client.map(nap, range(48), pure=False))
        seconds = time.monotonic() - began
    profile = summarize_profile(run)
    assert profile is not None
    shares = {share.owner: share.share for share in profile.shares}
    assert shares["user"] > 0.5
    assert shares["recorder"] < 0.2  # 0.33 and more if its idle threads count
    writers = rows(
        run,
        "select process, sum(own_seconds) as seconds, "
        "sum(own_seconds) filter (waiting) as waiting "
        "from functions where thread_name like 'dask-strata-%-writer' group by process",
    )
    assert len(writers) == profile.n_processes
    for writer in writers:
        assert writer["waiting"] > 0.8 * seconds
        assert writer["waiting"] > 0.8 * writer["seconds"]


@pytest.mark.release
def test_other_tools_get_files_that_agree_with_the_record(
    strata: Strata, script: Script, runs: Path
) -> None:
    """Each process writes a pstat and a callgrind file with the recorded calls."""
    strata("record", "--yappi", "cpu", "-o", runs, pipeline(script), check=True)
    run = only_run(runs)
    calls = {
        row["process"]: int(row["n"])
        for row in rows(
            run, "select process, sum(ncall) as n from functions where name = 'spin' group by 1"
        )
    }
    folder = run.path / "profiles"
    assert len(list(folder.iterdir())) == 4
    for process, n in calls.items():
        by_python = pstats.Stats(str(folder / f"{process}.pstat")).stats
        assert next(v[0] for (_, _, name), v in by_python.items() if name == "spin") == n
        for form in ("pstat", "callgrind"):
            read = read_profile(folder / f"{process}.{form}")
            # A callgrind file has calls only with their callers, which Yappi may lack.
            found = next(row["ncall"] for row in read if row["name"] == "spin")
            assert found == n or (form == "callgrind" and found is None)
    assert not [f for f in run.check().findings if "into profiles" in f.text]
    gone = min(folder.iterdir())
    gone.unlink()
    check = open_run(run.path).check()
    [finding] = [f for f in check.findings if "into profiles" in f.text]
    assert (check.ok, finding.process, gone.name in finding.text) == (True, gone.stem, True)


@pytest.mark.release
def test_the_profile_command_sums_up_by_kind(strata: Strata, script: Script, runs: Path) -> None:
    """`profile` sums up by function, module, owner and thread; `map` counts its cell."""
    strata("record", "--yappi", "cpu", "-o", runs, pipeline(script), check=True)
    run = only_run(runs)
    done = strata("profile", run.path, "--format", "json", "--limit", "0", check=True)
    table = json.loads(done.stdout)
    assert next(row["ncall"] for row in table if row["name"] == "spin") == 8
    assert sum(row["share"] for row in table) == pytest.approx(1)
    owners = json.loads(
        strata("profile", run.path, "--by", "owner", "--format", "json", check=True).stdout
    )
    assert {"user", "python", "dask", "recorder"} <= {row["owner"] for row in owners}
    for by in ("module", "thread"):
        assert strata("profile", run.path, "--by", by, "--sort", "-ncall", check=True).stdout
    worker = rows(run, "select address, process from processes where role = 'worker' limit 1")[0]
    part = json.loads(
        strata("profile", run.path, "--process", worker["address"], "--format", "json").stdout
    )
    assert 0 < sum(row["ncall"] for row in part) < sum(row["ncall"] for row in table)
    assert strata("profile", run.path, "--process", "nobody").returncode == 2
    cells = json.loads(strata("map", run.path, "--format", "json", check=True).stdout)
    cell = next(c for c in cells if c["level"] == "coroutine")
    assert cell["rows"]["functions"] > 0


@pytest.mark.release
def test_without_a_profile_the_command_to_record_one_is_shown(
    strata: Strata, script: Script, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`profile` of a run that nobody profiled, Dask neither, fails with the command to use."""
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
    strata("record", "-q", "-o", runs, pipeline(script), check=True)
    done = strata("profile", only_run(runs).path)
    assert done.returncode == 1
    assert "record --yappi" in done.stderr
    assert not (only_run(runs).path / "profiles").exists()


def test_a_running_cluster_is_profiled_for_a_while_and_no_trace_is_left(
    client: Client, runs: Path
) -> None:
    """Scheduler, client and workers by choice; each interval adds up; Yappi is stopped, cleared."""

    def present() -> tuple[bool, bool, int]:
        import yappi

        hook = threading.getprofile()
        return yappi.is_running(), hook is None, len(yappi.get_func_stats())

    def count(n: int) -> int:
        return sum(range(n))

    with dask_strata.record(
        runs,
        client=client,
        yappi="cpu",
        yappi_interval="50ms",
        yappi_roles=["worker", "scheduler", "client"],
    ) as run:
        assert all(running for running, _, _ in client.run(present).values())
        for _ in range(10):
            client.gather(client.map(count, range(20), pure=False))
    assert_whole(run)
    roles = rows(run, "select distinct role from functions join processes using (process)")
    # The scheduler and the client are one process here, whose profile is one.
    assert {"worker"} < {row["role"] for row in roles} <= {"worker", "scheduler", "client"}
    calls = "select sum(ncall) as n, count(distinct time) as times from functions"
    found = rows(run, f"{calls} where name like '%count' and owner = 'user'")
    assert found[0]["n"] == 200
    assert rows(run, "select count(distinct time) as n from functions")[0]["n"] > 4
    assert not rows(run, "select * from functions where ncall < 0 or own_seconds < 0")
    assert set(client.run(present).values()) == {(False, True, 0)}
    assert present() == (False, True, 0)


def test_too_many_functions_end_the_profile_and_are_a_loss(client: Client, runs: Path) -> None:
    """A worker beyond the bound keeps its profile so far; `check` reports the remedy."""

    def bound(most: int) -> int:
        from dask_strata.recorder.profiling import yappi_profiler

        before, yappi_profiler.MOST_ENTRIES = yappi_profiler.MOST_ENTRIES, most
        return before

    def count(n: int) -> int:
        return sum(range(n))

    before = client.run(bound, 100)
    try:
        with dask_strata.record(runs, client=client, yappi="cpu", yappi_interval="50ms") as run:
            for _ in range(3):
                client.gather(client.map(count, range(20), pure=False))
                time.sleep(0.6)  # longer than the interval of samples
    finally:
        client.run(bound, 50_000)
    assert set(before.values()) == {50_000}
    losses = [f.text for f in run.check().missing]
    assert len(losses) == 2
    assert all("into a module that workers import" in text for text in losses)
    assert len(run.functions)


def test_another_yappi_is_left_alone(client: Client, runs: Path) -> None:
    """A Yappi started by other code continues; the missing profile is a loss."""

    def start() -> None:
        import yappi

        yappi.start()

    def stop() -> bool:
        import yappi

        running = yappi.is_running()
        yappi.stop()
        yappi.clear_stats()
        return running

    client.run(start)
    with dask_strata.record(runs, client=client, yappi="cpu") as run:
        client.submit(abs, -1).result()
    assert set(client.run(stop).values()) == {True}
    losses = [f.text for f in run.check().missing]
    assert len(losses) == 2
    assert all("Yappi, started by other code, is active" in text for text in losses)
    assert not len(run.functions)


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="from 3.12 on Python's profiler and Yappi share a thread"
)
def test_a_profiler_that_takes_over_a_thread_is_named(client: Client, runs: Path) -> None:
    """A task that uses Python's profiler ends the profile of its thread, which is a loss."""

    def profiled() -> int:
        import cProfile

        with cProfile.Profile():
            return sum(range(10))

    with dask_strata.record(runs, client=client, yappi="cpu") as run:
        client.submit(profiled).result()
    losses = [f.text for f in run.check().missing]
    assert len(losses) == 1
    assert "cProfile.py" in losses[0]


def test_two_recordings_cannot_both_profile(client: Client, runs: Path) -> None:
    """The second recording continues without a profile, and names the run that has one."""
    with dask_strata.record(runs, client=client, yappi="cpu") as first:
        with dask_strata.record(runs, client=client, yappi="cpu") as second:
            client.submit(abs, -1).result()
        client.submit(abs, -2).result()
    assert first.check().ok
    assert len(first.functions)
    assert all(first.manifest.run_id in f.text for f in second.check().missing)
    assert len(second.check().missing) == 2


@pytest.fixture
def without_yappi(tmp_path: Path) -> dict[str, str]:
    """Environment of a Python in which, as in its child processes, Yappi cannot be imported."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys; sys.modules['yappi'] = None\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_missing_yappi_is_reported_before_the_script_runs(
    strata: Strata, script: Script, runs: Path, without_yappi: dict[str, str]
) -> None:
    """`record --yappi` without Yappi exits 2 with the command that installs it."""
    path = script("open('ran', 'w')")
    done = strata("record", "--yappi", "cpu", "-o", runs, path, env=without_yappi)
    assert done.returncode == 2
    assert "pip install 'dask-strata[yappi]'" in done.stderr
    assert not (path.parent / "ran").exists()


def test_without_yappi_the_recording_continues_with_a_warning(
    script: Script, runs: Path, without_yappi: dict[str, str], strata: Strata
) -> None:
    """By preload without Yappi: one warning, and everything else is recorded."""
    environment = without_yappi | {
        "DASK_DASK_STRATA__RUNS": str(runs),
        "DASK_DASK_STRATA__YAPPI": "cpu",
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
    }
    done = subprocess.run(
        [sys.executable, str(pipeline(script))],
        env=environment,
        cwd=runs.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr.count("pip install 'dask-strata[yappi]'") == 1
    run = only_run(runs)
    assert len(run.tasks) == 12
    checked = strata("check", run.path)
    assert checked.returncode == 1
    assert "pip install 'dask-strata[yappi]'" in checked.stdout
    assert {f.text.partition(":")[0] for f in run.check().missing} == {"profile"}


def test_a_wrong_clock_is_a_usage_error(strata: Strata, script: Script) -> None:
    """An unknown clock or role is reported before the script runs."""
    assert strata("record", "--yappi", "sun", script("")).returncode == 2
    with pytest.raises(dask_strata.StrataError, match="worker, scheduler, client"):
        dask_strata.config.read_settings({}, yappi_roles="nanny")

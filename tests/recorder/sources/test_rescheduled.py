"""A task that raises Dask's `Reschedule` has not failed: it requested another attempt.

The truth are the files that the tasks append to, and Dask's own states of the tasks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array
import pytest
from distributed import Client, LocalCluster, Reschedule

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.timeline.timeline import OUTCOMES, timeline
from dask_strata.recorder.sources import executions
from tests.conftest import rows

pytestmark = pytest.mark.long

#: Outcomes of the executions and attempts of a task that returns at its third attempt.
RAN = ["rescheduled", "rescheduled", "finished"]
ATTEMPTED = ["rescheduled", "rescheduled", "memory"]


def calls(path: Path) -> int:
    """Append a line to a file, and return how many it has."""
    with path.open("a", encoding="utf-8") as file:
        file.write("called\n")
    return len(path.read_text(encoding="utf-8").splitlines())


def third_time(path: Path) -> int:
    """Request another attempt twice, then return."""
    if (n := calls(path)) < 3:
        raise Reschedule("not yet")
    return n


async def third_time_as_coroutine(path: Path) -> int:
    """As `third_time`, on the event loop."""
    await asyncio.sleep(0)
    return third_time(path)


class Mine(Reschedule):
    """A user's own kind of `Reschedule`, which Dask treats the same."""


def third_time_with_subclass(path: Path) -> int:
    """As `third_time`, with a subclass."""
    if (n := calls(path)) < 3:
        raise Mine
    return n


def same_name(_: Path) -> None:
    """Fail with an exception that only has the name."""
    raise type("Reschedule", (ValueError,), {})


TASKS = (third_time, third_time_as_coroutine, third_time_with_subclass)


@pytest.mark.parametrize("function", TASKS)
def test_no_failure(
    client: Client,
    runs: Path,
    tmp_path: Path,
    strata: Callable[..., Any],
    function: Callable[[Path], Any],
) -> None:
    """In executions, attempts, story, timeline and counts of failures; the reason is kept."""
    key = function.__name__.replace("_", "") + "-1"
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(function, tmp_path / "calls", key=key).result() == 3
    ran = rows(run, "select outcome, exception from executions order by execution")
    assert [r["outcome"] for r in ran] == RAN
    assert [bool(r["exception"]) for r in ran] == [True, True, False]
    attempts = run.task(key).attempts
    assert [a["outcome"] for a in attempts] == ATTEMPTED
    assert [a["exception"] for a in attempts] == [None] * 3
    told = [e["what"] for e in story(strata, run.path, key) if e["layer"] == "thread"]
    kind = "coroutine" if function is third_time_as_coroutine else "execution"
    assert told == [f"{kind} {outcome}" for outcome in RAN]
    seen = timeline(run)
    assert sorted(OUTCOMES[i] for i in seen.bars.outcome) == sorted(ATTEMPTED)
    assert not seen.exceptions
    summary = summarize(run)
    assert (summary.n_erred, summary.failures) == (0, ())
    assert {(p.n_erred, p.n_retried) for p in summary.prefixes} == {(0, 0)}


def story(strata: Callable[..., Any], path: Path, key: str) -> list[dict[str, Any]]:
    """Return the events of `dask-strata story --format json`."""
    done = strata("story", path, key, "--format", "json", check=True)
    return list(json.loads(done.stdout)["events"])


def rescheduled_keys(dask_worker: Any) -> list[str]:
    """Return the keys of a worker's own log that Dask rescheduled, one for each time."""
    return [str(entry[0]) for entry in dask_worker.state.log if "rescheduled" in entry[1:4]]


def test_p2p(runs: Path) -> None:
    """Tasks of P2P that Dask reschedules to the worker of their partition have not failed."""
    with (
        dask.config.set({"array.rechunk.method": "p2p"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        for n in range(20):  # Dask may happen to place all tasks on the right workers
            array = dask.array.full((80, 80), n, chunks=(10, 80)).rechunk((80, 10))
            assert array.sum().compute() == 6400 * n
            if any((logs := client.run(rescheduled_keys)).values()):
                break
    keys = sorted(key for log in logs.values() for key in log)
    assert keys
    found = rows(run, "select key from executions where outcome = 'rescheduled' order by key")
    assert [r["key"] for r in found] == keys
    assert not rows(run, "from executions where outcome = 'erred'")
    found = rows(run, "select key, exception from attempts where outcome = 'rescheduled'")
    assert sorted(r["key"] for r in found) == keys
    assert not any(r["exception"] for r in found)
    assert summarize(run).n_erred == 0


def test_another_exception_of_this_name_is_a_failure(client: Client, runs: Path) -> None:
    """Dask fails a task that raises an unrelated class with the name `Reschedule`."""
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(same_name, Path(), key="same-1").exception()
    (ran,) = rows(run, "select outcome, exception from executions")
    assert (ran["outcome"], ran["exception"]) == ("erred", "Reschedule()")
    (attempt,) = run.task("same-1").attempts
    assert (attempt["outcome"], attempt["exception"]) == ("erred", "Reschedule()")
    assert summarize(run).n_erred == 1


def test_runs_of_early_versions(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early versions recorded erred; the worker's transitions show which were rescheduled."""
    monkeypatch.setattr(executions, "_outcome", lambda e: "erred" if e.failed else "finished")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        assert client.submit(third_time, tmp_path / "calls", key="third-1").result() == 3
        assert client.submit(same_name, Path(), key="same-1").exception()
    run = open_run(run.path)
    query = "select outcome from executions where key = '{}' order by execution"
    assert [r["outcome"] for r in rows(run, query.format("third-1"))] == RAN
    assert [r["outcome"] for r in rows(run, query.format("same-1"))] == ["erred"]
    assert [a["exception"] for a in run.task("third-1").attempts] == [None] * 3
    assert [a["exception"] for a in run.task("same-1").attempts] == ["Reschedule()"]

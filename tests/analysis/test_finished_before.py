"""Tasks from before the recording: counted apart, and with Dask's prefix if they end within it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from distributed import Client, Event, Scheduler, wait

from dask_strata import record
from tests.conftest import rows, runs_in, wait_until

pytestmark = pytest.mark.long


def _load(i: int) -> list[int]:
    return list(range(i))


def _blocked(x: list[int], gate: str) -> int:
    Event(f"{gate} reached").set()
    Event(gate).wait(60)
    return len(x)


def _is_known(dask_scheduler: Scheduler, key: object) -> bool:
    return key in dask_scheduler.tasks


def _prefixes_by_client(client: Client, keys: list[object]) -> Counter[str]:
    """Return the number of keys by prefix, as the scheduler has them."""
    prefixes = client.run_on_scheduler(
        lambda dask_scheduler, keys: [dask_scheduler.tasks[k].prefix.name for k in keys], keys=keys
    )
    return Counter(prefixes)


@pytest.mark.release
@pytest.mark.parametrize("release", [pytest.param(False, marks=pytest.mark.long), True])
def test_tasks_from_before_are_no_unknown_tasks(
    client: Client, runs: Path, strata, *, release: bool
) -> None:
    """Summary, comparison, list and tables count the run's own tasks, by Dask's prefixes."""
    loaded = [client.submit(_load, i, key=f"load-{i}") for i in range(6)]
    early = [client.submit(len, f, key=("early-abc", i)) for i, f in enumerate(loaded)]
    data = client.scatter([1, 2, 3])
    wait([*loaded, *early])
    going = client.submit(_blocked, loaded[0], "gate", key="going-on-1")
    queued = client.submit(str, going, key=("after-that", 0))
    assert Event("gate reached").wait(60)
    wait_until(lambda: client.run_on_scheduler(_is_known, key=queued.key))
    before = [f.key for f in (*loaded, *early, *data)]
    with record(runs=runs):
        late = [
            client.submit(sum, [a, b], key=f"late-{i}")
            for i, (a, b) in enumerate(zip(early, data * 2, strict=True))
        ]
        both = client.submit(sum, data, key="total-1")
        given = client.scatter([4.5])
        of_given = client.submit(max, given, key="of-given-1")
        wait([*late, both, of_given])
        Event("gate").set()
        wait([going, queued])
        own = [going.key, queued.key, *(f.key for f in late), both.key, of_given.key]
        expected = _prefixes_by_client(client, own)
        seen_before = {str(key) for key in before}
        if release:
            del loaded, early, data
    [run] = runs_in(runs)
    summary = json.loads(strata("show", run.path, "--format", "json", check=True).stdout)
    counted = {p["prefix"]: p["n_tasks"] for p in summary["prefixes"]}
    assert counted == {**expected, "float": 1}
    assert summary["n_tasks"] == sum(expected.values()) + 1
    assert summary["n_unfinished"] == 0
    table = rows(
        run, "select key, prefix, submitted, wait_seconds from tasks where finished_before"
    )
    assert {row["key"] for row in table} <= seen_before
    assert summary["n_finished_before"] == len(table)
    if release:
        assert {row["key"] for row in table} == seen_before
    assert {(row["submitted"], row["wait_seconds"]) for row in table} == {(None, None)}
    assert rows(run, "select key from tasks where prefix is null") == []
    assert {row["prefix"] for row in table} <= {"load", "early-abc", "int"}
    waited = rows(run, "select key, wait_seconds from tasks where key = 'going-on-1'")
    assert waited == [{"key": "going-on-1", "wait_seconds": None}]
    shown = strata("show", run.path, check=True).stdout
    assert f"{len(table)} finished before the recording" in shown
    listed = strata("tasks", run.path, check=True).stdout
    assert f"; {len(table)} finished before the recording" in listed
    assert "(unknown)" not in shown + listed
    told = strata("story", run.path, table[0]["key"], check=True).stdout
    assert "finished before the recording" in told

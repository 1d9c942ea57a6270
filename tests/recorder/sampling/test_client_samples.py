"""Samples of the client's thread, its gathers and scatters, and the sizes of what it sends."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_strata import Run, record
from tests.conftest import rows


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
    """A client of one worker process with one thread."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.submit(len, "x").result()
        yield made


def line_of(function: Any, text: str) -> int:
    """Return the number of the only line of a function that ends with a text."""
    lines, first = inspect.getsourcelines(function)
    [found] = [n for n, line in enumerate(lines, first) if line.rstrip().endswith(text)]
    return found


def think_and_submit(client: Client, n: int) -> dict[str, float]:
    """Submit in a loop, with Python and a pause between."""
    spent = {"think": 0.0, "pause": 0.0, "result": 0.0}
    for i in range(n):
        start = time.monotonic()
        sum(i * j for j in range(1_500_000))  # think
        thought = time.monotonic()
        time.sleep(0.15)  # pause
        paused = time.monotonic()
        client.submit(time.sleep, 0.15 + i / 1e6).result()  # result
        spent["think"] += thought - start
        spent["pause"] += paused - thought
        spent["result"] += time.monotonic() - paused
    return spent


@pytest.fixture(scope="module")
def thinking(
    workers: Client, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, dict[str, float]]:
    """A run of a client that thinks between its submissions."""
    with record(tmp_path_factory.mktemp("thinking"), client=workers) as run:
        spent = think_and_submit(workers, 6)
    return run, spent


@pytest.mark.parametrize(
    ("mark", "waiting"), [("think", None), ("pause", "sleep"), ("result", "lock")]
)
def test_lines_of_the_client(
    thinking: tuple[Run, dict[str, float]], mark: str, waiting: str | None
) -> None:
    """The time at each line is that which the client measured, with the reason for waiting."""
    run, spent = thinking
    line = line_of(think_and_submit, f"# {mark}")
    found = rows(
        run,
        f"select waiting, function, code, calls, sum(seconds) as seconds from client_samples "
        f"where line = {line} group by all",
    )
    [main] = [row for row in found if row["waiting"] == waiting]
    assert main["seconds"] == pytest.approx(spent[mark], abs=0.1 + 0.3 * spent[mark])
    assert f"# {mark}" in main["code"]
    if mark == "result":
        assert main["calls"] == "distributed/client.py:result"
        assert main["function"] == "think_and_submit"


def test_rows_adjoin(thinking: tuple[Run, dict[str, float]]) -> None:
    """Rows have a length, do not overlap, and cover nearly all of the time."""
    run, spent = thinking
    found = rows(
        run,
        "select epoch_ns(start) as a, epoch_ns(stop) as b, seconds from client_samples order by 1",
    )
    assert all(row["a"] < row["b"] for row in found)
    assert all(x["b"] <= y["a"] for x, y in pairwise(found))
    assert sum(row["seconds"] for row in found) >= 0.9 * sum(spent.values())
    assert not rows(run, "select * from losses")


def test_gathers_and_scatters(workers: Client, runs: Path) -> None:
    """Each has its kind, number of keys, bytes and the user's line."""
    with record(runs, client=workers) as run:
        several = workers.map(bytes, [100_000, 200_000], pure=False)
        workers.gather(several)  # gathers
        workers.scatter([bytes(1000), bytes(2000)], hash=False)
        workers.scatter({"scattered": bytes(3000)})
        workers.scatter(bytes(4000), hash=False)
    found = rows(run, "select * from client_calls order by start")
    assert [(row["kind"], row["n_keys"]) for row in found] == [
        ("gather", 2),
        ("scatter", 2),
        ("scatter", 1),
        ("scatter", 1),
    ]
    for row, n in zip(found, (300_000, 3000, 3000, 4000), strict=True):
        assert n <= row["nbytes"] < n + 500
        assert row["start"] < row["stop"]
        assert row["file"] == __file__
        assert row["function"] == "test_gathers_and_scatters"
    assert found[0]["line"] == line_of(test_gathers_and_scatters, "# gathers")
    assert found[0]["code"].startswith("workers.gather(")


def test_the_size_of_what_was_sent(workers: Client, runs: Path) -> None:
    """A closure with large data shows in the bytes of its submission, and in the time for it."""
    data = bytes(20_000_000)
    with record(runs, client=workers) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the graph is large
        workers.submit(lambda: len(data), pure=False).result()
        workers.submit(len, "abc", pure=False).result()
    large, small = rows(run, "select * from client_submissions order by time")
    assert 20_000_000 <= large["sent_bytes"] < 20_100_000
    assert small["sent_bytes"] < 10_000
    for row in (large, small):
        assert row["began"] <= row["time"]
    assert (large["time"] - large["began"]).total_seconds() > 0.001


@pytest.mark.long
@pytest.mark.alone
def test_a_client_in_another_thread(workers: Client, runs: Path) -> None:
    """The thread that uses the client is sampled, from its first gather on."""

    def use() -> None:
        workers.submit(len, "abcd", pure=False).result()
        time.sleep(0.5)

    with record(runs, client=workers) as run:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    found = rows(
        run,
        "select sum(seconds) as s from client_samples where function = 'use' and waiting = 'sleep'",
    )
    assert found[0]["s"] == pytest.approx(0.5, abs=0.15)
    [call] = rows(run, "select * from client_calls")
    assert call["function"] == "use"


def test_an_asynchronous_client(runs: Path) -> None:
    """A client in the user's own event loop is recorded, too."""

    async def use() -> Run:
        async with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                dashboard_address=":0",
                asynchronous=True,
                processes=False,
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
            record(runs, client=client) as run,
        ):
            await client.gather(client.map(len, ["a", "ab"]))
            await client.scatter([1, 2, 3])
        return run

    run = asyncio.run(use())
    found = rows(run, "select kind, n_keys from client_calls order by start")
    assert found == [{"kind": "gather", "n_keys": 2}, {"kind": "scatter", "n_keys": 3}]
    assert not rows(run, "select * from losses")


def test_the_client_is_as_before(workers: Client, runs: Path) -> None:
    """Two recordings at once each have all calls; the last to end restores the client."""
    before = dict(workers.__dict__)
    with record(runs / "one", client=workers) as one:
        with record(runs / "two", client=workers) as two:
            workers.submit(len, "abcde", pure=False).result()
        workers.submit(len, "abcdef", pure=False).result()
    assert [len(rows(run, "select * from client_calls")) for run in (one, two)] == [2, 1]
    replaced = {"_gather_remote", "_scatter", "_send_to_scheduler", "_graph_to_futures"}
    assert not replaced & (set(workers.__dict__) - set(before))
    assert not [t.name for t in threading.enumerate() if t.name.endswith("-samples")]

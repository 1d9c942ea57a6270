"""Waits for the GIL by Dask's system monitor, compared with calls that hold it for a known time."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.recorder.interruptions.gil_contention import GilContention
from tests.conftest import GIL_ENABLED, rows


def hold_the_gil(seconds: float) -> tuple[int, int]:
    """Sleep in a C function that keeps the GIL; return when."""
    start = time.time_ns()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return start, time.time_ns()


def sleep(seconds: float) -> tuple[int, int]:
    """Sleep without the GIL; return when."""
    start = time.time_ns()
    time.sleep(seconds)
    return start, time.time_ns()


def during(run: Any, times: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the intervals of the worker that overlap."""
    found = rows(
        run,
        "select *, epoch_ns(start) as a, epoch_ns(stop) as b from gil_contention "
        "where worker is not null",
    )
    return [row for row in found if row["a"] < times[1] and row["b"] > times[0]]


def monitored(dask_worker: Any) -> dict[float, float]:
    """Return the values of Dask's own monitor by their times."""
    quantities = dask_worker.monitor.quantities
    return dict(zip(quantities["time"], quantities["gil_contention"], strict=True))


#: On a busy machine gilknocker may not run while the call holds the GIL.
_ATTEMPTS = 5


@pytest.mark.long
@pytest.mark.alone
def test_waits_are_those_of_a_call_that_holds_the_gil(tmp_path: Path) -> None:
    """A call that holds it for 1.2 s makes others wait; one that releases it does not."""
    pytest.importorskip("gilknocker")
    with (
        dask.config.set({GIL_ENABLED: True}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        client.submit(abs, 0).result()
        for _ in range(_ATTEMPTS):
            held = client.submit(hold_the_gil, 1.2, pure=False).result()
            time.sleep(0.6)  # the monitor takes a sample every half second
            [values] = client.run(monitored).values()
            if max(v for t, v in values.items() if t * 1e9 > held[0]) > 0.5:
                break
        released = client.submit(sleep, 1.2).result()
        time.sleep(0.6)  # the monitor takes a sample every half second
        [values] = client.run(monitored).values()
    # The monitor may look before gilknocker has measured the wait: then its next value has it.
    until = held[1] + 600_000_000
    assert max(row["contention"] for row in during(run, (held[0], until))) > 0.5
    after = during(run, (released[0] + 600_000_000, released[1]))
    assert after
    assert max(row["contention"] for row in after) < 0.3
    intervals = rows(
        run,
        "select *, epoch_ns(start) as a, epoch_ns(stop) as b, (b - a) / 1e9 as length "
        "from gil_contention order by worker, a",
    )
    assert {row["worker"] is None for row in intervals} == {True, False}
    for row in intervals:
        assert 0 <= row["contention"] <= 1
        assert row["seconds"] == pytest.approx(row["contention"] * row["length"], abs=1e-5)
    of_worker = [row for row in intervals if row["worker"] is not None]
    # Each value is that of Dask's monitor at its time, and none in between is missing.
    recorded = {round(row["b"] / 1e9, 3): row["contention"] for row in of_worker}
    monitored_then = {
        round(t, 3): v for t, v in values.items() if min(recorded) <= round(t, 3) <= max(recorded)
    }
    assert monitored_then.keys() <= recorded.keys()
    assert {t: recorded[t] for t in monitored_then} == pytest.approx(monitored_then)
    assert all(x["b"] == y["a"] for x, y in pairwise(of_worker))


def monitor(**values: Any) -> Any:
    """Return a server with such a monitor, whose loop calls at once."""
    loop = SimpleNamespace(add_callback=lambda call: call())
    return SimpleNamespace(monitor=SimpleNamespace(**values), loop=loop)


def test_nothing_is_recorded_without_gilknocker() -> None:
    """There is no row, neither of waits nor of losses."""
    source = GilContention(monitor(monitor_gil_contention=False, quantities={"time": deque([1.0])}))
    source.sample()
    source.detach()
    assert list(source.rows()) == []


def test_a_monitor_of_another_form_is_a_loss() -> None:
    """A future version without the attribute is counted once."""
    source = GilContention(SimpleNamespace())
    source.sample()
    assert [batch.table for batch in source.rows()] == ["losses"]
    assert list(source.rows()) == []


def test_each_interval_is_recorded_once() -> None:
    """Also if the monitor forgets its oldest; one in which the clock was set back has no row."""
    times, shares = deque([10.0], maxlen=3), deque([0.9], maxlen=3)
    values = {"time": times, "gil_contention": shares}
    source = GilContention(monitor(monitor_gil_contention=True, quantities=values))
    found = []
    for time_, share in [(10.5, 0.0), (11.0, 0.5), (11.5, 0.25), (11.2, 1.0), (11.7, 0.5)]:
        times.append(time_)
        shares.append(share)
        source.sample()
        for batch in source.rows():
            found += list(
                zip(*(batch.columns[n] for n in ("start", "stop", "seconds")), strict=True)
            )
    ns = 1_000_000_000
    assert found == [
        (10 * ns, 10.5 * ns, 0.0),
        (10.5 * ns, 11 * ns, 0.25),
        (11 * ns, 11.5 * ns, 0.125),
        (11.2 * ns, 11.7 * ns, pytest.approx(0.25)),
    ]

"""P2P shuffles: bytes, shards and seconds on record are those that Dask counted itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Event, LocalCluster, span

import dask_strata
from dask_strata import Run
from dask_strata.analysis.breakdown import breakdown
from dask_strata.report.words import size
from tests.conftest import rows, wait_until
from tests.support.darshan_runs import log_of_tasks

pytestmark = pytest.mark.long

_ROWS, _PARTITIONS = 50_000, 8

#: With larger chunks allowed, Dask would merge the array's small chunks before it moves them; a
#: small buffer makes tasks wait until shards are sent.
_P2P = {
    "dataframe.shuffle.method": "p2p",
    "array.rechunk.method": "p2p",
    "array.chunk-size": "1MiB",
    "distributed.p2p.comm.buffer": "100kiB",
}


def frame(i: int) -> pd.DataFrame:
    """Return a partition of 50,000 rows with 4 columns of 8 bytes each."""
    random = np.random.default_rng(i)
    values = {name: random.random(_ROWS) for name in "abc"}
    return pd.DataFrame({"x": random.integers(0, 1000, _ROWS), **values})


def digests(client: Client) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return what Dask's own context meter counted for P2P, by its label and worker."""
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    counted = client.run(lambda dask_worker: dict(dask_worker.digests_total))
    for worker, totals in counted.items():
        for name, value in totals.items():
            if isinstance(name, tuple) and name[0] == "p2p":
                found[name][worker] = value
    return found


class Recorded:
    """A recorded run, and Dask's own digests by kind of shuffle (each is a span of its own)."""

    run: Run
    digests: dict[tuple[Any, ...], dict[str, float]]
    spans: dict[str, str]
    nbytes: dict[str, int]
    rows_out: int
    left_behind: dict[str, bool]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A DataFrame's shuffle and an array's rechunk, on two workers with two threads each."""
    import dask.dataframe as dd

    made = Recorded()
    folder = tmp_path_factory.mktemp("shuffles")
    with (
        dask.config.set(_P2P),
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        data = dd.from_map(frame, range(_PARTITIONS)).shuffle("x", force=True)
        lengths = data.map_partitions(len)
        array = dask.array.random.random((2000, 2000), chunks=(2000, 100))
        with dask_strata.record(folder, client=client, sample_interval="100ms") as made.run:
            with span("frame") as frame_span:
                made.rows_out = int(lengths.compute().sum())
            with span("array") as array_span:
                array.rechunk((100, 2000)).sum().compute()
            made.spans = {"DataFrameShuffle": frame_span, "ArrayRechunk": array_span}
            made.nbytes = {
                "DataFrameShuffle": _ROWS * _PARTITIONS * 32,
                "ArrayRechunk": array.nbytes,
            }
            wait_until(
                lambda: not any(client.run(_active).values()),
                what="the end of all shuffles on workers",
            )
            made.digests = digests(client)
        made.left_behind = client.run(_followed)
    return made


def _active(dask_worker: Any) -> int:
    return len(dask_worker.extensions["shuffle"].shuffle_runs._runs)


def _followed(dask_worker: Any) -> bool:
    return type(dask_worker.extensions["shuffle"].shuffle_runs._runs) is not set


KINDS = ("DataFrameShuffle", "ArrayRechunk")


@pytest.mark.parametrize("kind", KINDS)
def test_shuffles_are_those_of_dask(recorded: Recorded, kind: str) -> None:
    """Per worker and shuffle: shards, messages, bytes and seconds equal Dask's own digests."""
    assert recorded.rows_out == _ROWS * _PARTITIONS
    found = rows(recorded.run, f"select * from shuffles where kind = '{kind}'")
    assert len(found) == len({r["worker"] for r in found}) == 2
    assert len({r["shuffle"] for r in found}) == 1

    def truth(where: str, *label: str) -> dict[str, float]:
        known = recorded.digests.get(("p2p", recorded.spans[kind], where, *label), {})
        return {row["worker"]: 0, **known}

    for row in found:
        worker = row["worker"]
        assert row["shards"] == truth("foreground", "shards", "count")[worker]
        assert row["shard_bytes"] == truth("foreground", "shards", "bytes")[worker]
        assert row["messages"] == truth("background-comms", "process", "count")[worker]
        assert row["sent_bytes"] == truth("background-comms", "process", "bytes")[worker]
        assert row["stored_bytes"] == truth("background-disk", "process", "bytes")[worker]
        assert row["assembled_bytes"] == truth("foreground", "disk-read", "bytes")[worker]
        wait = truth("foreground", "comms-limiter", "seconds")[worker]
        assert row["wait_seconds"] == pytest.approx(wait)
        for column, where, idle in (
            ("send_seconds", "background-comms", {"idle"}),
            ("store_seconds", "background-disk", {"idle"}),
        ):
            parts = [
                values.get(worker, 0)
                for name, values in recorded.digests.items()
                if name[1:3] == (recorded.spans[kind], where)
                and name[-1] == "seconds"
                and name[3] not in idle
            ]
            assert row[column] == pytest.approx(sum(parts))
        assert row["transferred"]
        assert row["on_disk"]
        assert row["start"] < row["stop"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_collection_was_moved(recorded: Recorded, kind: str) -> None:
    """The bytes on record are the known size of the frame or array, and all of them arrived."""
    [total] = rows(
        recorded.run,
        f"""
        select sum(shard_bytes)::bigint as cut, sum(sent_bytes)::bigint as sent,
               sum(received_bytes)::bigint as received, sum(partitions_in)::bigint as partitions_in,
               sum(partitions_out)::bigint as partitions_out
        from shuffles where kind = '{kind}'
        """,
    )
    size = recorded.nbytes[kind]
    if kind == "ArrayRechunk":
        assert total["cut"] == size
    assert size <= total["cut"] <= size * 1.5
    assert size <= total["sent"] <= size * 1.5
    assert size <= total["received"] <= size * 1.5
    n = {"DataFrameShuffle": (8, 8), "ArrayRechunk": (20, 20)}[kind]
    assert (total["partitions_in"], total["partitions_out"]) == n


def test_nothing_stays_after_the_recording(recorded: Recorded) -> None:
    """The workers have Dask's own objects again."""
    assert set(recorded.left_behind.values()) == {False}


def test_screen_and_page_count_shuffles(
    recorded: Recorded,
    strata: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """The first screen, its JSON and the page name the bytes that shuffles moved."""
    facts = json.loads(strata("show", recorded.run.path, "--format", "json", check=True).stdout)
    facts = facts["moved"]
    sent = {
        kind: sum(
            recorded.digests[
                "p2p", recorded.spans[kind], "background-comms", "process", "bytes"
            ].values()
        )
        for kind in KINDS
    }
    assert facts["shuffles"] == 2
    assert facts["shuffle_bytes"] == sum(sent.values())
    assert facts["shuffle_seconds"] > 0
    screen = " ".join(strata("show", recorded.run.path, check=True).stdout.split())
    assert f"2 P2P shuffles: {size(sum(sent.values()))}" in screen
    strata("report", recorded.run.path, "-o", tmp_path / "page.html", check=True)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    for kind, nbytes in sent.items():
        assert re.search(rf"<td>{kind}</td>.*?>{re.escape(size(nbytes))}<", html, re.DOTALL)


def test_io_names_what_moved_between_workers(
    recorded: Recorded,
    strata: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """Next to the files of Darshan's logs, `io` has the bytes of transfers and P2P shuffles."""
    pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")
    run = shutil.copytree(recorded.run.path, tmp_path / "run")
    [worker] = rows(
        recorded.run,
        "select pid, epoch_ns(start) as a, epoch_ns(stop) as b from processes "
        "where role = 'worker' limit 1",
    )
    log = log_of_tasks()
    log.jobid, log.start, log.stop = worker["pid"], worker["a"], worker["b"]
    path = tmp_path / f"u_python_id{worker['pid']}-{worker['pid']}_1-1-1-1_1.darshan"
    path.write_bytes(log.bytes())
    strata("import", "--into", run, path, check=True)
    [sent] = rows(recorded.run, "select sum(sent_bytes)::bigint as n from shuffles")
    printed = strata("io", run, check=True).stdout
    assert re.search(rf"between workers: .*2 P2P shuffles: {re.escape(size(sent['n']))} ", printed)


def test_threads_of_shuffles_wait_for_transfers(recorded: Recorded) -> None:
    """The time of barriers, and of tasks that wait until shards are sent, is transfer."""
    run = recorded.run
    [barrier] = rows(
        run,
        "select sum(seconds) as seconds from phases "
        "where action = 'compute' and key like 'shuffle-barrier-%'",
    )
    waited = sum(
        sum(values.values())
        for name, values in recorded.digests.items()
        if name[2:] == ("foreground", "comms-limiter", "seconds")
    )
    assert barrier["seconds"] > 0
    assert waited > 0
    [fetched] = rows(run, "select sum(transfer_seconds) as seconds from attempts")
    spent = breakdown(run)
    least = barrier["seconds"] + waited
    # Tasks wait for a dependency that is on its way, also if it was fetched for another task.
    [flown] = run.rows(
        "select coalesce(sum(stop - start), 0) / 1e9 as seconds from _waits "
        "where cause = 'transfer'"
    )
    most = least + fetched["seconds"] + flown["seconds"] + 1e-6
    assert least * 0.9 <= spent.seconds["transfer"] <= most
    barriers = [share for share in spent.prefixes if share.prefix.startswith("shuffle-barrier")]
    assert barriers
    assert all(share.seconds["compute"] == 0 for share in barriers)


def late_frame(i: int) -> pd.DataFrame:
    """Return a partition; the last one only once an event is set."""
    if i == _PARTITIONS - 1:
        assert Event("the rest").wait(60)
    return frame(i)


def test_recordings_that_see_a_part_of_a_shuffle(tmp_path: Path) -> None:
    """Bytes are Dask's own in both; what was metered before a recording is unknown, not zero."""
    import dask.dataframe as dd

    with (
        dask.config.set(_P2P),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        data = dd.from_map(late_frame, range(_PARTITIONS)).shuffle("x", force=True)
        with dask_strata.record(tmp_path / "first", client=client) as first:
            total = client.compute(data.map_partitions(len).sum())
            wait_until(lambda: next(iter(client.run(_sent).values()), 0) > 0, what="shards")
            with dask_strata.record(tmp_path / "both", client=client) as both:
                pass
            last = dask_strata.record(tmp_path / "last", client=client)
            second = last.__enter__()
        seen = next(iter(client.run(_sent).values()))
        Event("the rest", client=client).set()
        assert total.result() == _ROWS * _PARTITIONS
        wait_until(lambda: not any(client.run(_active).values()), what="the end of the shuffle")
        last.__exit__(None, None, None)
        assert not any(client.run(_followed).values())
    [began] = rows(first, "from shuffles")
    [whole] = rows(second, "from shuffles")
    assert 0 < began["sent_bytes"] <= seen < whole["sent_bytes"]
    assert (began["transferred"], began["stop"]) == (False, None)
    assert began["shards"] > 0
    assert (whole["transferred"], whole["shards"], whole["send_seconds"]) == (True, None, None)
    assert whole["stop"] is not None
    assert whole["received_bytes"] >= _ROWS * _PARTITIONS * 32
    assert not rows(both, "from losses where what like 'shuffle%'")


def _sent(dask_worker: Any) -> int:
    runs = dask_worker.extensions["shuffle"].shuffle_runs._runs
    return sum(run.heartbeat()["comm"]["written"] for run in runs)

"""A phase that is not on record is null, shown as a dash; a phase that did not occur is 0.

The truth is the coupler's own files, read here with Python's csv, and Dask's own counters.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from ast import literal_eval
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from html import unescape
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Worker, wait

from dask_strata import Run, open_run, record
from dask_strata.run.duckdb_session import TIME_TYPE
from tests.conftest import rows, runs_in
from tests.support.shared_fixtures import shared_fixture

IMAGES = "ImageProcessing/D2024-04-18_15:54:03_R7_W8"
TREES = "XGBoost/D2024-04-19_17:14:53_R20_W8"
_LONGEST_CELL = 1 << 28


def _read(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(_LONGEST_CELL)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _union(intervals: Iterable[tuple[float, float]]) -> float:
    total, reach = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(0.0, stop - max(start, reach))
        reach = max(reach, stop)
    return total


def _fetched(folder: Path) -> tuple[dict[tuple[str, str, float], float], int]:
    """Return the seconds of fetching before each execution, and the number of these transfers.

    An execution is a worker, a key and a start; only those that transfers came before.
    """
    needs: dict[str, set[str]] = defaultdict(set)
    for row in _read(folder / "graph.csv"):
        for key, dependencies in literal_eval(row["dependencies"]).items():
            needs[str(key)] |= {str(d) for d in dependencies or ()}
    arrivals: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    known = set()
    for row in _read(folder / "worker_transfer.csv"):
        same = tuple(row[name] for name in ("start", "stop", "keys", "who", "called_from", "type"))
        if row["type"] == "incoming_transfer" and same not in known:
            known.add(same)
            # The moment of the report has the clock of the worker's transitions.
            stop = float(row["time"])
            for key in literal_eval(row["keys"]):
                interval = (stop - (float(row["stop"]) - float(row["start"])), stop)
                arrivals[row["called_from"], str(key)].append(interval)
    waiting: dict[tuple[str, str], list[float]] = defaultdict(list)
    found, used = {}, set()
    for row in sorted(_read(folder / "worker_transition.csv"), key=lambda r: float(r["time"])):
        place, now = (row["called_from"], row["key"]), float(row["time"])
        if row["finish"] == "waiting":
            waiting[place].append(now)
        if row["finish"] == "executing" and (times := waiting[place]):
            since = times[bisect_right(times, now) - 1]
            before = [
                (max(start, since), stop)
                for dependency in needs[row["key"]]
                for start, stop in arrivals[row["called_from"], dependency]
                if stop > since and start <= now + 0.01
            ]
            if before:
                found[(*place, now)] = _union(before)
                used |= {(row["called_from"], stop) for _, stop in before}
    return found, len(used)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """ImageProcessing R7: workers' transitions and transfers, nothing from the scheduler."""
    return _imported(shared_fixture(IMAGES), tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """XGBoost R20: transfers only."""
    return _imported(shared_fixture(TREES), tmp_path_factory.mktemp("trees"))


def _imported(folder: Path, runs: Path) -> Run:
    from dask_strata.importers.mofka.importer import find_files, import_files

    return open_run(import_files(find_files(folder), runs, name=folder.name).path, align=False)


def test_transfers_are_the_phase_that_startstops_would_show(images: Run) -> None:
    """Each execution that transfers came before has their time; no other has 0."""
    expected, n_used = _fetched(shared_fixture(IMAGES))
    assert len(expected) > 500
    assert n_used > 500
    by_task: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (worker, key, _), seconds in sorted(expected.items(), key=lambda item: item[0][2]):
        by_task[worker, key].append(seconds)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows(
        images,
        "select worker, key, transfer_seconds from attempts "
        "where transfer_seconds is not null order by start",
    ):
        found[row["worker"], row["key"]].append(row["transfer_seconds"])
    assert found.keys() == by_task.keys()
    for task, seconds in by_task.items():
        assert found[task] == pytest.approx(seconds, abs=2e-6), task
    [row] = rows(
        images, "select count(deserialize_seconds) + count(disk_seconds) as n from attempts"
    )
    assert row["n"] == 0


@pytest.mark.long
def test_every_view_shows_unknown_phases_as_unknown(images: Run, strata) -> None:
    """The first screen, its JSON, tables and the page show what transfers show, and no 0."""
    expected, _ = _fetched(shared_fixture(IMAGES))
    shown = " ".join(strata("show", images.path, check=True).stdout.split())
    assert "not on record: deserialize, spill" in shown
    assert "spill 0 %" not in shown
    facts = json.loads(strata("show", images.path, "--format", "json", check=True).stdout)
    seconds = facts["breakdown"]["seconds"]
    assert {k for k, s in seconds.items() if s is not None} == {"compute", "transfer", "idle"}
    assert 0 < seconds["transfer"] <= sum(expected.values())
    assert sum(s for s in seconds.values() if s) == pytest.approx(
        facts["breakdown"]["total_seconds"]
    )
    assert facts["n_threads"] is None
    prefixes = {p["prefix"]: p for p in facts["prefixes"]}
    of_keys: dict[str, float] = defaultdict(float)
    for (_, key, _), spent in expected.items():
        of_keys[re.split(r"-[0-9a-f]{8}", key.strip("('"))[0].split("-_")[0]] += spent
    # DuckDB before 2.0 cuts each time to microseconds.
    near = 1e-6 if TIME_TYPE == "timestamptz_ns" else 1e-5
    found = prefixes["save_file"]["transfer_seconds"]
    assert found == pytest.approx(of_keys["save_file"], rel=near)
    assert prefixes["getitem"]["transfer_seconds"] is None
    assert prefixes["add-getitem-overlap"]["nbytes"] is None
    assert facts["path_seconds"].get("scheduler") is None
    assert "nothing submitted" not in facts["path_seconds"]
    assert not any("submitted" in f["text"] for f in facts["findings"])
    listed = strata("tasks", images.path, "--prefix", "getitem", check=True).stdout.splitlines()
    column = listed[0].split("\t").index("transfer_seconds")
    assert {line.split("\t")[column] for line in listed[1:]} == {""}
    page = _page(strata, images)
    by_kind = page.split("<caption>By kind</caption>")[1].split("</table>")[0]
    kinds = dict(re.findall(r"([a-z]+): <span class=\"dim\">.*?data-v=\"([^\"]*)\"", by_kind))
    assert (kinds["deserialize"], kinds["spill"]) == ("", "")
    assert float(kinds["transfer"]) == pytest.approx(seconds["transfer"])
    assert "not on record: deserialize, spill" in page


def _page(strata: Any, run: Run) -> str:
    path = run.path.parent / "page.html"
    strata("report", run.path, "-o", path, check=True)
    return path.read_text(encoding="utf-8")


@pytest.mark.release
@pytest.mark.long
def test_transfers_alone_show_no_computing(trees: Run, images: Run, strata, tmp_path: Path) -> None:
    """Without any execution on record neither compute nor failures are claimed to be none."""
    facts = json.loads(strata("show", trees.path, "--format", "json", check=True).stdout)
    assert set(facts["breakdown"]["seconds"].values()) == {None}
    assert facts["breakdown"]["total_seconds"] is None
    assert (facts["n_erred"], facts["n_unfinished"]) == (None, None)
    assert {
        p[name] for p in facts["prefixes"] for name in ("compute_seconds", "transfer_seconds")
    } == {None}
    shown = strata("show", trees.path, check=True).stdout
    assert "0 ms" not in shown
    assert "none failed" not in shown
    page = _page(strata, trees)
    assert "succeeded" not in page
    for run in (trees, images):
        shutil.copytree(run.path, tmp_path / "both" / run.path.name)
    status, compared = _compared(tmp_path / "both")
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert f"{trees.path.name} has no execution of a task on record" in unescape(compared)
    assert "0 ms" not in compared
    assert "None" not in compared


def _compared(folder: Path) -> tuple[int, str]:
    """Return the status and the page of the server if it compares the two runs of a folder."""
    command = [sys.executable, "-m", "dask_strata", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r"(http://\S+?:\d+)/\?token=(\S+)", process.stdout.readline())
        names = "&".join(f"run={path.name}" for path in sorted(folder.iterdir()))
        headers = {"Authorization": f"token {found[2]}"}
        request = urllib.request.Request(f"{found[1]}/compare?{names}", headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=300)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def test_a_recorded_phase_that_did_not_occur_is_zero(client: Client, runs: Path) -> None:
    """Tasks without dependencies fetched for 0 s; the others as long as Dask's startstops show."""
    first, second = sorted(client.nthreads())
    with record(runs=runs):
        made = client.submit(bytes, 20_000_000, workers=[first], key="made-1")
        alone = client.submit(sum, [1, 2], workers=[first], key="alone-1")
        fetched = client.submit(len, made, workers=[second], key="fetched-1")
        wait([made, alone, fetched])
        incoming = client.run(_incoming, workers=[second])[second]
    [run] = runs_in(runs)
    found = {row["key"]: row for row in rows(run, "select * from attempts")}
    assert found["made-1"]["transfer_seconds"] == 0
    assert found["alone-1"]["transfer_seconds"] == 0
    assert found["alone-1"]["deserialize_seconds"] == found["alone-1"]["disk_seconds"] == 0
    # Dask's log has the duration of the same transfer, and its startstop the same two times.
    assert found["fetched-1"]["transfer_seconds"] == pytest.approx(sum(incoming), abs=1e-6)
    assert {row["key"]: row["transfer_seconds"] for row in rows(run, "select * from tasks")} == {
        key: row["transfer_seconds"] for key, row in found.items()
    }


def _incoming(dask_worker: Worker) -> list[float]:
    return [entry["stop"] - entry["start"] for entry in dask_worker.transfer_incoming_log]

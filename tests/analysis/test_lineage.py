"""Lineage of tasks and files: the command, `run.task` and the story of one recorded run.

The truth is the graph and the files as the test makes them, and the host, pid, thread and bytes
that each task measures itself.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from dask_strata.cli.lineage import command as lineage_command
from tests.conftest import wait_for_own_reads

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]

N = 3


def place() -> dict[str, Any]:
    """Return where this runs."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "thread": threading.get_ident()}


def load(path: str) -> dict[str, Any]:
    """Read a file; return its size and the place of the task."""
    with Path(path).open("rb", buffering=0) as file:
        return {**place(), "size": len(file.read())}


def add(parts: list[dict[str, Any]]) -> int:
    """Add up sizes."""
    return sum(part["size"] for part in parts)


def save(total: int, path: str) -> dict[str, Any]:
    """Write a number to a file."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.write(str(total))
    return place()


@dataclass(frozen=True)
class Recorded:
    """A recorded run and its truth."""

    run: Run
    inputs: list[Path]
    lines: Path
    out: Path
    loaded: list[dict[str, Any]]
    saved: dict[str, Any]
    n_blocks: int


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Loads of files, their sum, which is saved; and a bag of ranges of one file."""
    folder = tmp_path_factory.mktemp("lineage")
    inputs = [folder / f"in{n}.bin" for n in range(N)]
    for n, path in enumerate(inputs):
        path.write_bytes(b"x" * (100_000 + n))
    out, lines = folder / "out.txt", folder / "lines.txt"
    lines.write_text("".join(f"{n:09}\n" for n in range(100)))
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with (
        cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        wait_for_own_reads(client)
        parts = [client.submit(load, str(p), key=f"load-{n}") for n, p in enumerate(inputs)]
        total = client.submit(add, parts, key="add")
        saved = client.submit(save, total, str(out), key="save").result()
        loaded = client.gather(parts)
        bag = db.read_text(str(lines), blocksize=250)
        assert bag.count().compute() == 100
    return Recorded(run, inputs, lines, out, loaded, saved, bag.npartitions)


def lineage(recorded: Recorded, *arguments: Any) -> Any:
    """Return the answer of the command as JSON."""
    command = [str(recorded.run.path), *map(str, arguments), "--format", "json"]
    done = CliRunner().invoke(lineage_command, command, catch_exceptions=False)
    return json.loads(done.stdout)


def test_a_task_leads_to_its_files_and_to_what_is_made_of_it(recorded: Recorded) -> None:
    """Ancestors, their files with bytes and places, results and written files, each once."""
    found = lineage(recorded, "add")
    assert (found["subject"], found["name"], found["key_type"]) == ("task", "add", "str")
    before, after = found["made_from"], found["made_of_it"]
    assert [(t["key"], t["steps"]) for t in before["tasks"]] == [(f"load-{n}", 1) for n in range(N)]
    for file, path, truth in zip(before["files"], recorded.inputs, recorded.loaded, strict=True):
        assert file["uri"] == str(path)
        assert file["mode"] == "read"
        assert file["claimed"]
        assert file["seen"]
        assert {name: file[name] for name in ("host", "pid", "thread")} == {
            name: truth[name] for name in ("host", "pid", "thread")
        }
        assert (file["read_bytes"], file["bytes_from"]) == (truth["size"], "thread")
    assert [(t["key"], t["steps"], t["requested"]) for t in after["tasks"]] == [("save", 1, True)]
    assert [(f["uri"], f["key"], f["mode"]) for f in after["files"]] == [
        (str(recorded.out), "save", "write")
    ]
    assert after["tasks"][0]["pid"] == recorded.saved["pid"]
    assert after["results"] == [["save", "str"]]


def test_a_file_leads_to_its_readers_and_all_that_follows(recorded: Recorded) -> None:
    """Direct readers with their worker and host, then their dependents; writers of an output."""
    found = lineage(recorded, recorded.inputs[1])
    (reader,) = found["read_by"]["tasks"]
    truth = recorded.loaded[1]
    assert (reader["key"], reader["host"], reader["pid"]) == ("load-1", truth["host"], truth["pid"])
    assert reader["worker"] == recorded.run.task("load-1").worker
    assert found["read_by"]["results"] == [["load-1", "str"]]
    after = found["made_of_it"]
    assert [(t["key"], t["steps"]) for t in after["tasks"]] == [("add", 2), ("save", 3)]
    assert [f["uri"] for f in after["files"]] == [str(recorded.out)]
    assert not found["made_from"]["tasks"]

    out = lineage(recorded, "out.txt")  # the end of a path is sufficient
    assert out["name"] == str(recorded.out)
    assert not out["read_by"]["tasks"]
    steps = {t["key"]: t["steps"] for t in out["made_from"]["tasks"]}
    assert steps == {"save": 1, "add": 2} | {f"load-{n}": 3 for n in range(N)}
    assert {f["uri"] for f in out["made_from"]["files"]} == set(map(str, recorded.inputs))


def test_ranges_of_a_file(recorded: Recorded) -> None:
    """Each reader of a part of a file names the range; all ranges together are the file."""
    uses = lineage(recorded, recorded.lines)["read_by"]["files"]
    ranges = sorted((f["first"], f["last"]) for f in uses)
    assert len(ranges) == recorded.n_blocks > 1
    assert {f["unit"] for f in uses} == {"bytes"}
    assert ranges[0][0] == 0
    assert ranges[-1][1] >= recorded.lines.stat().st_size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))


def test_limits_are_stated(recorded: Recorded, strata: Strata) -> None:
    """Rows beyond the limit or the depth are counted, in JSON and on the terminal."""
    path = recorded.run.path
    found = lineage(recorded, "save", "--depth", 1)["made_from"]
    assert [t["key"] for t in found["tasks"]] == ["add"]
    assert (found["left_out_tasks"], found["left_out_files"]) == (N, N)
    text = strata("lineage", path, "save", "--limit", 1, check=True).stdout
    assert f"{N} more tasks" in text
    assert f"{N - 1} more files or ranges" in text
    text = strata("lineage", path, "save", check=True).stdout
    assert " more " not in text
    for part in (*map(str, recorded.inputs), "load-2", recorded.saved["host"]):
        assert part in text


def test_unknown_names_are_errors_with_suggestions(recorded: Recorded, strata: Strata) -> None:
    """Neither a key nor a file: exit status 1, one sentence, and close names."""
    path = recorded.run.path
    key = strata("lineage", path, "laod-1")
    assert key.returncode == 1
    assert "neither a task nor a file laod-1" in key.stderr
    assert "Did you mean" in key.stderr
    assert "load-" in key.stderr
    file = strata("lineage", path, "/elsewhere/in7.bin")
    assert file.returncode == 1
    assert str(recorded.inputs[0]) in file.stderr
    several = lineage(recorded, recorded.inputs[0].parent)
    assert len(several["read_by"]["tasks"]) == N + recorded.n_blocks
    assert strata("lineage", path).returncode == 2


def test_run_task_has_inputs_and_the_place(recorded: Recorded) -> None:
    """`inputs`, `outputs`, `chunk`, `host`, `pid` and `thread` of a task."""
    for n, (path, truth) in enumerate(zip(recorded.inputs, recorded.loaded, strict=True)):
        task = recorded.run.task(f"load-{n}")
        assert (task.host, task.pid, task.thread) == (truth["host"], truth["pid"], truth["thread"])
        (file,) = task.inputs
        assert (file["uri"], file["read_bytes"]) == (str(path), truth["size"])
        assert task.outputs == []
        assert task.chunk is None
    save = recorded.run.task("save")
    assert [f["uri"] for f in save.outputs] == [str(recorded.out)]
    assert save.inputs == []


def test_the_story_names_files_bytes_host_and_pid(recorded: Recorded, strata: Strata) -> None:
    """As text and as JSON, which has no internal columns."""
    truth, path = recorded.loaded[0], recorded.run.path
    text = strata("story", path, "load-0", check=True).stdout
    for part in (
        recorded.inputs[0],
        "97.7 KiB read",
        f"host {truth['host']}",
        f"pid {truth['pid']}",
    ):
        assert str(part) in text
    answer = json.loads(strata("story", path, "load-0", "--format", "json", check=True).stdout)
    assert (answer["host"], answer["pid"]) == (truth["host"], truth["pid"])
    assert answer["files"][0]["uri"] == str(recorded.inputs[0])
    names = list(names_in(answer))
    names += names_in(
        [recorded.run.task("load-0").rows(t) for t in ("tasks", "attempts", "executions")]
    )
    assert not [name for name in names if name.startswith("_")]


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of all fields in a JSON value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from names_in(part)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bytes_of_a_thread_are_no_size_if_threads_of_a_library_read_the_file(
    tmp_path: Path, threads: int
) -> None:
    """Pyarrow reads columns in threads of its own: the count of the task's thread is no size."""
    n_bytes = {}
    for n in range(4):
        path = tmp_path / f"in{n}.parquet"
        frame = pd.DataFrame({"x": np.random.default_rng(n).random(200_000)})
        frame.to_parquet(path)
        n_bytes[str(path)] = path.stat().st_size
    with (
        LocalCluster(n_workers=1, threads_per_worker=threads, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "runs", client=client) as run,
    ):
        dd.read_parquet(sorted(n_bytes)).x.sum().compute()
    files = [
        file for row in run.rows("select key from tasks") for file in run.task(row["key"]).inputs
    ]
    assert {file["uri"] for file in files} == set(n_bytes)
    for file in files:
        assert file["read_bytes"] is None or file["read_bytes"] >= n_bytes[file["uri"]]

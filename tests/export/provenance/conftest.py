"""Runs whose provenance is known."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run

WORKER = "tcp://w:1"

#: Texts of keys, prefixes and files that need escapes somewhere.
HOSTILE = ["a\"b'c", "<x> & %41", "ü #?\u2028", "a\\b\nc", "-", "[1](2)", "..", "x" * 2000, "a\0b"]


def opened(key: str, execution: int, uri: str, mode: str, **more: object) -> dict[str, object]:
    """Return a row of file_opens."""
    return {
        "execution": execution,
        "key": key,
        "worker": WORKER,
        "uri": uri,
        "mode": mode,
        "count": 1,
        **more,
    }


def executed(key: str, execution: int, start: float, stop: float) -> dict[str, object]:
    """Return a row of executions."""
    return {
        "execution": execution,
        "key": key,
        "worker": WORKER,
        "kind": "thread",
        "outcome": "finished",
        "thread": 1,
        "start": T0 + int(start * SECOND),
        "stop": T0 + int(stop * SECOND),
        "cpu_seconds": 0.5,
    }


def flow(folder: Path, inputs: list[str], output: str, *, text: str | None = "print()") -> Path:
    """Make a run: each `load` reads an input, `sum` depends on all, `save` writes the output."""
    new_run(folder)
    loads = [f"load-{n}" for n in range(len(inputs))]
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", python="3.12", dask="1.2")
    rows = [row for n, key in enumerate(loads) for row in life(key, n, n + 1, WORKER)]
    end = len(loads)
    rows += life("sum-1", end, end + 1, WORKER) + life("save-1", end + 1, end + 2, WORKER)
    rows += moves("data-1", (0, "released", "memory"), worker=WORKER, nbytes=5)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    tasks = [*loads, "sum-1", "save-1", "data-1"]
    scheduler.write(
        "graph_tasks",
        [
            {"submission": "s-1", "key": key, "prefix": key[:-2], "function": f"f.{key[:-2]}"}
            | {"requested": key == "save-1"}
            for key in tasks
        ],
    )
    edges = [("sum-1", key) for key in loads] + [("save-1", "sum-1"), ("sum-1", "data-1")]
    scheduler.write(
        "graph_edges",
        [{"submission": "s-1", "key": key, "dependency": other} for key, other in edges],
    )
    scheduler.write("job", [{"name": "process.user", "value": "jo <b>", "source": "pwd.getpwuid"}])
    scheduler.end(at=T0 + 60 * SECOND)
    client = Process(folder, "client-1", address="Client-1", dask="1.3")
    client.write("job", [{"name": "process.user", "value": "jo <b>", "source": "pwd.getpwuid"}])
    facts = {"kind": "script", "name": "flow", "path": "/home/jo/my flow.py", "argv": '["x"]'}
    facts |= {} if text is None else {"text": text}
    client.write("script", [{"name": name, "value": value} for name, value in facts.items()])
    client.write("config", [{"name": "a.b", "value": '"c"', "source": "run.py"}])
    client.write("packages", [{"name": "numpy", "version": "2.0"}, {"name": "x\ny", "version": ""}])
    client.end()
    worker = Process(folder, "worker-1", address=WORKER, name="w", nthreads=1)
    last = len(loads) + 1
    executions = [executed(key, n, n, n + 1) for n, key in enumerate(loads)]
    worker.write("executions", [*executions, executed("save-1", last, end + 1, end + 2)])
    opens = [opened(key, n, inputs[n], "read") for n, key in enumerate(loads)]
    worker.write("file_opens", [*opens, opened("save-1", last, output, "write")])
    worker.end()
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return three input files and an output, all older than the run."""
    found = [tmp_path / name for name in ("a b.txt", "é'\".csv", "%41#?.bin", "out put.txt")]
    for n, path in enumerate(found):
        path.write_text(f"text {n}")
        os.utime(path, (T0 / SECOND - 60, T0 / SECOND - 60))
    return found


@pytest.fixture
def recorded(tmp_path: Path, files: list[Path]) -> Path:
    """Return a run with files that are at hand."""
    return flow(tmp_path / "run", [str(path) for path in files[:3]], str(files[3]))


def hostile_run(folder: Path) -> Path:
    """Make a run whose keys, files, workers and user are hostile texts."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = [row for n, key in enumerate(HOSTILE) for row in life(key, n, n + 1, HOSTILE[0])]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.write(
        "graph_tasks",
        [{"submission": "s-1", "key": key, "prefix": key, "requested": True} for key in HOSTILE],
    )
    scheduler.write(
        "graph_edges",
        [
            {"submission": "s-1", "key": key, "dependency": other}
            for other, key in pairwise(HOSTILE)
        ],
    )
    scheduler.write(
        "claimed_inputs",
        [
            {"submission": "s-1", "key": key, "uri": uri, "extractor": "read_parquet"}
            for key in HOSTILE
            for uri in (key, f"/data/{key}", f"s3://bucket/{key}")
        ],
    )
    scheduler.write("job", [{"name": "process.user", "value": HOSTILE[0], "source": "x"}])
    scheduler.end(at=T0 + 60 * SECOND)
    client = Process(folder, "client-1", address=HOSTILE[2], dask=HOSTILE[3])
    names = ("kind", "name", "path", "argv", "text")
    client.write("script", [{"name": name, "value": HOSTILE[3]} for name in names])
    client.write("config", [{"name": text, "value": text, "source": text} for text in HOSTILE])
    client.end()
    return folder


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a run of hostile texts."""
    return hostile_run(tmp_path / "hostile")

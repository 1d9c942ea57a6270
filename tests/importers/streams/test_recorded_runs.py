"""A recorded run that was sent to a broker and imported is the same run, table by table."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.analysis.check import WHOLE
from dask_strata.brokers.broker import MAX_BATCH
from dask_strata.brokers.message import Message
from dask_strata.brokers.registry import open_sink
from dask_strata.importers.streams.importer import import_stream
from tests.brokers.servers import KafkaCluster, RedisServer
from tests.conftest import runs_in, wait_until
from tests.support.eventful import record_eventful
from tests.support.finalised import differences
from tests.support.processes import terminate
from tests.support.streamed import messages_of, recorded_rows

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with retries, a shuffle, files and a killed worker, as segments."""
    return record_eventful(tmp_path_factory.mktemp("eventful"))


@pytest.fixture(scope="module")
def messages(recorded: Path) -> list[Message]:
    """Its messages in JSON."""
    return messages_of(recorded)


@pytest.fixture(scope="module")
def expected(recorded: Path) -> Rows:
    """Its recorded rows."""
    found = recorded_rows(open_run(recorded))
    assert sum(map(len, found.values())) > 3000
    return found


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of real brokers."""
    redis, kafka = RedisServer(tmp_path_factory.mktemp("redis")), KafkaCluster()
    yield {"redis": redis.url, "kafka": kafka.url}
    redis.close()
    kafka.close()


def send(url: str, messages: list[Message]) -> None:
    """Send messages in batches, as the sender does."""
    sink = open_sink(url, messages[0].run)
    for at in range(0, len(messages), MAX_BATCH):
        sink.send(messages[at : at + MAX_BATCH])
    sink.close()


def assert_same_rows(imported: Path, expected: Rows) -> None:
    """Assert that all recorded tables are equal, exactly."""
    found = recorded_rows(open_run(imported))
    for name, rows in expected.items():
        assert found[name] == rows, name


def assert_same_answers(imported: Path, recorded: Path) -> None:
    """Assert that derived tables, `run.json` and the check are equal, too."""
    now, then = open_run(imported), open_run(recorded)
    assert now.manifest == then.manifest
    assert differences(imported, recorded) == []
    assert now.check().grade == then.check().grade
    missing = [
        [f.text for f in run.check().findings if f.severity == "missing"] for run in (now, then)
    ]
    assert missing[0] == missing[1]


@pytest.mark.parametrize("form", ["json", "arrow"])
@pytest.mark.parametrize("broker", ["redis", "kafka"])
def test_the_imported_run_is_the_recorded_one(  # noqa: PLR0913, PLR0917
    broker: str,
    form: Any,
    recorded: Path,
    expected: Rows,
    servers: dict[str, str],
    tmp_path: Path,
) -> None:
    """Of each broker, in both forms of messages."""
    topic = f"{broker}-{form}"
    url = {
        "redis": f"{servers['redis']}?stream={topic}&format={form}",
        "kafka": f"{servers['kafka']}/{topic}?format={form}",
    }[broker]
    send(url, messages_of(recorded, form))
    done = import_stream(url, tmp_path / "runs")
    assert done.is_complete
    (run,) = done.runs
    assert_same_rows(run.path, expected)


def test_the_command(
    messages: list[Message], recorded: Path, expected: Rows, tmp_path: Path, strata: Strata
) -> None:
    """It finalises the run, which answers as the recorded one, and leaves it alone later."""
    url = f"file:{tmp_path}/rows.jsonl"
    send(url, messages)
    done = strata("import", url, "-o", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (run,) = runs_in(tmp_path / "runs")
    assert f"{sum(m.rows for m in messages):,} rows" in done.stdout
    assert "missing" not in done.stderr
    assert run.path.name.endswith(messages[0].run)
    assert_same_rows(run.path, expected)
    assert_same_answers(run.path, recorded)
    again = strata("import", url, "-o", tmp_path / "runs")
    assert again.returncode == 0
    assert "already" in again.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [run.path.name]


def test_any_order_duplicates_and_noise(
    messages: list[Message], expected: Rows, tmp_path: Path
) -> None:
    """Messages in random order, some of them twice, between others: the run is the same."""
    chaos = random.Random(3)
    lines = [m.data for m in messages]
    doubled = chaos.sample(messages, 500)
    lines += [m.data for m in doubled] + [b"noise", b"{}", b'{"strata": 1}', b"\xff\xfe"]
    chaos.shuffle(lines)
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    done = import_stream(f"file:{tmp_path}/rows.jsonl", tmp_path / "runs")
    (run,) = done.runs
    assert done.is_complete
    assert run.missing == ()
    assert run.duplicates == sum(m.rows for m in doubled)
    assert done.set_aside == 4
    facts = json.loads((run.path / "import.json").read_text())
    assert facts["duplicates"] == run.duplicates
    assert_same_rows(run.path, expected)


def test_missing_rows_are_losses(messages: list[Message], expected: Rows, tmp_path: Path) -> None:
    """Rows that are missing at the begin, in the middle and at the end are counted exactly."""
    scheduler = [m for m in messages if (m.process or "").startswith("scheduler")]
    dropped = {id(m) for m in (*scheduler[:3], *scheduler[50:57], *scheduler[-11:])}
    send(f"file:{tmp_path}/rows.jsonl", [m for m in messages if id(m) not in dropped])
    with (tmp_path / "rows.jsonl").open("ab") as file:
        file.write(b"not a message\n")
    (run,) = import_stream(f"file:{tmp_path}/rows.jsonl", tmp_path / "runs").runs
    process = scheduler[0].process
    assert f"14 rows of {process}: not in the stream" in " ".join(run.missing)
    assert f"7 rows of {process}: missing between others" in run.missing
    assert run.set_aside == 1
    assert (run.path / "aside" / "messages").read_bytes() == b"not a message\n"
    opened = open_run(run.path)
    assert opened.check().grade != WHOLE
    counted = opened.rows(
        "select what, sum(count) as n from losses where what in ('rows', 'frame') group by all "
        "order by n"
    )
    assert [(row["what"], row["n"]) for row in counted] == [("frame", 7), ("rows", 14)]
    (aside,) = opened.rows("select file, line, reason from set_aside")
    assert (aside["file"], aside["line"]) == ("messages", 1)
    assert recorded_rows(opened)["worker_transitions"] == expected["worker_transitions"]


@pytest.mark.parametrize("lost", ["run", "end"])
def test_without_the_first_or_last_message(
    lost: str, messages: list[Message], expected: Rows, tmp_path: Path
) -> None:
    """The run is made, and reports what is missing."""
    send(f"file:{tmp_path}/rows.jsonl", [m for m in messages if m.kind != lost])
    done = import_stream(f"file:{tmp_path}/rows.jsonl", tmp_path / "runs")
    assert not done.is_complete
    (made,) = done.runs
    (reason,) = made.missing
    assert {"run": "run.json", "end": "the last message"}[lost] in reason
    run = open_run(made.path)
    assert run.manifest.run_id == messages[0].run
    first = messages[0].content["created_ns"]
    assert abs(run.manifest.created_ns - first) < 60 * 10**9
    assert run.check().grade != WHOLE
    tables = recorded_rows(run)
    for name, rows in expected.items():
        assert tables[name] == rows or name in {"losses", "processes"}


def test_several_runs_and_another_name(messages: list[Message], tmp_path: Path) -> None:
    """Each run of a stream becomes a run; `--name` names them."""
    path = tmp_path / "rows.jsonl"
    send(f"file:{path}", messages)
    ids = [messages[0].run, "00000001"]
    other = b"".join(m.data + b"\n" for m in messages).replace(ids[0].encode(), ids[1].encode())
    path.write_bytes(path.read_bytes() + other)
    done = import_stream(f"file:{path}", tmp_path / "runs", name="mine")
    one, two = (open_run(run.path) for run in done.runs)
    assert [one.manifest.run_id, two.manifest.run_id] == ids
    assert "-mine-" in one.path.name
    assert "-mine-" in two.path.name
    assert one.record.rows == two.record.rows


@pytest.mark.release
@pytest.mark.parametrize("broker", ["file", "redis", "kafka"])
def test_follow_ends_with_the_run(
    broker: str, messages: list[Message], expected: Rows, servers: dict[str, str], tmp_path: Path
) -> None:
    """The import starts before the run, reads while messages arrive, and ends with it."""
    url = {
        "file": f"file:{tmp_path}/rows.jsonl",
        "redis": f"{servers['redis']}?stream=follow",
        "kafka": f"{servers['kafka']}/follow",
    }[broker]
    runs = tmp_path / "runs"
    sink = open_sink(url, messages[0].run)
    if broker == "kafka":
        sink.send(messages[:1])  # creates the topic
    process = subprocess.Popen(
        [sys.executable, "-m", "dask_strata", "import", url, "--follow", "-o", runs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        sink.send(messages[:1000])
        wait_until(lambda: list(runs.glob(".import-*/segments")), what="the first message")
        assert process.poll() is None
        sink.send(messages[1000:])
        out, err = process.communicate(timeout=100)
    finally:
        terminate(process)
        sink.close()
    assert process.returncode == 0, err
    assert f"{sum(m.rows for m in messages):,} rows" in out
    (run,) = runs_in(runs)
    assert_same_rows(run.path, expected)


def test_ctrl_c_leaves_nothing(messages: list[Message], tmp_path: Path) -> None:
    """An import that waits for more is interrupted: no file remains, and a later one works."""
    path, runs = tmp_path / "rows.jsonl", tmp_path / "runs"
    send(f"file:{path}", messages[: len(messages) // 2])
    arguments = ["import", f"file:{path}", "--follow", "-o", str(runs)]
    process = subprocess.Popen([sys.executable, "-m", "dask_strata", *arguments])
    try:
        wait_until(lambda: list(runs.glob(".import-*/segments")), what="the first message")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        terminate(process)
    assert not runs.exists()
    send(f"file:{path}", messages[len(messages) // 2 :])
    assert import_stream(f"file:{path}", runs).is_complete

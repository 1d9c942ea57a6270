"""`dask-strata stream`: a stream has each row once, whatever happens to its sender."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import follow
from dask_strata.brokers.broker import BrokerError
from dask_strata.brokers.file import FileSink
from dask_strata.brokers.message import Message, decode
from dask_strata.brokers.registry import check_address
from dask_strata.errors import StrataError, UsageError
from dask_strata.store.compact import compact
from dask_strata.store.manifest import SEGMENTS, SUFFIX, Manifest
from dask_strata.stream import sender
from dask_strata.stream.sender import send
from tests.conftest import wait_until
from tests.stream.test_follow import busy_run
from tests.support.following import Followed
from tests.support.synthetic import T0, Process, new_run

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


def lines(stream: Path) -> list[Message]:
    return [decode(line) for line in stream.read_bytes().splitlines()]


def places(stream: Path) -> list[tuple[str | None, str | None, int | None]]:
    """Table, process and number of each row of a stream, in its order."""
    return [(m.table, m.process, m.first) for m in lines(stream) if m.kind == "row"]


def assert_whole(stream: Path, run: Path) -> None:
    """Assert that a stream has each row of a run once, in order by process, and its end."""
    found = Followed()
    found.add(follow(run, wait=False))
    expected = {
        (table, process, n) for (table, process), rows in found.rows.items() for n, _ in rows
    }
    there = places(stream)
    assert len(there) == len(set(there))
    assert set(there) == expected
    for process in found.next:
        numbers = [n for _, p, n in there if p == process]
        assert numbers == sorted(numbers)
    messages = lines(stream)
    # The first and the last message are sent again if it is unknown whether they arrived.
    assert [*dict.fromkeys(m.kind for m in messages if m.kind != "row")] == ["run", "end"]
    assert (messages[0].kind, messages[-1].kind) == ("run", "end")
    assert messages[0].content == Manifest.read(run).to_json()
    counts: dict[str, dict[str, int]] = {}
    for table, process, _ in there:
        of_process = counts.setdefault(str(process), {})
        of_process[str(table)] = of_process.get(str(table), 0) + 1
    assert messages[-1].content["rows"] == counts


def test_a_run_that_is_done(tmp_path: Path, strata: Strata) -> None:
    """All rows; a second call sends nothing, and `--again` all once more."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    done = strata("stream", run, f"file:{stream}", check=True)
    n = len(places(stream))
    assert done.stdout == f"file:{stream}: {n} rows sent, the run is complete\n"
    assert_whole(stream, run)
    assert send(run, f"file:{stream}").rows == 0
    assert_whole(stream, run)
    compact(run)
    assert send(run, f"file:{stream}").rows == 0
    assert send(run, f"file:{stream}", again=True).rows == n
    assert len(places(stream)) == 2 * n


def test_the_address_on_standard_input(tmp_path: Path, strata: Strata) -> None:
    """No list of processes shows a password then."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    strata("stream", run, "-", input=f"file:{stream}\n", check=True)
    assert_whole(stream, run)


def test_killed_and_started_again(tmp_path: Path) -> None:
    """With SIGKILL, while the run is recorded: what the stream has is not sent again."""
    run, stream = new_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    worker = Process(run, "worker-1", address="tcp://w:1")
    command = [sys.executable, "-m", "dask_strata", "stream", str(run), f"file:{stream}"]
    for part in range(3):
        process = subprocess.Popen(command, cwd=tmp_path)
        try:
            for i in range(40):
                scheduler.write("overheads", [{"time": T0 + i, "rows": part}] * 20)
                worker.write("job", [{"name": "x", "value": str(i)}] * 3)
            n = 1 + (part + 1) * 40 * 20  # the segment's first row, too
            # Somewhere in the middle of these rows, or behind them.
            wait_until(lambda least=n - 700: len(_complete(stream, "scheduler-1")) >= least)
        finally:
            process.kill()
            process.wait()
    worker.end()
    scheduler.end()
    sent = send(run, f"file:{stream}")
    assert sent.state == "complete"
    assert_whole(stream, run)


def _complete(stream: Path, process: str) -> list[bytes]:
    """Return the complete lines of a process."""
    if not stream.exists():
        return []
    found = stream.read_bytes().split(b"\n")[:-1]
    return [line for line in found if f'"process":"{process}"'.encode() in line]


def test_two_senders_exclude_each_other(tmp_path: Path) -> None:
    """For one run and one address; the second names the first."""
    run, stream = new_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(send(run, f"file:{stream}")))
    first.start()
    wait_until(lambda: len(_complete(stream, "scheduler-1")) == 1)
    with pytest.raises(StrataError, match=f"by another process .pid {os.getpid()} "):
        send(run, f"file:{stream}")
    scheduler.end()
    first.join(60)
    assert results[0].state == "complete"
    assert_whole(stream, run)


class Faulty(FileSink):
    """A sink whose broker is away at chosen calls, before or after it has written the rows."""

    faults: dict[int, str]
    calls = 0

    def send(self, messages: Any) -> None:
        type(self).calls += 1
        fault = self.faults.get(self.calls)
        if fault == "before":
            raise BrokerError("The broker is away.")
        if fault == "middle":
            super().send(messages[: len(messages) // 2])
            raise BrokerError("The broker is away.")
        super().send(messages)
        if fault == "after":
            raise BrokerError("The acknowledgement was lost.")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> type[Faulty]:
    """Send with a faulty sink, and without long waits."""

    class Sink(Faulty):
        calls = 0

    monkeypatch.setattr(sender, "open_sink", Sink)
    monkeypatch.setattr(sender, "_FIRST_RETRY", 0.01)
    return Sink


def test_a_broker_that_is_away_for_a_moment(tmp_path: Path, faulty: type[Faulty]) -> None:
    """Before, in the middle of and after a batch: it continues where the stream is."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    faulty.faults = {1: "before", 2: "after", 3: "middle", 4: "before", 5: "after"}
    notes: list[str] = []
    send(run, f"file:{stream}", report=notes.append)
    assert_whole(stream, run)
    assert faulty.calls > 5
    assert notes[0].startswith("The broker is away. The run is not affected")
    assert "is back after" in notes[1]


def test_again_with_a_broker_that_is_away_for_a_moment(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    """All rows are sent once more, also those after the error."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    faulty.faults = {5: "before"}  # after three calls of the first copy
    n = send(run, f"file:{stream}").rows
    assert send(run, f"file:{stream}", again=True).rows == n
    assert faulty.calls > 6
    assert len(places(stream)) == 2 * n


def test_a_broker_that_stays_away(tmp_path: Path, faulty: type[Faulty]) -> None:
    """After the recording has ended, the sender gives up, and names the next step."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    faulty.faults = dict.fromkeys(range(2, 1000), "before")
    began = time.monotonic()
    with pytest.raises(StrataError, match="rows are missing in the stream") as caught:
        send(run, f"file:{stream}", give_up_seconds=0.5)
    assert 0.5 <= time.monotonic() - began < 30
    assert caught.value.hint == f"Send the rest with: dask-strata stream {run} URL"
    [state] = (run / "stream").glob("*.json")
    assert json.loads(state.read_text())["error"] == "The broker is away."
    faulty.faults = {}
    send(run, f"file:{stream}")
    assert_whole(stream, run)


def test_it_waits_for_the_broker_while_the_run_is_recorded(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    """However long the broker is away; also if all rows of the end were not read yet."""
    run, stream = new_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    faulty.faults = dict.fromkeys(range(1, 1_000_000), "before")
    results: list[Any] = []

    def work() -> None:
        try:
            send(run, f"file:{stream}", give_up_seconds=0.5)
        except StrataError as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: faulty.calls >= 4)
    time.sleep(1)  # twice as long as it would wait after the end
    assert not results
    scheduler.end()
    thread.join(60)
    assert "rows are missing" in str(results[0])


def test_a_broker_that_lost_rows(tmp_path: Path) -> None:
    """Rows that the stream does not have any more are sent again."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    send(run, f"file:{stream}")
    kept = stream.read_bytes().splitlines(keepends=True)[:40]
    stream.write_bytes(b"".join(kept))
    send(run, f"file:{stream}")
    assert_whole(stream, run)


def test_without_positions_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender's own file has them; some rows may be sent twice, and none is missing."""

    class Silent(FileSink):
        def last(self) -> None:
            return None

    monkeypatch.setattr(sender, "open_sink", Silent)
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    send(run, f"file:{stream}")
    assert_whole(stream, run)
    assert send(run, f"file:{stream}").rows == 0


def test_a_run_whose_folder_is_removed(tmp_path: Path) -> None:
    """As a spooled run after its copy was fetched: its open segments are read to their ends."""
    run, stream = new_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(send(run, f"file:{stream}")))
    thread.start()
    wait_until(lambda: len(_complete(stream, "scheduler-1")) == 1)
    scheduler.write("overheads", [{"time": T0}] * 3000)
    scheduler.end()
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    shutil.rmtree(run)
    thread.join(60)
    assert results[0].state == "complete"
    shutil.rmtree(copy / "stream")
    assert_whole(stream, copy)


def test_a_run_that_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    """The lock and the positions are in the cache folder then."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    (run / "stream").write_text("no folder")
    send(run, f"file:{stream}")
    assert_whole(stream, run)
    assert list((cache.parent / "streams").glob("*.json"))


@pytest.mark.parametrize("url", ["nope://x", "kafka://", "file:", "redis://:hunter2@h:99999"])
def test_wrong_addresses(tmp_path: Path, strata: Strata, url: str) -> None:
    """One line without the password, and the status of a wrong call."""
    run = busy_run(tmp_path / "run")
    done = strata("stream", run, url)
    assert done.returncode == 2
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_is_not_a_stream(tmp_path: Path) -> None:
    """It is refused at once, and by `dask-strata record` before the script starts."""
    with pytest.raises(UsageError, match="is a folder"):
        check_address(f"file:{tmp_path}")


def test_an_error_that_does_not_pass_is_in_the_state(tmp_path: Path) -> None:
    """`dask-strata record` prints it: the process that sends has ended."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    os.mkfifo(stream)
    with pytest.raises(UsageError):
        send(run, f"file:{stream}")
    [state] = (run / "stream").glob("*.json")
    assert json.loads(state.read_text())["error"] == f"{stream} is not a file."


def test_ctrl_c(tmp_path: Path) -> None:
    """Status 130, without a traceback; sending can go on later."""
    run, stream = new_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    command = [sys.executable, "-m", "dask_strata", "stream", str(run), f"file:{stream}"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(_complete(stream, "scheduler-1")) == 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "Interrupted.")
    scheduler.end()
    send(run, f"file:{stream}")
    assert_whole(stream, run)
    assert (run / SEGMENTS / f"scheduler-1{SUFFIX}").exists()

"""What every pair of a sink and a source guarantees: each broker runs as a real process."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dask_strata.brokers.broker import MAX_BATCH, Gap, Message, Unreadable, batches
from dask_strata.brokers.registry import open_sink, open_source
from dask_strata.errors import BrokerError
from tests.brokers.conftest import Broker, FileBroker
from tests.brokers.test_messages import FOREIGN, HOSTILE
from tests.conftest import wait_until
from tests.support.streams import (
    by_process,
    first_and_last,
    messages_of,
    seen_once,
    simple_messages,
)

ROOT = Path(__file__).parents[2]


def received(url: str) -> list[Any]:
    """Return what a source yields up to the present end."""
    source = open_source(url)
    try:
        return list(source.messages())
    finally:
        source.close()


def send(url: str, run: str, messages: list[Message]) -> None:
    """Send messages with a sink of their own."""
    sink = open_sink(url, run)
    sink.send(messages)
    sink.close()


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_all_comes_back_equal_and_in_order(broker: Broker, topic: str, form: Any) -> None:
    """Rows of all tables and of several processes, between the first and the last message."""
    if isinstance(broker, FileBroker) and form == "arrow":
        pytest.skip("a file has lines of JSON")
    url = broker.url(topic, form)
    first, last = first_and_last("0a1b2c3d")
    rows = messages_of("0a1b2c3d", "worker-1", "worker-2", "scheduler-1", rows=9, form=form)
    send(url, "0a1b2c3d", [first, *rows])
    send(url, "0a1b2c3d", [last])
    found = received(url)
    assert len(found) == len(rows) + 2
    for process in ("worker-1", "worker-2", "scheduler-1", None):
        sent = [m for m in (first, *rows, last) if m.process == process]
        assert [m for m in found if m.process == process] == sent


def test_an_empty_or_missing_stream(broker: Broker, topic: str) -> None:
    """A sink has no positions there, and a source ends; a missing file is an error."""
    url = broker.url(topic)
    sink = open_sink(url, "r")
    assert sink.last() == ({} if broker.positions else None)
    if isinstance(broker, FileBroker):
        with pytest.raises(BrokerError, match="No such file"):
            received(url)
    elif broker.positions:
        assert received(url) == []
    sink.send([])
    sink.close()


def test_runs_in_one_stream_stay_apart(broker: Broker, topic: str) -> None:
    """Also if their processes have the same ids."""
    url = broker.url(topic)
    one, two = (simple_messages(run, "worker-1", range(n)) for run, n in (("a", 30), ("b", 20)))
    sinks = {run: open_sink(url, run) for run in ("a", "b")}
    for i in range(0, 30, 10):
        sinks["a"].send(one[i : i + 10])
        sinks["b"].send(two[i : i + 10])
    if broker.positions:
        assert [sink.last() for sink in sinks.values()] == [{"worker-1": 29}, {"worker-1": 19}]
    assert by_process(received(url)) == {
        ("a", "worker-1"): list(range(30)),
        ("b", "worker-1"): list(range(20)),
    }


def test_hostile_messages_are_counted(broker: Broker, topic: str) -> None:
    """They are between messages that are read, and each is one `Unreadable` with a sentence."""
    url = broker.url(topic)
    hostile = [*HOSTILE.values(), *FOREIGN.values()]
    send(url, "r", simple_messages("r", "worker-1", range(5)))
    broker.inject(topic, hostile)
    send(url, "r", simple_messages("r", "worker-1", range(5, 10)))
    found = received(url)
    good = [m for m in found if isinstance(m, Message)]
    bad = [m for m in found if isinstance(m, Unreadable)]
    assert by_process(good) == {("r", "worker-1"): list(range(10))}
    assert len(good) + len(bad) == len(found)
    assert all(m.reason and m.place for m in bad)
    if broker.positions:
        # A blank line of a file is no message; bytes of Arrow make several lines there.
        assert len(bad) >= len(hostile) - isinstance(broker, FileBroker)
        assert open_sink(url, "r").last() == {"worker-1": 9}


def test_a_source_follows_until_it_is_closed(broker: Broker, topic: str) -> None:
    """It yields messages that are sent while it waits, also if the stream did not exist."""
    url = broker.url(topic)
    if not broker.positions:
        send(url, "r", simple_messages("r", "worker-0", range(1)))
    source = open_source(url)
    found: list[Any] = []
    thread = threading.Thread(target=_collect, args=(source, found), daemon=True)
    thread.start()
    for start in range(0, 30, 10):
        send(url, "r", simple_messages("r", "worker-1", range(start, start + 10)))
        wait_until(lambda n=start + 10: len(found) >= n, what="messages")
    source.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [m.first for m in found if m.process == "worker-1"] == list(range(30))


def _collect(source: Any, found: list[Any]) -> None:
    for message in source.messages(follow=True):
        found.append(message)  # noqa: PERF402  the list is read meanwhile


def test_batches_are_bounded() -> None:
    """In number and in bytes, without a loss or another order."""
    small = simple_messages("r", "p", range(1300))
    large = simple_messages("r", "p", range(1300, 1310), "x" * (3 << 20))
    made = list(batches([*small, *large]))
    assert [m.first for batch in made for m in batch] == list(range(1310))
    assert all(0 < len(batch) <= MAX_BATCH for batch in made)
    assert all(sum(len(m.data) for m in batch) <= 9 << 20 for batch in made)


#: Sends rows in batches from a row on, and prints the last row of each that was acknowledged.
_SENDER = """
import sys
from dask_strata.brokers.registry import open_sink
from tests.support.streams import simple_messages
url, start = sys.argv[1], int(sys.argv[2])
sink = open_sink(url, "r")
while True:
    rows = [simple_messages("r", p, range(start, start + 200), "x" * 300) for p in ("p-1", "p-2")]
    sink.send([m for pair in zip(*rows) for m in pair])
    start += 200
    print(start - 1, flush=True)
"""


@pytest.mark.long
def test_a_sender_that_is_killed_continues_at_its_positions(broker: Broker, topic: str) -> None:
    """No acknowledged row is missing; without the brokers' doubles, each row is there once."""
    if not broker.positions:
        pytest.skip("the sink of Mofka does not know its positions")
    url = broker.url(topic)
    start = 0
    for kill in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _SENDER, url, str(start)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        acknowledged = [int(line) for line in itertools.islice(lines, 2 + 3 * kill)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in lines]
        child.wait()
        child.stdout.close()
        found = open_sink(url, "r").last()
        assert found is not None
        assert found.keys() == {"p-1", "p-2"}
        assert min(found.values()) >= acknowledged[-1]
        start = min(found.values()) + 1
    send(
        url,
        "r",
        [m for p in ("p-1", "p-2") for m in simple_messages("r", p, range(start, start + 400))],
    )
    messages = received(url)
    assert not [m for m in messages if isinstance(m, Gap)]
    readable = (m for m in messages if isinstance(m, Message))
    once = seen_once(readable, "r")
    for process in ("p-1", "p-2"):
        assert once[process] == list(range(start + 400))

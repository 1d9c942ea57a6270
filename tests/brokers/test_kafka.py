"""Streams in Kafka: librdkafka's mock cluster as a process that is stopped and killed."""

from __future__ import annotations

import re
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.brokers.broker import Gap, Message, Payload, Unreadable
from dask_strata.brokers.kafka_parts import PART_BYTES, Joiner, parts
from dask_strata.brokers.registry import open_sink, open_source
from dask_strata.errors import BrokerError, UsageError
from tests.brokers.servers import KafkaCluster, stop
from tests.conftest import wait_until
from tests.support.streams import seen_once, simple_messages

kafka = pytest.importorskip("confluent_kafka")


def rows(*numbers: int, text: str = "x") -> list[Message]:
    """Return rows from the first number to before the second."""
    return simple_messages("r", "p", range(*numbers), text)


def read(url: str) -> list[Any]:
    """Return all that is in the topic now."""
    return list(open_source(url).messages())


def test_large_rows_are_sent_in_parts(kafka_cluster: KafkaCluster) -> None:
    """A broker accepts messages of 1 MB; the positions and the reader have whole rows."""
    url = f"{kafka_cluster.url}/large"
    large = rows(1, 2, text="é" * 1_000_000)
    sink = open_sink(url, "r")
    sink.send([*rows(0, 1), *large, *rows(2, 3)])
    assert read(url) == [*rows(0, 1), *large, *rows(2, 3)]
    assert sink.last() == {"p": 2}


@given(st.integers(0, 3 * PART_BYTES), st.data())
def test_parts_are_joined_whatever_is_repeated(size: int, data: st.DataObject) -> None:
    """A sender may repeat a message after any part of it; another one may send in between."""
    whole = bytes(1) * (size // 2) + b"x" * (size - size // 2)
    other = list(parts(b"y" * (2 * PART_BYTES + 1)))
    made = list(parts(whole))
    assert all(len(part) <= PART_BYTES for part, _ in made)
    cut = data.draw(st.integers(0, len(made) - 1))
    sequence = [*made[:cut], *made]
    for i, part in zip(
        sorted(data.draw(st.permutations(range(len(sequence))))[:3]), other, strict=False
    ):
        sequence.insert(i, part)
    joiner = Joiner()
    found = [joiner.add(0, "place", part, headers) for part, headers in sequence]
    assert Payload("place", whole) in found
    assert not [one for one in found if isinstance(one, Unreadable)]


def test_parts_without_their_begin_are_unreadable() -> None:
    """A reader may start in the middle of a message."""
    joiner = Joiner()
    for part, headers in list(parts(b"x" * (3 * PART_BYTES)))[1:]:
        assert isinstance(joiner.add(0, "place", part, headers), Unreadable)


def test_deleted_messages_are_a_gap(kafka_cluster: KafkaCluster) -> None:
    """The mock cluster keeps 5 MiB of a partition, as a broker's retention does."""
    url = f"{kafka_cluster.url}/short"
    sink = open_sink(url, "r")
    sink.send(rows(0, 10, text="x" * 800_000))
    gap, *rest = read(url)
    assert isinstance(gap, Gap)
    assert gap.messages == 10 - len(rest)
    assert [m.first for m in rest] == list(range(gap.messages, 10))
    assert 0 < len(rest) < 10


def test_positions_of_a_process_that_is_far_back_are_unknown(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is bounded; a sender's own positions serve instead."""
    monkeypatch.setattr("dask_strata.brokers.kafka._TAIL", 100)
    url = f"{kafka_cluster.url}/tail"
    sink = open_sink(url, "r")
    sink.send(simple_messages("r", "early", range(5)))
    for process in ("a", "b", "c", "d", "e", "f", "g", "h"):
        sink.send(simple_messages("r", process, range(200)))
    found = sink.last() or {}
    assert "early" not in found
    assert set(found.values()) == {199}
    assert open_sink(url, "of-others").last() is None
    assert open_sink(f"{kafka_cluster.url}/tail-of-none", "r").last() == {}


def test_a_stopped_broker(kafka_cluster: KafkaCluster) -> None:
    """A batch fails in bounded time; sent again, a reader that looks at seq has each row once."""
    url = f"{kafka_cluster.url}/stopped?delivery.timeout.ms=2000&socket.timeout.ms=1500"
    sink = open_sink(url, "r")
    sink.send(rows(0, 100))
    stop(kafka_cluster.process)
    started = time.monotonic()
    with pytest.raises(BrokerError, match="kafka://"):
        sink.send(rows(100, 200))
    assert time.monotonic() - started < 20
    kafka_cluster.process.send_signal(signal.SIGCONT)
    sink.send(rows(100, 200))
    assert seen_once(iter(read(url)), "r") == {"p": list(range(200))}
    assert sink.last() == {"p": 199}


@pytest.mark.long
def test_a_broker_that_ends(kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending, positions and reading fail in bounded time, and with one kind of error."""
    monkeypatch.setattr("dask_strata.brokers.kafka._SECONDS", 2)
    url = f"{kafka_cluster.url}/gone"
    sink = open_sink(url, "r")
    sink.send(rows(0, 10))
    kafka_cluster.process.kill()
    kafka_cluster.process.wait()
    started = time.monotonic()
    for call in (lambda: sink.send(rows(10, 20)), sink.last, lambda: read(url)):
        with pytest.raises(BrokerError):
            call()
    sink.close()
    assert time.monotonic() - started < 40


def test_options_reach_librdkafka_and_errors_show_no_password() -> None:
    """A wrong name or value is an error of librdkafka, without the secrets of the address."""
    secret = "s3cret-word"
    for option in ("nope.nope=1", "security.protocol=nope", f"sasl.mechanisms={secret}"):
        url = f"kafka://me:{secret}@127.0.0.1:9/t?{option}&ssl.key.password={secret}"
        for make in (partial(open_sink, url, "r"), partial(open_source, url)):
            with pytest.raises(UsageError) as caught:
                make()
            assert secret not in str(caught.value)
            assert re.search(r"nope\.nope|security\.protocol|SASL mechanism", str(caught.value))


@pytest.mark.long
def test_rows_are_sent_through_faults(kafka_cluster: KafkaCluster) -> None:
    """A sink that continues at its positions: the broker is stopped meanwhile, for seconds."""
    url = f"{kafka_cluster.url}/faults?delivery.timeout.ms=1500&socket.timeout.ms=1000"
    done = threading.Event()
    sent = failures = 0

    def work() -> None:
        nonlocal sent, failures
        sink = open_sink(url, "r")
        while not done.is_set():
            try:
                sink.send(rows(sent, sent + 20))
            except BrokerError:
                failures += 1
                done.wait(0.1)
            else:
                sent += 20
                done.wait(0.005)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for _ in range(3):
        before = sent
        wait_until(lambda n=before: sent > n + 500, what="rows")
        stop(kafka_cluster.process)
        time.sleep(4)
        kafka_cluster.process.send_signal(signal.SIGCONT)
    before = sent
    wait_until(lambda: sent > before + 500, what="rows")
    done.set()
    thread.join(20)
    assert failures >= 1
    found = read(url)
    assert seen_once(iter(found), "r") == {"p": list(range(sent))}

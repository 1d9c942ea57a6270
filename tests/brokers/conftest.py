"""Brokers of the conformance suite, one process each for a module."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.servers import KafkaCluster, RedisServer

_topics = (f"topic-{i}" for i in itertools.count())


class Broker:
    """One kind of broker: its addresses, and a way to put any bytes into a stream."""

    #: Whether a sink knows its positions; whether a reader never gets a row twice.
    positions = True
    exact = True

    def __init__(self, base: str) -> None:
        self.base = base

    def url(self, topic: str, form: str = "json") -> str:
        """Return the address of a topic."""
        raise NotImplementedError

    def inject(self, topic: str, payloads: list[bytes]) -> None:
        """Put bytes into a topic, as any other program could."""
        raise NotImplementedError


class FileBroker(Broker):
    """Lines of a file."""

    def url(self, topic: str, form: str = "json") -> str:
        del form
        return f"file:{self.base}/{topic}.jsonl"

    def inject(self, topic: str, payloads: list[bytes]) -> None:
        with Path(f"{self.base}/{topic}.jsonl").open("ab") as file:
            file.writelines(payload + b"\n" for payload in payloads)


class RedisBroker(Broker):
    """Entries of a stream."""

    def url(self, topic: str, form: str = "json") -> str:
        return f"{self.base}?stream={topic}&format={form}"

    def inject(self, topic: str, payloads: list[bytes]) -> None:
        import redis

        with redis.Redis.from_url(self.base) as client:
            for payload in payloads:
                client.xadd(topic, {"message": payload})
            client.xadd(topic, {"other": b"field"})


class KafkaBroker(Broker):
    """Messages of a topic."""

    exact = False

    def url(self, topic: str, form: str = "json") -> str:
        return f"{self.base}/{topic}?format={form}"

    def inject(self, topic: str, payloads: list[bytes]) -> None:
        from confluent_kafka import Producer

        servers = self.base.removeprefix("kafka://")
        producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 8 << 20})
        for payload in payloads:
            producer.produce(topic, payload)
        producer.produce(topic, b"half a message", headers=[("strata-part", b"0a/1/2")])
        producer.produce(topic, b"x", headers=[("strata-part", b"0a/1/2/3/999999999")])
        assert producer.flush(30) == 0


class MofkaBroker(Broker):
    """Events of a topic."""

    positions = exact = False

    def url(self, topic: str, form: str = "json") -> str:
        return f"mofka:{self.base}?topic={topic}&format={form}"

    def inject(self, topic: str, payloads: list[bytes]) -> None:
        from dask_strata.brokers.address import parse_address
        from dask_strata.brokers.mofka_api import open_api

        events: list[tuple[dict[str, Any], bytes]] = []
        for payload in payloads:
            try:
                facts = json.loads(payload)
            except (ValueError, RecursionError):
                continue
            if isinstance(facts, dict):
                events.append((facts, b""))
        open_api(parse_address(self.url(topic))).push(events, 30)


@pytest.fixture(scope="module", params=["file", "redis", "kafka", "mofka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Each kind of broker in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "file":
        yield FileBroker(str(folder))
    elif request.param == "redis":
        redis = RedisServer(folder)
        yield RedisBroker(redis.url)
        redis.close()
    elif request.param == "kafka":
        kafka = KafkaCluster()
        yield KafkaBroker(kafka.url)
        kafka.close()
    else:
        yield _mofka()


def _mofka() -> Broker:
    if "DASK_STRATA_MOFKA" not in os.environ:
        pytest.importorskip(
            "mochi.mofka",
            reason="Mofka is NOT TESTED: mochi.mofka cannot be imported (no package index has it)",
        )
        pytest.skip("Mofka is NOT TESTED: DASK_STRATA_MOFKA names no group file of a server")
    return MofkaBroker(os.environ["DASK_STRATA_MOFKA"])


@pytest.fixture
def topic() -> str:
    """A topic that no other test has."""
    return next(_topics)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A redis-server of one test."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.close()


@pytest.fixture
def kafka_cluster() -> Iterator[KafkaCluster]:
    """A mock cluster of one test."""
    cluster = KafkaCluster()
    yield cluster
    cluster.close()

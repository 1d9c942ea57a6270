"""Streams in Kafka: messages of a topic, those of a process in one partition, in order.

The producer is idempotent and waits for all replicas. A message that is larger than the broker
accepts is sent in parts, which the source joins.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from dask_strata.brokers.address import Address
from dask_strata.brokers.broker import Payload, Sink, Source, batches, missing, parsed
from dask_strata.brokers.kafka_parts import Joiner, parts
from dask_strata.brokers.message import Gap, Message, Unreadable
from dask_strata.errors import BrokerError, UsageError

#: Seconds for the acknowledgement of a batch, and for answers about a topic.
_SECONDS = 30

#: Messages at the end of each partition among which positions are searched.
_TAIL = 4096

#: Messages that are read together.
_READ = 512


def _client() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise missing("confluent-kafka", "kafka") from None
    return confluent_kafka


def _settings(address: Address, **own: Any) -> dict[str, Any]:
    """Return the configuration of librdkafka: options of the address, and those that must be."""
    settings: dict[str, Any] = {"log_level": 2, "client.id": "dask-strata"}
    if address.user is not None:
        # A password is not sent unencrypted, unless the address asks for it.
        settings |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": address.user,
            "sasl.password": address.password or "",
        }
    options = dict(address.options)
    if "sasl.mechanisms" in options:
        settings.pop("sasl.mechanism", None)
    servers = ",".join(f"{host}:{port}" for host, port in address.hosts)
    return {**settings, **options, "bootstrap.servers": servers, **own}


def _error(address: Address, error: object) -> BrokerError:
    return BrokerError(f"{address}: {_text(address, error)}.")


def _refused(address: Address, error: Exception) -> UsageError:
    """Return the error of options that librdkafka does not accept."""
    return UsageError(
        f"{address}: {_text(address, error)}.",
        hint="Options of the address are those of librdkafka's configuration.",
    )


def _text(address: Address, error: object) -> str:
    """Return the sentence of an error of librdkafka, without secrets."""
    inner: Any = error.args[0] if isinstance(error, Exception) and error.args else error
    text = inner.str() if callable(getattr(inner, "str", None)) else str(inner)
    return address.hide(text)[:500].rstrip(".")


class KafkaSink(Sink):
    """Send messages to a topic.

    Parameters
    ----------
    address : Address
        The brokers and the topic.
    run_id : str
        The run.
    """

    def __init__(self, address: Address, run_id: str) -> None:
        self._kafka = _client()
        self._address = address
        self._run = run_id
        self._producer: Any = self._new_producer()

    def _new_producer(self) -> Any:
        settings = _settings(
            self._address,
            **{
                "enable.idempotence": True,
                # Later messages of a partition must not arrive if an earlier one did not.
                "enable.gapless.guarantee": True,
                "acks": "all",
                "partitioner": "consistent_random",
            },
        )
        settings.setdefault("delivery.timeout.ms", _SECONDS * 1000)
        settings.setdefault("linger.ms", 5)
        try:
            return self._kafka.Producer(settings)
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            raise _refused(self._address, error) from None

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages; after an error a part of the batch may be in the topic."""
        for batch in batches(messages):
            failures: list[Any] = []
            outstanding = [0]

            def delivered(
                error: Any,
                _message: Any,
                failures: list[Any] = failures,
                outstanding: list[int] = outstanding,
            ) -> None:
                outstanding[0] -= 1
                if error is not None:
                    failures.append(error)

            try:
                for message in batch:
                    for data, headers in parts(message.data):
                        outstanding[0] += 1
                        self._produce(message, data, headers, delivered)
                self._producer.flush(_SECONDS + 5)
            except (self._kafka.KafkaException, BufferError) as error:
                failures.append(error)
            if failures or outstanding[0]:
                self._renew()
                raise _error(self._address, failures[0] if failures else "no acknowledgement")

    def _produce(self, message: Message, data: bytes, headers: Any, delivered: Any) -> None:
        key = f"{message.run}/{message.process or ''}"
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                self._producer.produce(
                    self._address.topic, data, key=key, headers=headers, on_delivery=delivered
                )
            except BufferError:  # the queue is full until the broker acknowledges
                if time.monotonic() > deadline:
                    raise
                self._producer.poll(0.1)
            else:
                return

    def _renew(self) -> None:
        """Replace the producer: its queue may have messages that are sent again."""
        self.close()
        self._producer = self._new_producer()

    def last(self) -> dict[str, int] | None:
        """Return the positions that the last messages of each partition have.

        None if these are all of other runs, and there are earlier ones.
        """
        source = KafkaSource(self._address, tail=_TAIL)
        found: dict[str, int] = {}
        try:
            for payload in source.payloads(follow=False):
                message = parsed(payload) if isinstance(payload, Payload) else None
                if not isinstance(message, Message) or message.run != self._run:
                    continue
                if message.process is not None and message.last is not None:
                    found[message.process] = max(message.last, found.get(message.process, -1))
        finally:
            source.close()
        return None if source.skipped and not found else found

    def forget(self) -> None:
        """Do nothing: the positions are those in the topic, and rows can be sent again."""

    def close(self) -> None:
        """Drop messages that are not acknowledged, and close the connections."""
        with suppress(Exception):  # the producer is in any state
            self._producer.purge()
            self._producer.flush(1)


class KafkaSource(Source):
    """Read the messages of a topic, of all partitions that it has at the start.

    Parameters
    ----------
    address : Address
        The brokers and the topic.
    tail : int, optional
        Number of messages at the end of each partition, to read only these.

    Attributes
    ----------
    skipped : bool
        Whether there are messages before those.
    """

    def __init__(self, address: Address, *, tail: int | None = None) -> None:
        self._kafka = _client()
        self._address = address
        self._tail = tail
        self.skipped = False
        self._closed = threading.Event()
        #: Whether the brokers have described the topic, or that there is none.
        self._answered = False
        settings = _settings(
            address,
            **{
                "group.id": f"dask-strata-{secrets.token_hex(8)}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
        try:
            self._consumer: Any = self._kafka.Consumer(settings)
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            raise _refused(address, error) from None

    def payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        """Yield the messages, those of a partition in order; a `Gap` where some were deleted."""
        try:
            yield from self._payloads(follow=follow)
        finally:
            with suppress(Exception):  # the consumer is in any state
                self._consumer.close()

    def _payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        ends = self._assign(follow=follow)
        if ends is None:
            return
        expected: dict[int, int] = dict.fromkeys(ends, 0 if self._tail is None else -1)
        joiner = Joiner()
        heard = time.monotonic()
        while not self._closed.is_set() and (follow or ends):
            received = self._consumer.consume(_READ, 0.5)
            if received:
                heard = time.monotonic()
            elif not follow and time.monotonic() - heard > _SECONDS:
                raise _error(self._address, "no answer")
            for message in received:
                if message.error() is not None:
                    self._check(message, ends, follow=follow)
                    continue
                partition, offset = message.partition(), message.offset()
                end = ends.get(partition)
                if not follow and (end is None or offset >= end):
                    ends.pop(partition, None)
                    continue
                place = f"partition {partition}, offset {offset}"
                if 0 <= expected[partition] < offset:
                    yield Gap(f"before {place}", offset - expected[partition])
                expected[partition] = offset + 1
                made = joiner.add(partition, place, message.value() or b"", message.headers())
                if made is not None:
                    yield made
                if not follow and end == offset + 1:
                    ends.pop(partition, None)

    def _check(self, message: Any, ends: dict[int, int], *, follow: bool) -> None:
        """Note the end of a partition; raise other errors, unless they may pass."""
        error = message.error()
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001  its only name
            if not follow:
                ends.pop(message.partition(), None)
        elif not follow or error.fatal():
            raise _error(self._address, error)

    def _assign(self, *, follow: bool) -> dict[int, int] | None:
        """Assign all partitions; return the present end of each, or None if there is no topic."""
        while not self._closed.is_set():
            try:
                return self._try_to_assign(follow=follow)
            except BrokerError:
                if not (follow and self._answered):
                    raise
                self._closed.wait(1)
        return None

    def _try_to_assign(self, *, follow: bool) -> dict[int, int] | None:
        topic = self._address.topic
        try:
            found = self._consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
            self._answered = True
            unknown = self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
            if found.error is not None:
                if not follow and found.error.code() == unknown:
                    return {}
                raise _error(self._address, found.error)
            ends, assigned = {}, []
            for number in found.partitions:
                partition = self._kafka.TopicPartition(topic, number)
                low, high = self._consumer.get_watermark_offsets(partition, timeout=_SECONDS)
                start = low if self._tail is None else max(low, high - self._tail)
                partition.offset = start
                self.skipped |= start > low
                assigned.append(partition)
                if follow or high > start:
                    ends[number] = high
            self._consumer.assign(assigned)
        except self._kafka.KafkaException as error:
            raise _error(self._address, error) from None
        return ends

    def close(self) -> None:
        """End a waiting iterator after at most a second."""
        self._closed.set()

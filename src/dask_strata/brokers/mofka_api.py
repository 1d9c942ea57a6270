"""One interface for the two Python interfaces of Mofka.

They follow Mofka's documentation and a trial of version 0.6; Mofka is on no package index, so that
the tests of this module run only where it is installed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from dask_strata.brokers.address import Address
from dask_strata.errors import BrokerError, StrataError

#: Events in a batch: larger ones with data crashed the server of version 0.6.
_BATCH = 512

_WAIT_MS = 1000


class Api(ABC):
    """A connection to one topic."""

    @abstractmethod
    def push(self, events: list[tuple[dict[str, Any], bytes]], seconds: float) -> None:
        """Push events, each with metadata and data, and wait until they are acknowledged."""

    @abstractmethod
    def events(self, closed: threading.Event) -> Iterator[tuple[Any, list[Any]]]:
        """Yield metadata and data of each event, until the topic is complete or closed."""


class _Api06(Api):
    """Version 0.6: `mochi.mofka.client`."""

    def __init__(self, address: Address) -> None:
        import mochi.mofka.client as mofka
        from pymargo.core import Engine

        self._mofka = mofka
        self._engine = Engine(address.options.get("protocol", "na+sm"), use_progress_thread=True)
        self._driver = mofka.MofkaDriver(address.path, self._engine)
        self._name = address.topic
        self._producer: Any = None

    def push(self, events: list[tuple[dict[str, Any], bytes]], seconds: float) -> None:
        del seconds  # this version has no limit; the caller's thread has one
        if self._producer is None:
            if not self._driver.topic_exists(self._name):
                self._driver.create_topic(self._name)
                self._driver.add_memory_partition(self._name, 0)
            topic = self._driver.open_topic(self._name)
            self._producer = topic.producer(
                "dask-strata", _BATCH, self._mofka.ThreadPool(1), self._mofka.Ordering.Strict
            )
        futures = [self._producer.push(metadata, data) for metadata, data in events]
        self._producer.flush()
        for future in futures:
            future.wait()

    def events(self, closed: threading.Event) -> Iterator[tuple[Any, list[Any]]]:
        topic = self._driver.open_topic(self._name)
        consumer = topic.consumer(name="dask-strata-reader", batch_size=128)
        while not closed.is_set():
            event = consumer.pull().wait()
            if event.event_id is None:
                return
            yield event.metadata, list(event.data or ())


class _Api08(Api):
    """Version 0.8: `diaspora_stream.api`."""

    def __init__(self, address: Address) -> None:
        import diaspora_stream.api as diaspora

        self._diaspora = diaspora
        options = {"group_file": address.path}
        if "protocol" in address.options:
            options["margo"] = address.options["protocol"]
        self._driver = diaspora.Driver(backend="mofka", options=options)
        self._name = address.topic
        self._producer: Any = None

    def push(self, events: list[tuple[dict[str, Any], bytes]], seconds: float) -> None:
        if self._producer is None:
            if not self._driver.topic_exists(self._name):
                self._driver.create_topic(self._name)
            topic = self._driver.open_topic(self._name)
            self._producer = topic.producer(
                "dask-strata", batch_size=_BATCH, ordering=self._diaspora.Ordering.Strict
            )
        limit = int(seconds * 1000)
        futures = [self._producer.push(metadata=m, data=data) for m, data in events]
        self._producer.flush().wait(timeout_ms=limit)
        for future in futures:
            if future.wait(timeout_ms=limit) is None:
                raise BrokerError(f"Mofka has not acknowledged an event for {seconds:g} s.")

    def events(self, closed: threading.Event) -> Iterator[tuple[Any, list[Any]]]:
        topic = self._driver.open_topic(self._name)
        consumer = topic.consumer(name="dask-strata-reader", batch_size=128)
        future = consumer.pull()
        while not closed.is_set():
            event = future.wait(timeout_ms=_WAIT_MS)
            if event is None:
                continue
            if event.event_id is None:
                return
            yield event.metadata, list(event.data or ())
            future = consumer.pull()


def open_api(address: Address) -> Api:
    """Return a connection with the modules that are installed.

    Raises
    ------
    StrataError
        None is installed.
    """
    for module, api in (("diaspora_stream", _Api08), ("mochi", _Api06)):
        if find_spec(module) is not None:
            return api(address)
    raise StrataError(
        f"{address} needs Mofka's Python modules, which are not installed.",
        hint="Mofka is on no package index: install it with Spack, see docs/brokers.md.",
    )

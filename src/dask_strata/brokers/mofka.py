"""Streams in Mofka, of version 0.6 (`mochi.mofka`) or 0.8 (`diaspora_stream`).

Calls of Mofka may block for ever if its server ends. They run on a thread of their own, and the
sink and the source wait for that thread for a limited time.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dask_strata.brokers.address import Address
from dask_strata.brokers.broker import Payload, Sink, Source, batches
from dask_strata.brokers.json_rows import json_text
from dask_strata.brokers.message import Gap, Message, Unreadable
from dask_strata.brokers.mofka_api import Api, open_api
from dask_strata.errors import BrokerError, StrataError

#: Seconds for the acknowledgement of a batch.
_SECONDS = 30

#: Seconds without an event after which a source that does not follow ends: Mofka has no question
#: for the present end of a topic.
_QUIET_SECONDS = 5

#: Events that are read ahead.
_AHEAD = 1024


def event_of(message: Message) -> tuple[dict[str, Any], bytes]:
    """Return metadata and data of the event of a message.

    A message in JSON is the metadata. One in Arrow is the data, and the metadata names its rows.
    """
    if message.data.startswith(b"{"):
        return json.loads(message.data), b""
    metadata = {
        "strata": 1,
        "run": message.run,
        "kind": message.kind,
        "table": message.table,
        "process": message.process,
        "first": message.first,
        "last": message.last,
        "format": "arrow",
    }
    return metadata, message.data


def message_bytes(metadata: object, data: Sequence[Any]) -> bytes:
    """Return the message of an event: the data of one in Arrow, else the metadata as JSON.

    Parameters
    ----------
    metadata : str or dict
        The metadata: text in version 0.6, a dictionary in 0.8.
    data : sequence of buffers
        The data.

    Examples
    --------
    >>> message_bytes({"time": float("nan")}, [])
    b'{"time":"NaN"}'
    """
    facts = metadata
    if isinstance(metadata, (str, bytes)):
        raw = metadata.encode("utf-8", "surrogatepass") if isinstance(metadata, str) else metadata
        if b'"arrow"' not in raw:
            return raw
        try:
            facts = json.loads(raw)
        except (ValueError, RecursionError):
            return raw
    if isinstance(facts, Mapping) and facts.get("format") == "arrow" and "strata" in facts:
        return b"".join(bytes(part) for part in data)
    if isinstance(metadata, (str, bytes)):
        return raw
    try:
        return json_text(facts).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return repr(facts).encode("utf-8", "replace")


class _Thread:
    """One thread that calls Mofka, and is left behind if a call never returns."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._work, name="dask-strata-mofka", daemon=True).start()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            function, answer = item
            try:
                answer.put((function(), None))
            except Exception as error:  # noqa: BLE001  raised in the thread that waits
                answer.put((None, error))

    def call(self, function: Callable[[], Any], seconds: float) -> Any:
        """Return the result of a function.

        Raises
        ------
        BrokerError
            The function fails, or takes too long.
        """
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((function, answer))
        try:
            result, error = answer.get(timeout=seconds)
        except queue.Empty:
            raise BrokerError(f"Mofka has not answered for {seconds:g} s.") from None
        if isinstance(error, StrataError):
            raise error
        if error is not None:
            raise BrokerError(f"Mofka: {str(error)[:500] or type(error).__name__}") from None
        return result

    def stop(self) -> None:
        """End the thread after its present call."""
        self._calls.put(None)


class MofkaSink(Sink):
    """Push events to a topic, which is created if it does not exist.

    Parameters
    ----------
    address : Address
        The group file and the topic.
    run_id : str
        The run.
    """

    def __init__(self, address: Address, run_id: str) -> None:
        self._address = address
        self._run = run_id
        self._thread: _Thread | None = None
        self._api: Api | None = None

    def send(self, messages: Sequence[Message]) -> None:
        """Push events, and wait until each is acknowledged."""
        for batch in batches(messages):
            events = [event_of(message) for message in batch]
            if self._thread is None:
                self._thread = _Thread()
            try:
                self._thread.call(partial(self._push, events), _SECONDS)
            except StrataError:
                self.close()
                raise

    def _push(self, events: list[tuple[dict[str, Any], bytes]]) -> None:
        if self._api is None:
            self._api = open_api(self._address)
        self._api.push(events, _SECONDS)

    def last(self) -> dict[str, int] | None:
        """Return None: Mofka has no access to the last events of a topic."""
        return None

    def forget(self) -> None:
        """Do nothing: there are no positions."""

    def close(self) -> None:
        """Leave the connection; the next batch opens another one."""
        if self._thread is not None:
            self._thread.stop()
        self._thread = self._api = None


class MofkaSource(Source):
    """Pull the events of a topic, also of one that the Mofka-Dask coupler fills.

    Parameters
    ----------
    address : Address
        The group file and the topic.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._closed = threading.Event()

    def payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        """Yield the events; without `follow`, until none arrives for some seconds."""
        events: queue.Queue[tuple[bytes | None, str | None]] = queue.Queue(_AHEAD)
        threading.Thread(
            target=self._pull, args=(events,), name="dask-strata-mofka", daemon=True
        ).start()
        number = 0
        seconds = float(_SECONDS)  # the first event comes after the connection
        while not self._closed.is_set():
            try:
                data, failure = events.get(timeout=1 if follow else seconds)
            except queue.Empty:
                if follow:
                    continue
                if number == 0:
                    raise BrokerError(
                        f"{self._address} has no events, or does not answer."
                    ) from None
                return
            if failure is not None:
                raise BrokerError(f"{self._address}: {failure}")
            if data is None:
                return
            yield Payload(f"event {number}", data)
            number += 1
            seconds = _QUIET_SECONDS

    def _pull(self, events: queue.Queue[tuple[bytes | None, str | None]]) -> None:
        """Put events into a queue; at the end of the topic, or after a failure, the reason."""
        try:
            for metadata, data in open_api(self._address).events(self._closed):
                events.put((message_bytes(metadata, data), None))
            events.put((None, None))
        except Exception as error:  # noqa: BLE001  raised in the thread that reads
            events.put((None, str(error)[:500] or type(error).__name__))

    def close(self) -> None:
        """End a waiting iterator after at most a second."""
        self._closed.set()

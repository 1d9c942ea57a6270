"""Sinks, which send messages to a broker, and sources, which read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dask_strata.brokers.message import Gap, Message, Unreadable, decode
from dask_strata.errors import BrokerError, MessageError, StrataError

#: Messages, and bytes of messages, that are sent together, at most.
MAX_BATCH = 512
BATCH_BYTES = 8 << 20

#: Bytes that are kept of a message that cannot be parsed.
_KEPT_BYTES = 1 << 20


class Payload(NamedTuple):
    """Bytes that a source read, before they are parsed.

    Attributes
    ----------
    place : str
        Their position in the stream, for the user.
    data : bytes
        The bytes.
    """

    place: str
    data: bytes


class Sink(ABC):
    """Send the messages of one run to a broker.

    A sink is used by one thread. Its methods block, so that none of them may run on Dask's event
    loop.
    """

    @abstractmethod
    def send(self, messages: Sequence[Message]) -> None:
        """Send messages, and return when the broker has acknowledged all of them.

        Messages are sent in batches of at most `MAX_BATCH`. After an error some of them may be
        in the stream: ask `last` again, and continue behind its positions.

        Parameters
        ----------
        messages : sequence of Message
            Messages of this sink's run; those of a process in the order of its rows.

        Raises
        ------
        BrokerError
            The broker is away, refuses, or lost rows that it had acknowledged. The sink can be
            used again.
        """

    @abstractmethod
    def last(self) -> dict[str, int] | None:
        """Return the number of the last row in the stream by process of this sink's run.

        All earlier rows that were sent are there, too. A broker may have lost acknowledged rows,
        so that the positions may be behind those of earlier: continue from these, then no row is
        missing.

        Returns
        -------
        dict or None
            None if this sink cannot determine its positions. A process that is not in the
            dictionary has no rows there, or too far back to be found; see docs/brokers.md.

        Raises
        ------
        BrokerError
            The broker is away or refuses.
        """

    @abstractmethod
    def forget(self) -> None:
        """Forget the positions of this sink's run, so that all rows can be sent once more.

        Raises
        ------
        BrokerError
            The broker is away or refuses.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection; raise nothing."""


class Source(ABC):
    """Read the messages of a stream, of all runs in it, from its start."""

    @abstractmethod
    def payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        """Yield what the stream contains, unparsed.

        Parameters
        ----------
        follow : bool
            Whether to wait for more, without end; by default the iterator stops at the end that
            the stream has now.

        Raises
        ------
        BrokerError
            The broker is away or refuses; with `follow`, only at the start: a connection that is
            interrupted later is tried again.
        """

    def messages(self, *, follow: bool = False) -> Iterator[Message | Unreadable | Gap]:
        """Yield the messages of the stream; those that cannot be parsed as `Unreadable`.

        Parameters and errors are those of `payloads`.
        """
        for payload in self.payloads(follow=follow):
            if isinstance(payload, Payload):
                yield parsed(payload)
            else:
                yield payload

    @abstractmethod
    def close(self) -> None:
        """Close the connection, and end a waiting iterator; raise nothing.

        Another thread may call it.
        """


def parsed(payload: Payload) -> Message | Unreadable:
    """Return the message of a payload, or why it is none."""
    try:
        return decode(payload.data)
    except MessageError as error:
        return Unreadable(payload.data[:_KEPT_BYTES], payload.place, error.message)


def batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield messages in batches within the limits of number and bytes, at least one in each."""
    start = size = 0
    for i, message in enumerate(messages):
        size += len(message.data)
        if i > start and (i - start == MAX_BATCH or size > BATCH_BYTES):
            yield messages[start:i]
            start, size = i, len(message.data)
    if start < len(messages):
        yield messages[start:]


def missing(package: str, extra: str) -> StrataError:
    """Return the error of a package that is not installed."""
    return StrataError(
        f"This stream needs the package {package}, which is not installed.",
        hint=f"pip install 'dask-strata[{extra}]'",
    )


__all__ = [
    "MAX_BATCH",
    "BrokerError",
    "Gap",
    "Message",
    "Payload",
    "Sink",
    "Source",
    "Unreadable",
    "batches",
    "missing",
    "parsed",
]

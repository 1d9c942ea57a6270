"""Large messages in Kafka: sent in parts, and joined again.

A broker accepts messages of 1 MB unless it is configured otherwise; a row with a long text may be
larger. All parts of a message have its key, so that they are in one partition, in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from dask_strata.brokers.broker import Payload
from dask_strata.brokers.message import MESSAGE_BYTES, Unreadable

#: Bytes of a part; a message of this size is sent as it is.
PART_BYTES = 900_000

#: Name of the header of a part: ``<digest>/<number from 0>/<parts>``.
HEADER = "strata-part"

_KEPT_BYTES = 1 << 20

#: Messages of which some parts are there, at most; the oldest is given up.
_MOST_PENDING = 8

Headers = list[tuple[str, bytes]]


def parts(data: bytes) -> Iterator[tuple[bytes, Headers]]:
    """Yield the parts of a message, each with its headers."""
    if len(data) <= PART_BYTES:
        yield data, []
        return
    digest = hashlib.sha256(data).hexdigest()[:16]
    n = -(-len(data) // PART_BYTES)
    for i in range(n):
        headers = [(HEADER, f"{digest}/{i}/{n}".encode())]
        yield data[i * PART_BYTES : (i + 1) * PART_BYTES], headers


class Joiner:
    """Join the parts of messages; those of several senders may alternate, and be repeated."""

    def __init__(self) -> None:
        #: Parts that are there, by partition and digest of the message.
        self._pending: dict[tuple[int, bytes], list[bytes]] = {}

    def add(
        self, partition: int, place: str, data: bytes, headers: Any
    ) -> Payload | Unreadable | None:
        """Return a whole message, if this part completes one, or why the part cannot be used.

        Parameters
        ----------
        partition : int
            Partition of the part.
        place : str
            Its position, for the user.
        data : bytes
            The part, or a whole message.
        headers : list of tuple or None
            Its headers.
        """
        value = next((v for name, v in headers or () if name == HEADER), None)
        if value is None:
            return Payload(place, data)
        digest, number, n = _position(value)
        too_large = len(data) > PART_BYTES or (n - 1) * PART_BYTES > MESSAGE_BYTES
        if not 0 <= number < n or too_large:
            return Unreadable(data[:_KEPT_BYTES], place, "the part of a message is not valid")
        name = (partition, digest)
        if number == 0:
            self._pending.pop(name, None)
            while len(self._pending) >= _MOST_PENDING:
                self._pending.pop(next(iter(self._pending)))
            self._pending[name] = []
        collected = self._pending.get(name)
        if collected is None or len(collected) != number:
            return Unreadable(
                data[:_KEPT_BYTES], place, "an earlier part of the message is missing"
            )
        collected.append(data)
        if number < n - 1:
            return None
        del self._pending[name]
        return Payload(place, b"".join(collected))


def _position(value: Any) -> tuple[bytes, int, int]:
    """Return digest, number and count of a header that anyone may have made."""
    pieces = value.split(b"/") if isinstance(value, bytes) else []
    if len(pieces) != 3 or not all(p.isdigit() and len(p) < 6 for p in pieces[1:]):  # noqa: PLR2004  as written above
        return b"", -1, 0
    return pieces[0], int(pieces[1]), int(pieces[2])

"""Streams in Redis: entries of one stream, with a hash of positions for each run.

A script adds a batch and its positions in one step, and skips rows that are there: a batch whose
answer was lost can be sent again, in any order, without a second copy. Each entry has a number of
its own, so that a reader notices entries that were trimmed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dask_strata.brokers.address import Address
from dask_strata.brokers.broker import Payload, Sink, Source, batches, missing
from dask_strata.brokers.message import Gap, Message, Unreadable
from dask_strata.errors import BrokerError

_T = TypeVar("_T")

#: Errors of a server that requires a password, or another one.
_AUTH = re.compile("authenticat|username-password", re.IGNORECASE)
_AUTH_HINT = "Write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST, percent-encoded."

#: Seconds for a connection, and for an answer.
_SECONDS = 10

#: Entries that are read together, and milliseconds that a reader waits for new ones.
_READ = 128
_WAIT_MS = 1000

#: Seconds between two tries of a reader that follows.
_RETRY_SECONDS = 0.5

#: Fields of an entry: its number, and its message.
_NUMBER, _MESSAGE = b"n", b"message"

#: Reply of the script if acknowledged rows are no longer there.
_LOST = "STRATA-LOST"

#: Adds messages and positions. Each message has three arguments: its process and its last row (or
#: empty texts), and itself. The first argument is the number of processes whose positions follow,
#: as this sink knows them. A message of which a part is there is added as a whole.
_SCRIPT = f"""
local stream, positions, counter = KEYS[1], KEYS[2], KEYS[3]
local known = tonumber(ARGV[1])
for i = 2, 2 * known, 2 do
  local stored = tonumber(redis.call('HGET', positions, ARGV[i]) or '-1')
  if stored < tonumber(ARGV[i + 1]) then
    return redis.error_reply('{_LOST} ' .. ARGV[i])
  end
end
local added = 0
for i = 2 + 2 * known, #ARGV, 3 do
  local process, last = ARGV[i], ARGV[i + 1]
  local stored = process ~= '' and redis.call('HGET', positions, process)
  if not stored or tonumber(last) > tonumber(stored) then
    local n = redis.call('INCR', counter)
    redis.call('XADD', stream, '*', 'n', n, 'message', ARGV[i + 2])
    if process ~= '' then redis.call('HSET', positions, process, last) end
    added = added + 1
  end
end
return added
"""


class _Connection:
    """A connection that is opened when it is needed, and whose errors are `BrokerError`."""

    def __init__(self, address: Address) -> None:
        try:
            import redis
        except ImportError:
            raise missing("redis", "redis") from None
        self.address = address
        self._errors = (redis.RedisError, OSError)
        host, port = address.hosts[0]
        options: dict[str, Any] = {"ssl": True} if address.scheme == "rediss" else {}
        if "ca" in address.options:
            options["ssl_ca_certs"] = address.options["ca"]
        # A command that is sent twice could add entries twice: the sink decides about retries.
        self._client = redis.Redis(
            host.strip("[]"),
            port,
            address.database,
            username=address.user,
            password=address.password,
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            retry=None,
            protocol=2,  # servers before version 6 have no other one
            **options,
        )

    def call(self, function: Callable[[Any], _T]) -> _T:
        """Return the answer to a function of the client.

        Raises
        ------
        BrokerError
            There is none, or it is an error.
        """
        try:
            return function(self._client)
        except self._errors as error:
            self.disconnect()
            text = self.address.hide(str(error) or type(error).__name__)[:500].rstrip(".")
            raise BrokerError(
                f"{self.address}: {text}.", hint=_AUTH_HINT if _AUTH.search(text) else None
            ) from None

    def disconnect(self) -> None:
        """Close the connection; the next call opens another one."""
        with suppress(Exception):  # the socket is in any state
            self._client.connection_pool.disconnect()


def _keys(stream: str, run_id: str) -> tuple[str, str, str]:
    """Return the keys of a stream, of a run's positions, and of the counter of entries.

    A cluster keeps keys with the same text in braces on one server, as the script needs it.
    """
    tag = stream if "{" in stream else f"{{{stream}}}"
    return stream, f"{tag}:positions:{run_id}", f"{tag}:entries"


class RedisSink(Sink):
    """Add messages to a stream.

    Parameters
    ----------
    address : Address
        The server and the stream.
    run_id : str
        The run.
    """

    def __init__(self, address: Address, run_id: str) -> None:
        self._connection = _Connection(address)
        self._keys = _keys(address.topic, run_id)
        #: Positions that the server has acknowledged to this sink.
        self._acknowledged: dict[str, int] = {}

    def send(self, messages: Sequence[Message]) -> None:
        """Add messages in the order given; rows that the stream has already are skipped."""
        for batch in batches(messages):
            after = {m.process: m.last for m in batch if m.process and m.last is not None}
            known = {p: self._acknowledged[p] for p in after if p in self._acknowledged}
            arguments: list[Any] = [len(known)]
            for process, seq in known.items():
                arguments += [process, seq]
            for message in batch:
                last = "" if message.last is None else message.last
                arguments += [message.process or "", last, message.data]
            try:
                self._run_script(arguments)
            except BrokerError as error:
                self._acknowledged.clear()
                if _LOST not in error.message:
                    raise
                raise BrokerError(
                    f"{self._connection.address} has lost rows that it had acknowledged: it was "
                    "restarted without its latest data.",
                    hint="The rows are sent again. appendonly yes in Redis' configuration keeps "
                    "them.",
                ) from None
            for process, seq in after.items():
                self._acknowledged[process] = max(seq, self._acknowledged.get(process, -1))

    def _run_script(self, arguments: list[Any]) -> None:
        self._connection.call(
            lambda client: client.eval(_SCRIPT, len(self._keys), *self._keys, *arguments)
        )

    def last(self) -> dict[str, int] | None:
        """Return the positions, which the server has changed together with the stream.

        If somebody has deleted the stream, nothing of it is there: the positions are deleted, too.
        """
        if not self._connection.call(lambda client: client.exists(self._keys[0])):
            self.forget()
            return {}
        found = self._connection.call(lambda client: client.hgetall(self._keys[1]))
        try:
            return {process.decode(): int(seq) for process, seq in found.items()}
        except ValueError:
            raise BrokerError(
                f"{self._connection.address}: {self._keys[1]} has values other than positions."
            ) from None

    def forget(self) -> None:
        """Delete the positions."""
        self._connection.call(lambda client: client.delete(self._keys[1]))
        self._acknowledged.clear()

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


class RedisSource(Source):
    """Read the entries of a stream.

    Parameters
    ----------
    address : Address
        The server and the stream.
    """

    def __init__(self, address: Address) -> None:
        self._connection = _Connection(address)
        self._stream = address.topic
        self._closed = threading.Event()

    def payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        """Yield the messages of the entries; a `Gap` where entries were trimmed."""
        position = b"0-0"
        number = 0
        answered = False
        end = None if follow else self._last_entry()
        if not follow and end is None:
            return
        while not self._closed.is_set():
            try:
                entries = self._read(position, end)
            except BrokerError:
                if not (follow and answered):
                    raise
                self._closed.wait(_RETRY_SECONDS)
                continue
            answered = True
            if not entries and not follow:
                return
            for entry, fields in entries:
                position = entry
                made, number = _of_entry(entry, fields, number)
                yield from made

    def _last_entry(self) -> bytes | None:
        """Return the id of the last entry; None of an empty stream."""
        found = self._connection.call(lambda client: client.xrevrange(self._stream, count=1))
        return found[0][0] if found else None

    def _read(self, position: bytes, end: bytes | None) -> Any:
        """Return some entries after a position, up to an end or, without one, after a wait."""
        if end is not None:
            return self._connection.call(
                lambda client: client.xrange(
                    self._stream, min=_next_id(position), max=end, count=_READ
                )
            )
        found = self._connection.call(
            lambda client: client.xread({self._stream: position}, count=_READ, block=_WAIT_MS)
        )
        pairs = found.values() if isinstance(found, dict) else [entries for _, entries in found]
        return [entry for entries in pairs for entry in _flat(entries)]

    def close(self) -> None:
        """End a waiting iterator after at most a second, and close the connection."""
        self._closed.set()


def _next_id(entry: bytes) -> bytes:
    """Return the smallest id after that of an entry; Redis 5 has no open intervals.

    >>> _next_id(b"1795000000123-4")
    b'1795000000123-5'
    """
    time, _, number = entry.partition(b"-")
    if int(number) == (1 << 64) - 1:
        return b"%d-0" % (int(time) + 1)
    return b"%s-%d" % (time, int(number) + 1)


def _flat(entries: Any) -> Any:
    """Return entries as pairs: a later protocol of Redis wraps them in one more list."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _of_entry(
    entry: bytes, fields: dict[bytes, bytes], number: int
) -> tuple[list[Payload | Unreadable | Gap], int]:
    """Return what a reader gets of an entry, and the entry's number."""
    place = entry.decode("ascii", "replace")
    data = fields.get(_MESSAGE)
    if data is None:
        begin = b"".join(fields)[:1000]
        return [Unreadable(begin, place, "the entry has no message of dask-strata")], number
    made: list[Payload | Unreadable | Gap] = []
    text = fields.get(_NUMBER, b"")
    own = int(text) if text.isdigit() and len(text) < 19 else None  # noqa: PLR2004  of 64 bits
    if own is not None and own > number + 1:
        made.append(Gap(f"before {place}", own - number - 1))
    return [*made, Payload(place, data)], number if own is None else own

"""Perfetto's own format: packets of Protocol Buffers, with interned names.

The messages are few and small, so they are written here: the package `protobuf` needs an object for
each. Numbers of fields are those of `perfetto/trace/trace_packet.proto` and the files it imports.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO

from dask_strata.export.perfetto.trace import Args, TraceFile

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4

#: Units of counters in `CounterDescriptor`.
_UNIT_BYTES = 3

#: Clocks of `ClockSnapshot`: that of the trace, and the time of day.
_BOOTTIME, _REALTIME = 6, 1

#: All packets are of one sequence, to which the interned names belong.
_SEQUENCE = b"\x50\x01"
_FIRST, _OTHER = b"\x68\x01", b"\x68\x02"

#: Fields of interned names in `InternedData`.
_CATEGORIES, _NAMES, _ARGUMENTS, _VALUES = 1, 2, 3, 29

#: Texts of arguments that repeat, and are interned; others, such as keys, are written each time.
INTERNED_VALUES = frozenset({"outcome", "key type", "worker", "prefix", "from", "to", "cause"})

#: Most texts that are interned for one field, as they stay in memory.
_MOST_INTERNED = 100_000

_LARGEST = (1 << 63) - 1


def varint(number: int) -> bytes:
    """Return a number below 2^64 as a varint.

    Examples
    --------
    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number >= 128:  # noqa: PLR2004  7 bits each
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer(field: int, number: int) -> bytes:
    """Return a field with a number; a negative one as its two's complement."""
    return varint(field << 3) + varint(number & (1 << 64) - 1)


def message(field: int, content: bytes) -> bytes:
    """Return a field with a message, a text or bytes."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field with a text."""
    return message(field, value.encode("utf-8", "replace"))


#: The parts of a time's varint: 14 bits each, with more to follow, and the last 7 bits.
_TWO_BYTES = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]
_ONE_BYTE = [bytes((n,)) for n in range(128)]
_LENGTHS = [varint(n) for n in range(1 << 10)]


def _time(t: int) -> bytes:
    """Return a time as a varint of 9 bytes: all from 1972 to 2262 have as many."""
    two = _TWO_BYTES
    return (
        two[t & 16383] + two[t >> 14 & 16383] + two[t >> 28 & 16383] + two[t >> 42 & 16383]
    ) + _ONE_BYTE[t >> 56]


def _length(n: int) -> bytes:
    return _LENGTHS[n] if n < 1 << 10 else varint(n)


class ProtobufTrace(TraceFile):
    """A trace in Perfetto's own format."""

    def __init__(self, file: IO[bytes], origin: int) -> None:
        super().__init__(file, origin)
        self._interned: dict[int, dict[str, int]] = {
            field: {} for field in (_CATEGORIES, _NAMES, _ARGUMENTS, _VALUES)
        }
        self._heads: dict[tuple[int, str, str], bytes] = {}
        self._ends: dict[int, tuple[bytes, bytes]] = {}
        self._counters: dict[int, bytes] = {}
        self._arguments: dict[tuple[str, str], bytes] = {}
        clocks = b"".join(
            message(1, integer(1, clock) + integer(2, origin)) for clock in (_BOOTTIME, _REALTIME)
        )
        self._packet(message(6, clocks), _FIRST)

    def _packet(self, content: bytes, flags: bytes = _OTHER) -> None:
        self._add(message(1, content + _SEQUENCE + flags))

    def _intern(self, field: int, value: str) -> int:
        known = self._interned[field]
        number = known.get(value)
        if number is None:
            number = known[value] = len(known) + 1
            entry = integer(1, number) + text(2, value)
            self._packet(message(12, message(field, entry)))
        return number

    def process(self, pid: int, name: str, label: str | None) -> None:
        """See `TraceFile`."""
        labels = b"" if label is None else text(8, label)
        process = message(3, integer(1, pid) + text(6, name) + labels)
        self._packet(message(60, integer(1, pid) + process))

    def thread(self, track: int, pid: int, name: str) -> None:
        """See `TraceFile`."""
        thread = message(4, integer(1, pid) + integer(2, track) + text(5, name))
        self._packet(message(60, integer(1, track) + integer(5, pid) + thread))

    def counter(self, track: int, pid: int, name: str, unit: str) -> None:
        """See `TraceFile`."""
        described = integer(3, _UNIT_BYTES) if unit == "bytes" else text(6, unit)
        content = integer(1, track) + integer(5, pid) + text(2, name) + message(8, described)
        self._packet(message(60, content))
        self._counters[track] = integer(9, _COUNTER) + integer(11, track)

    def begin(  # noqa: PLR0913, PLR0917  the parts of a slice
        self,
        track: int,
        name: str,
        category: str,
        start: int,
        stop: int | None,  # noqa: ARG002  `end` writes it
        args: Args = (),
        *,
        sent: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> None:
        """See `TraceFile`."""
        event = self._head(track, name, category)
        if args:
            event += self._encoded(args)
        for flows in (sent, received):
            if flows:
                # A flow leads from the first slice with its number to the next one.
                event += b"".join(b"\xf9\x02" + struct.pack("<Q", number) for number in flows)
        self._event(start, event)

    def end(self, track: int, stop: int) -> None:
        """See `TraceFile`."""
        found = self._ends.get(track)
        if found is None:
            event = integer(9, _END) + integer(11, track)
            rest = _SEQUENCE + _OTHER + message(11, event)
            found = self._ends[track] = (b"\x0a" + varint(10 + len(rest)) + b"\x40", rest)
        self._add(found[0] + _time(stop) + found[1])

    def instant(self, track: int, name: str, category: str, time: int, args: Args = ()) -> None:
        """See `TraceFile`."""
        head = integer(9, _INSTANT) + integer(11, track) + text(23, name)
        categories = integer(3, self._intern(_CATEGORIES, category))
        self._event(time, head + categories + self._encoded(args))

    def value(self, track: int, time: int, value: float) -> None:
        """See `TraceFile`."""
        if isinstance(value, int) and -_LARGEST <= value <= _LARGEST:
            number = integer(30, value)
        else:
            number = b"\xe1\x02" + struct.pack("<d", float(value))
        self._event(time, self._counters[track] + number)

    def finish(self, facts: dict[str, str], notes: Sequence[str]) -> None:  # noqa: ARG002
        """See `TraceFile`; facts and notes are events of the trace."""
        self._flush()

    def _event(self, time: int, event: bytes) -> None:
        rest = _SEQUENCE + _OTHER + b"\x5a" + _length(len(event)) + event
        self._add(b"\x0a" + _length(10 + len(rest)) + b"\x40" + _time(time) + rest)

    def _head(self, track: int, name: str, category: str) -> bytes:
        """Return the fields of a slice that repeat."""
        head = self._heads.get((track, name, category))
        if head is None:
            head = integer(9, _BEGIN) + integer(11, track)
            if len(self._interned[_NAMES]) < _MOST_INTERNED:
                head += integer(10, self._intern(_NAMES, name))
            else:
                head += text(23, name)
            head += integer(3, self._intern(_CATEGORIES, category))
            if len(self._heads) < _MOST_INTERNED:
                self._heads[track, name, category] = head
        return head

    def _encoded(self, args: Args) -> bytes:
        """Return annotations of an event."""
        parts = []
        for name, value in args:
            if value is None:
                continue
            if isinstance(value, str):
                content = self._text_argument(name, value)
            elif isinstance(value, int) and -_LARGEST <= value <= _LARGEST:
                content = self._named(name) + integer(4, value)
            else:
                content = self._named(name) + b"\x29" + struct.pack("<d", float(value))
            parts.append(b"\x22" + _length(len(content)) + content)
        return b"".join(parts)

    def _text_argument(self, name: str, value: str) -> bytes:
        if name not in INTERNED_VALUES:
            return self._named(name) + text(6, value)
        found = self._arguments.get((name, value))
        if found is None:
            if len(self._interned[_VALUES]) >= _MOST_INTERNED:
                return self._named(name) + text(6, value)
            found = self._named(name) + integer(17, self._intern(_VALUES, value))
            self._arguments[name, value] = found
        return found

    def _named(self, name: str) -> bytes:
        found = self._arguments.get((name, ""))
        if found is None:
            found = self._arguments[name, ""] = integer(1, self._intern(_ARGUMENTS, name))
        return found

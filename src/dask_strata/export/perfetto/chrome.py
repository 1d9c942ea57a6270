"""Chrome's older format: JSON, with times in µs since the first one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring as quoted
from typing import IO

from dask_strata.export.perfetto.trace import Args, TraceFile


class ChromeTrace(TraceFile):
    """A trace as JSON.

    Its times are relative, because a number in JSON has no room for ns since the epoch.
    """

    def __init__(self, file: IO[bytes], origin: int) -> None:
        super().__init__(file, origin)
        self._pids: dict[int, int] = {}
        self._counters: dict[int, tuple[str, str]] = {}
        self._separator = '{"displayTimeUnit":"ms","traceEvents":[\n'

    def _line(self, content: str) -> None:
        self._add((self._separator + content).encode("utf-8", "replace"))
        self._separator = ",\n"

    def _time(self, time: int) -> str:
        return _microseconds(time - self.origin)

    def _metadata(self, pid: int, track: int, name: str, key: str, value: str) -> None:
        self._line(
            f'{{"ph":"M","pid":{pid},"tid":{track},"name":"{name}","args":{{"{key}":{quoted(value)}}}}}'
        )

    def process(self, pid: int, name: str, label: str | None) -> None:
        """See `TraceFile`."""
        self._metadata(pid, 0, "process_name", "name", name)
        if label is not None:
            self._metadata(pid, 0, "process_labels", "labels", label)

    def thread(self, track: int, pid: int, name: str) -> None:
        """See `TraceFile`."""
        self._pids[track] = pid
        self._metadata(pid, track, "thread_name", "name", name)

    def counter(self, track: int, pid: int, name: str, unit: str) -> None:
        """See `TraceFile`; the unit is the name of the value."""
        self._pids[track] = pid
        self._counters[track] = (quoted(name), quoted(unit or "value"))

    def begin(  # noqa: PLR0913, PLR0917  the parts of a slice
        self,
        track: int,
        name: str,
        category: str,
        start: int,
        stop: int | None,
        args: Args = (),
        *,
        sent: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> None:
        """See `TraceFile`."""
        place = f'"pid":{self._pids[track]},"tid":{track},"ts":{self._time(start)}'
        length = '"ph":"B"' if stop is None else f'"ph":"X","dur":{_microseconds(stop - start)}'
        shown = f',"args":{_object(args)}' if args else ""
        self._line(f'{{{length},{place},"cat":{quoted(category)},"name":{quoted(name)}{shown}}}')
        for kind, flows in (("s", sent), ("f", received)):
            for number in flows:
                # Without `bp`, an end of a flow belongs to the next slice.
                end = ',"bp":"e"' if kind == "f" else ""
                self._line(
                    f'{{"ph":"{kind}",{place},"cat":"flow","name":"flow","id":"0x{number:x}"{end}}}'
                )

    def end(self, track: int, stop: int) -> None:
        """See `TraceFile`; its beginning contains the duration."""

    def instant(self, track: int, name: str, category: str, time: int, args: Args = ()) -> None:
        """See `TraceFile`."""
        place = f'"pid":{self._pids[track]},"tid":{track},"ts":{self._time(time)}'
        shown = f',"args":{_object(args)}' if args else ""
        self._line(
            f'{{"ph":"i","s":"t",{place},"cat":{quoted(category)},"name":{quoted(name)}{shown}}}'
        )

    def value(self, track: int, time: int, value: float) -> None:
        """See `TraceFile`."""
        name, unit = self._counters[track]
        self._line(
            f'{{"ph":"C","pid":{self._pids[track]},"ts":{self._time(time)},'
            f'"name":{name},"args":{{{unit}:{value!r}}}}}'
        )

    def finish(self, facts: dict[str, str], notes: Sequence[str]) -> None:
        """See `TraceFile`."""
        if not self._separator.startswith(","):
            self._add(self._separator.encode("ascii"))
        other = {**facts, "origin_ns": str(self.origin), "notes": list(notes)}
        self._add(
            f'\n],"otherData":{json.dumps(other, ensure_ascii=False)}}}\n'.encode(
                "utf-8", "replace"
            )
        )
        self._flush()


def _microseconds(nanoseconds: int) -> str:
    """Return a duration in µs with three decimals."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:03d}"


def _object(args: Args) -> str:
    """Return arguments as an object of JSON, which has no numbers that are not finite."""
    return json.dumps(
        {
            name: str(value) if isinstance(value, float) and value - value != 0 else value
            for name, value in args
            if value is not None
        },
        ensure_ascii=False,
    )

"""The events that both formats of traces have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import IO

#: Names and values that the viewer shows with an event; values that are None are left out.
Args = Sequence[tuple[str, "str | int | float | None"]]

#: Bytes of events that are collected before they are written.
BUFFER_BYTES = 1 << 20


class TraceFile(ABC):
    """A trace that is written from front to back.

    Slices of one track are written in order of time, and each within the one around it. Times are
    in ns since the epoch.

    Parameters
    ----------
    file : binary file
        Where to write.
    origin : int
        The first time in the trace.
    """

    def __init__(self, file: IO[bytes], origin: int) -> None:
        self._file = file
        self._parts: list[bytes] = []
        self._size = 0
        self.origin = origin

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._parts))
        self._parts.clear()
        self._size = 0

    @abstractmethod
    def process(self, pid: int, name: str, label: str | None) -> None:
        """Declare a process: a group of tracks.

        Parameters
        ----------
        pid : int
            Its number in the trace.
        name : str
            Its name.
        label : str or None
            Shown beside its name.
        """

    @abstractmethod
    def thread(self, track: int, pid: int, name: str) -> None:
        """Declare a track of slices in a process."""

    @abstractmethod
    def counter(self, track: int, pid: int, name: str, unit: str) -> None:
        """Declare a track of values in a process."""

    @abstractmethod
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
        """Begin a slice; `end` follows unless it has no stop.

        Parameters
        ----------
        track : int
            Its track.
        name, category : str
            Its name, and its kind.
        start, stop : int
            Its times; a stop that is None is not on record.
        args : sequence of pairs
            Shown with the slice.
        sent, received : sequence of int
            Numbers of the flows that begin or end at this slice. A flow's beginning is written
            before its end.
        """

    @abstractmethod
    def end(self, track: int, stop: int) -> None:
        """End the innermost slice of a track."""

    @abstractmethod
    def instant(self, track: int, name: str, category: str, time: int, args: Args = ()) -> None:
        """Add an event without duration."""

    @abstractmethod
    def value(self, track: int, time: int, value: float) -> None:
        """Add a value of a counter; `value` is an int or a finite float."""

    def slice(  # noqa: PLR0913, PLR0917  the parts of a slice
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
        """Add a slice without others in it; see `begin`."""
        self.begin(track, name, category, start, stop, args, sent=sent, received=received)
        if stop is not None:
            self.end(track, stop)

    @abstractmethod
    def finish(self, facts: dict[str, str], notes: Sequence[str]) -> None:
        """Write what remains.

        Parameters
        ----------
        facts : dict of str to str
            Facts about the run.
        notes : sequence of str
            Sentences on rows that are missing in the trace, or aggregated.
        """

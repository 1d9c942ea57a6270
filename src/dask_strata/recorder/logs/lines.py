"""Splitting of bytes into lines of bounded length."""

from __future__ import annotations

from dask_strata.recorder.logs.budget import ENTRY_LIMIT


class LineSplitter:
    r"""Splits what a process writes to one descriptor into lines.

    Of a line that is written anew after carriage returns, as progress bars are, the last version
    counts.

    Examples
    --------
    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\n 10 %\r 20"), splitter.feed(b" %\ntw"), splitter.rest()
    ([(b'one', 0)], [(b' 20 %', 0)], (b'tw', 0))
    """

    def __init__(self) -> None:
        self._start = b""
        self._beyond = 0

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return the lines that end in these bytes, each with the number of bytes cut off.

        Parameters
        ----------
        data : bytes
            The next bytes.
        """
        first, *others = data.split(b"\n")
        self._extend(first)
        if not others:
            return []
        lines = [self._take()]
        last = others.pop()
        lines += [
            _version(line) if len(line) > ENTRY_LIMIT or b"\r" in line else (line, 0)
            for line in others
        ]
        self._extend(last)
        return lines

    def rest(self) -> tuple[bytes, int] | None:
        """Return the last line, if it does not end with a newline."""
        return self._take() if self._start else None

    def _extend(self, data: bytes) -> None:
        if b"\r" in data[:-1] and len(self._start) + len(data) > ENTRY_LIMIT:
            self._start, self._beyond = b"", 0
            data = data[data.rindex(b"\r", 0, len(data) - 1) :]
        room = ENTRY_LIMIT - len(self._start)
        self._start += data[:room]
        self._beyond += max(len(data) - room, 0)

    def _take(self) -> tuple[bytes, int]:
        line, beyond = _version(self._start)
        beyond += self._beyond
        self._start, self._beyond = b"", 0
        return line, beyond


def _version(line: bytes) -> tuple[bytes, int]:
    """Return the last version of a line that is not empty, clipped."""
    last = line
    if b"\r" in line:
        versions = [part for part in line.split(b"\r") if part.strip()]
        last = versions[-1] if versions else b""
    return last[:ENTRY_LIMIT], max(len(last) - ENTRY_LIMIT, 0)

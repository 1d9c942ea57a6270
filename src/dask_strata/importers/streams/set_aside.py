"""Messages that could not be parsed, in a file until it is known which run they are kept with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata.brokers.message import Unreadable

#: Messages of which the place and the reason are listed.
_LISTED = 1000

#: Bytes that are kept of all messages; the others are counted.
_KEPT_BYTES = 256 << 20

#: Name of their file in the folder `aside` of a run.
MESSAGES = "messages"


class SetAside:
    """The messages of a stream that could not be parsed.

    Parameters
    ----------
    path : Path
        A new file for their bytes.

    Attributes
    ----------
    n : int
        Their number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n = 0
        self._bytes = 0
        self._listed: list[tuple[str, str]] = []

    def add(self, message: Unreadable) -> None:
        """Add a message. Raises OSError."""
        self.n += 1
        if len(self._listed) < _LISTED:
            self._listed.append((message.place, message.reason))
        if self._bytes + len(message.data) <= _KEPT_BYTES:
            with self.path.open("ab") as file:
                self._bytes += file.write(message.data + b"\n")

    @property
    def first_reason(self) -> str | None:
        """Why the first message could not be parsed; None if there is none."""
        return self._listed[0][1] if self._listed else None

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of ``set_aside``, at most 1,000; a line is the position among them."""
        return [
            {"file": MESSAGES, "line": i, "lines": 1, "reason": f"{place}: {reason}"}
            for i, (place, reason) in enumerate(self._listed, 1)
        ]

    def discard(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

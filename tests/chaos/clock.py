"""A host's clock that can be set: libfaketime, for the processes that are started with it.

The monotonic clock goes on as it is, as on a real host whose time is set.
"""

from __future__ import annotations

from pathlib import Path

_PLACES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def library() -> Path | None:
    """Return libfaketime (Debian's package `faketime`), or None."""
    found = (p for place in _PLACES for p in Path("/").glob(place.lstrip("/")))
    return next(found, None)


class Clock:
    """The clock of one host.

    Parameters
    ----------
    file : Path
        Where its offset is written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, seconds: float) -> None:
        """Set it, so many seconds before or after what it should be."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}\n", encoding="ascii")
        new.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the processes that see this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

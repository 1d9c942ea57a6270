"""A wall clock that a trial can set, by libfaketime, for the processes started with it.

The monotonic clock is not affected, as on a real host whose time is set.
"""

from __future__ import annotations

from pathlib import Path

_PATHS = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def library() -> Path | None:
    """Return libfaketime (Debian's package `faketime`), or None."""
    found = (p for path in _PATHS for p in Path("/").glob(path.lstrip("/")))
    return next(found, None)


class Clock:
    """The clock of one host.

    Parameters
    ----------
    file : Path
        File that contains its offset.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, seconds: float) -> None:
        """Set the offset to the true time, in seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}\n", encoding="ascii")
        new.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the processes that use this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

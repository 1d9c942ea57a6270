"""Commands of batch systems, and the numbers and times that they print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from datetime import datetime

#: Factors of the units of bytes; batch systems mean powers of 1024.
_UNITS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

_BYTES = re.compile(r"([0-9.]+)\s*([bkmgtp]?)[a-z]*", re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d+)?")

_SECOND = 1_000_000_000


class Deadline:
    """A time limit that several commands share.

    Parameters
    ----------
    seconds : float
        Seconds from now.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self._until - time.monotonic(), 0.0)


def ask(deadline: Deadline, *command: str, **variables: str) -> str:
    """Return what a command prints; nothing if it is not installed, fails or takes too long.

    A batch system that does not know one of several jobs prints the others and returns an error,
    so the exit code does not matter.

    Parameters
    ----------
    deadline : Deadline
        When the command is ended.
    *command : str
        Program and arguments.
    **variables : str
        Environment variables, in addition to those of this process.
    """
    program = shutil.which(command[0])
    if program is None or not deadline.left:
        return ""
    environ = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, checked arguments, no shell
            [program, *command[1:]],
            env={**environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline.left,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def to_bytes(text: str | None) -> int | None:
    """Return a size in bytes; None if it is 0 or not a size.

    >>> to_bytes("500M"), to_bytes("12kb"), to_bytes("1.5 Gbytes"), to_bytes("N/A")
    (524288000, 12288, 1610612736, None)
    """
    found = _BYTES.fullmatch((text or "").strip())
    if found is None:
        return None
    return int(float(found[1]) * 1024 ** _UNITS[found[2].lower()]) or None


def to_seconds(text: str | None) -> float | None:
    """Return a duration in seconds; None if it is not one.

    >>> to_seconds("1-02:03:04"), to_seconds("0:04"), to_seconds("UNLIMITED")
    (93784.0, 4.0, None)
    """
    found = _DURATION.fullmatch((text or "").strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def to_ns(text: str | None, *forms: str) -> int | None:
    """Return a time in nanoseconds since the epoch; None if it is not one.

    Parameters
    ----------
    text : str
        Seconds since the epoch, or a local time.
    *forms : str
        Forms of a local time, as of `datetime.strptime`.

    >>> to_ns("1795460075"), to_ns("Unknown", "%Y")
    (1795460075000000000, None)
    """
    text = (text or "").strip()
    if text.isdecimal():
        return int(text) * _SECOND
    for form in forms:
        try:
            return int(datetime.strptime(text, form).timestamp()) * _SECOND  # noqa: DTZ007  local
        except (ValueError, OverflowError, OSError):
            continue
    return None

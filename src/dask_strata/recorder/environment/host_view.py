"""The collectors' result, a fact, and their view of the host: variables, /proc, /sys, commands."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

COMMAND_SECONDS = 5.0
_MAX_ANCESTORS = 16


class Fact(NamedTuple):
    """A fact about the job or the machine, with its source.

    Attributes
    ----------
    name : str
        Dotted name.
    value : str
        Its value, as text.
    source : str
        The variable, file, command or function that it was read from.
    """

    name: str
    value: str
    source: str


def failure(collector: str, error: BaseException) -> Fact:
    """Return the fact that a collector failed.

    Parameters
    ----------
    collector : str
        Name of the collector.
    error : BaseException
        The error.

    >>> failure("host", OSError("no host")).value
    'OSError: no host'
    """
    return Fact(f"error.{collector}", f"{type(error).__name__}: {error}", "dask-strata")


class HostView(NamedTuple):
    """The sources that a collector can read.

    Attributes
    ----------
    environ : mapping
        Environment variables.
    proc, sys_root : Path
        Folders with the role of ``/proc`` and ``/sys``.
    """

    environ: Mapping[str, str]
    proc: Path
    sys_root: Path

    def read(self, path: Path) -> str | None:
        """Return the text of a small file; None if it cannot be read."""
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def line(self, path: Path) -> str | None:
        """Return the text of a one-line file, stripped; None if it is empty or cannot be read."""
        text = self.read(path)
        return text.strip() or None if text is not None else None

    def first(self, *names: str) -> tuple[str, str] | None:
        """Return name and value of the first variable that is set and not empty.

        >>> view = HostView({"A": "", "B": "2"}, Path("/proc"), Path("/sys"))
        >>> view.first("A", "B")
        ('B', '2')
        """
        for name in names:
            value = self.environ.get(name)
            if value:
                return name, value
        return None

    def arguments(self, process: str) -> list[str]:
        """Return the command line of a process, given its id or ``self``."""
        text = self.read(self.proc / process / "cmdline")
        return text.rstrip("\0").split("\0") if text else []

    def family(self) -> Iterator[tuple[str, list[str]]]:
        """Yield id and command line of this process, its parent, and further ancestors."""
        process = "self"
        for _ in range(_MAX_ANCESTORS):
            yield process, self.arguments(process)
            status = self.read(self.proc / process / "status") or ""
            parent = next(
                (line.split()[1] for line in status.splitlines() if line.startswith("PPid:")), "0"
            )
            if parent == "0":
                return
            process = parent

    def run(self, *command: str) -> tuple[str, str] | None:
        """Run a command; return its output and its command line; None if it is not installed.

        Parameters
        ----------
        *command : str
            Program and arguments.

        Raises
        ------
        OSError, subprocess.SubprocessError
            It failed, or did not end within `COMMAND_SECONDS`.
        """
        program = shutil.which(command[0], path=self.environ.get("PATH", os.defpath))
        if program is None:
            return None
        environ = {name: value for name, value in self.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(  # noqa: S603 - a fixed list of arguments, no shell
            [program, *command[1:]],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            message = done.stderr.decode("utf-8", "replace").strip()
            raise OSError(f"{shlex.join(command)} exited with code {done.returncode}: {message}")
        return done.stdout.decode("utf-8", "replace"), shlex.join(command)


Collector = Callable[[HostView], Iterator[Fact]]

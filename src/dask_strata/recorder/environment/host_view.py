"""What the collectors of the job layer share: a fact, and what they may look at."""

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
    """One thing that is known, and where it was read."""

    name: str
    value: str
    source: str


def failure(collector: str, error: BaseException) -> Fact:
    """Return the fact that a collector could not find out what it should have."""
    return Fact(f"error.{collector}", f"{type(error).__name__}: {error}", "dask-strata")


class HostView(NamedTuple):
    """What a collector may look at: the environment, ``/proc`` and ``/sys``."""

    environ: Mapping[str, str]
    proc: Path
    sys_root: Path

    def read(self, path: Path) -> str | None:
        """Return the text of a small file, or None if there is none that can be read."""
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def line(self, path: Path) -> str | None:
        """Return the text of a file of one line, without white space around it."""
        text = self.read(path)
        return text.strip() or None if text is not None else None

    def first(self, *names: str) -> tuple[str, str] | None:
        """Return the first of these variables that is set and not empty, and its value."""
        for name in names:
            value = self.environ.get(name)
            if value:
                return name, value
        return None

    def arguments(self, process: str) -> list[str]:
        """Return the command line of a process, given its number or ``self``."""
        text = self.read(self.proc / process / "cmdline")
        return text.rstrip("\0").split("\0") if text else []

    def family(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the numbers and command lines of this process, its parent, and so on up."""
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
        """Return what a command prints, and the command; None if it is not installed.

        Raises
        ------
        OSError, subprocess.SubprocessError
            It failed, or did not end within five seconds.
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
            complaint = done.stderr.decode("utf-8", "replace").strip()
            raise OSError(f"{shlex.join(command)} ended with code {done.returncode}: {complaint}")
        return done.stdout.decode("utf-8", "replace"), shlex.join(command)


Collector = Callable[[HostView], Iterator[Fact]]

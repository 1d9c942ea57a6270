"""Callgrind files as Yappi writes them: functions with their own time, and whom they called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

_NAMED = re.compile(r"(c?f[ln])=\((\d{1,18})\)(?: (.*))?\Z", re.DOTALL)
_COST = re.compile(r"(\d{1,18}) (-?\d{1,18})\Z")
_CALLS = re.compile(r"calls=(\d{1,18}) \d{1,18}\Z")

#: Yappi's ticks in a second.
_TICKS = 1e6

#: Functions that a profile may have, and characters that are kept of a name: more is no profile
#: of a program, but would take the memory of whoever reads it.
MOST_FUNCTIONS, LONGEST_NAME = 200_000, 512

#: Characters that a line may have.
_LONGEST_LINE = 64 * 2**10

#: What is looked at of the lines at the beginning.
_HEADER = ("creator", "events")


class CallgrindError(ValueError):
    """The file is not as Yappi writes it; the text says where."""


@dataclass
class Function:
    """A function of the profile; times in seconds, calls None if nobody is seen to call it."""

    file: str
    name: str
    line: int | None
    own: float = 0.0
    total: float | None = 0.0
    calls: int | None = None
    measured: bool = field(default=False, repr=False)


def read_callgrind(path: Path) -> list[Function]:
    """Return the functions of a file that Yappi wrote.

    Raises
    ------
    CallgrindError
        It is empty, cut, or was written by another program.
    OSError
        It cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        return _Reader(path.name).read(_lines(file))


def _lines(file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise CallgrindError(f"line {number} has more than {_LONGEST_LINE:,} characters")
        yield line.rstrip("\n")


class _Reader:
    """Reads one file, line by line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._files: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._header: dict[str, str] = {}
        self._present: str | None = None
        self._called: tuple[str, int] | None = None
        self._pending: str | None = None

    def read(self, lines: Iterator[str]) -> list[Function]:
        number = 0
        for number, line in enumerate(lines, 1):
            try:
                self._line(line)
            except CallgrindError as error:
                raise CallgrindError(f"line {number}: {error}") from None
        if not number:
            raise CallgrindError("it is empty")
        self._check_header()
        if self._pending is not None:
            raise CallgrindError(f"it is cut off after line {number}: {self._pending} is missing")
        return [f for f in self._functions.values() if f.measured]

    def _line(self, line: str) -> None:
        if not line:
            return
        named = _NAMED.match(line)
        if named is not None:
            self._check_header()
            self._named(*named.groups())
        elif not self._functions and ":" in line and "=" not in line.partition(":")[0]:
            key, _, value = line.partition(":")
            if key in _HEADER:
                self._header[key] = value.strip()
        elif line.startswith("calls="):
            self._calls(line)
        else:
            self._cost(line)

    def _check_header(self) -> None:
        creator = self._header.get("creator")
        if creator != "yappi" or self._header.get("events") != "Ticks":
            raise CallgrindError(
                "it was not written by Yappi" + (f", but by {creator[:60]}" if creator else "")
            )

    def _named(self, kind: str, number: str, text: str | None) -> None:
        if kind == "fl" and text is not None:
            self._files[number] = text
            if len(self._files) > MOST_FUNCTIONS:
                raise CallgrindError(f"it has more than {MOST_FUNCTIONS:,} files")
        elif kind == "fn" and text is not None:
            self._define(number, text)
        elif number not in self._functions:
            raise CallgrindError(f"function {number} is not defined")
        elif kind == "fn":
            self._present, self._called = number, None
            self._pending = "its cost"
        elif kind == "cfn":
            if self._present is None:
                raise CallgrindError("a call from no function")
            self._called = (number, 0)
            self._pending = "the number of calls"

    def _define(self, number: str, text: str) -> None:
        """Take a definition: name, file and line; the file is known from before."""
        file = self._files.get(number)
        if file is None:
            raise CallgrindError(f"function {number} has no file")
        name, found, line = text.rpartition(f" {file}:")
        if not found or not re.fullmatch(r"\d{1,18}", line):
            raise CallgrindError(f"function {number} has no line")
        self._functions[number] = Function(file[:LONGEST_NAME], name[:LONGEST_NAME], int(line))
        if len(self._functions) > MOST_FUNCTIONS:
            raise CallgrindError(f"it has more than {MOST_FUNCTIONS:,} functions")

    def _calls(self, line: str) -> None:
        found = _CALLS.match(line)
        if found is None or self._called is None:
            raise CallgrindError("calls of no function")
        number, _ = self._called
        self._called = number, int(found[1])
        function = self._functions[number]
        function.calls = (function.calls or 0) + int(found[1])
        self._pending = "the cost of the calls"

    def _cost(self, line: str) -> None:
        found = _COST.match(line)
        if found is None or self._present is None:
            raise CallgrindError(f"not understood: {line[:60]!r}")
        function, seconds = self._functions[self._present], int(found[2]) / _TICKS
        self._pending = None
        if self._called is None:
            function.own += seconds
            function.measured = True
            if function.total is not None:
                function.total += seconds
        elif self._called[0] == self._present:
            function.total = None  # it calls itself: what is its own is in the call, too
        elif function.total is not None:
            function.total += seconds

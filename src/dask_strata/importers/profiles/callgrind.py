"""Read callgrind files as Yappi writes them: functions, their own time, and their calls."""

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

#: Limits that no profile of a program reaches: functions, and characters kept of a name. They
#: bound the memory for reading a file.
MOST_FUNCTIONS, LONGEST_NAME = 200_000, 512

#: Longest accepted line, in characters.
_LONGEST_LINE = 64 * 2**10

#: Lines of the header that are read.
_HEADER = ("creator", "events")


class CallgrindError(ValueError):
    """The file is not in Yappi's format; the text contains the reason and the line."""


@dataclass
class Function:
    """A function of the profile.

    Attributes
    ----------
    file, name : str
        Its file and its name.
    line : int or None
        Its first line.
    own : float
        Seconds in the function itself.
    total : float or None
        Seconds in the function and the functions it calls; None if it calls itself.
    calls : int or None
        Number of calls; None if the profile has no call of it.
    measured : bool
        Whether the profile has its own time.
    """

    file: str
    name: str
    line: int | None
    own: float = 0.0
    total: float | None = 0.0
    calls: int | None = None
    measured: bool = field(default=False, repr=False)


def read_callgrind(path: Path) -> list[Function]:
    """Return the functions of a callgrind file of Yappi's.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    CallgrindError
        The file is empty, cut, or was written by another program.
    OSError
        The file cannot be read.
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
        self._current: str | None = None
        self._callee: tuple[str, int] | None = None
        #: The kind of line that must follow, for an error about a cut file.
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
            self._current, self._callee = number, None
            self._pending = "its cost"
        elif kind == "cfn":
            if self._current is None:
                raise CallgrindError("a call from no function")
            self._callee = (number, 0)
            self._pending = "the number of calls"

    def _define(self, number: str, text: str) -> None:
        """Store the name and line of a function, whose file was defined before."""
        file = self._files.get(number)
        if file is None:
            raise CallgrindError(f"function {number} has no file")
        name, separator, line = text.rpartition(f" {file}:")
        if not separator or not re.fullmatch(r"\d{1,18}", line):
            raise CallgrindError(f"function {number} has no line")
        self._functions[number] = Function(file[:LONGEST_NAME], name[:LONGEST_NAME], int(line))
        if len(self._functions) > MOST_FUNCTIONS:
            raise CallgrindError(f"it has more than {MOST_FUNCTIONS:,} functions")

    def _calls(self, line: str) -> None:
        found = _CALLS.match(line)
        if found is None or self._callee is None:
            raise CallgrindError("calls of no function")
        number, _ = self._callee
        self._callee = number, int(found[1])
        function = self._functions[number]
        function.calls = (function.calls or 0) + int(found[1])
        self._pending = "the cost of the calls"

    def _cost(self, line: str) -> None:
        found = _COST.match(line)
        if found is None or self._current is None:
            raise CallgrindError(f"unexpected {line[:60]!r}")
        function, seconds = self._functions[self._current], int(found[2]) / _TICKS
        self._pending = None
        if self._callee is None:
            function.own += seconds
            function.measured = True
            if function.total is not None:
                function.total += seconds
        elif self._callee[0] == self._current:
            function.total = None  # it calls itself: the call's time contains its own time again
        elif function.total is not None:
            function.total += seconds

"""Which functions are coroutines: profilers do not say it, the line of the definition does."""

from __future__ import annotations

import re
import tokenize

_DEFINITION = re.compile(r"\s*(async\s+)?def\s+(\w+)")
_ASYNCHRONOUS = re.compile(r"\b(?:async|await)\b")

#: Lines that decorators may take before the definition.
_DECORATORS = 60


def source_lines(file: str) -> list[str] | None:
    """Return the lines of a source file, or None if it cannot be read."""
    try:
        with tokenize.open(file) as source:
            return source.readlines()
    except (OSError, SyntaxError, ValueError):  # gone, not Python, or no path at all
        return None


def is_coroutine(lines: list[str] | None, line: int, name: str) -> bool | None:
    r"""Tell whether the function that begins at a line is an `async def`; None if unknown.

    >>> is_coroutine(["@decorated\\n", "async def f():\\n"], 1, "C.f")
    True
    >>> is_coroutine(["def g():\\n"], 1, "f") is None
    True
    """
    if lines is None or not 1 <= line <= len(lines):
        return None
    last = name.rpartition(".")[2]
    if last.startswith("<"):  # a lambda, a comprehension or a module
        return None if _ASYNCHRONOUS.search(lines[line - 1]) else False
    for text in lines[line - 1 : line - 1 + _DECORATORS]:
        found = _DEFINITION.match(text)
        if found is not None:
            return found[1] is not None if found[2] == last else None
    return None

"""Coroutines by the source line of their definition, as profilers do not record the kind."""

from __future__ import annotations

import re
import tokenize

_DEFINITION = re.compile(r"\s*(async\s+)?def\s+(\w+)")
_ASYNCHRONOUS = re.compile(r"\b(?:async|await)\b")

#: Bound on the lines of decorators before the definition.
_DECORATORS = 60


def source_lines(file: str) -> list[str] | None:
    """Return the lines of a source file; None if it cannot be read.

    Parameters
    ----------
    file : str
        Path of the file as in a code object.
    """
    try:
        with tokenize.open(file) as source:
            return source.readlines()
    except (OSError, SyntaxError, ValueError):  # deleted, not Python, or not a path
        return None


def is_coroutine(lines: list[str] | None, line: int, name: str) -> bool | None:
    r"""Return whether the function that begins at a line is an `async def`; None if unknown.

    Parameters
    ----------
    lines : list of str or None
        Lines of the source file, see `source_lines`.
    line : int
        First line of the function, from 1, decorators included.
    name : str
        Name of the function, qualified or not.

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

"""Places in the user's script, as parts of a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.samples import Waited


def line_of(row: Mapping[str, Any]) -> str:
    """Return where a row's line is, in brackets; nothing if that is unknown.

    Parameters
    ----------
    row : mapping
        With file and line.

    Examples
    --------
    >>> line_of({"file": "/home/me/pipeline.py", "line": 41}), line_of({"file": None, "line": 3})
    (' (pipeline.py:41)', '')
    """
    file, line = row.get("file"), row.get("line")
    return f" ({PurePath(file).name}:{line})" if file and line else ""


def waited_at(row: Waited, script: Mapping[str, str]) -> str:
    """Return where samples were taken, as the end of a sentence; nothing if that is unknown.

    Parameters
    ----------
    row : Waited
        Samples of one place.
    script : mapping of str to str
        Facts of the script: cloudpickle leaves out the file of functions that it sends.
    """
    function = f" in {row.function}" if row.function else ""
    if not row.line:
        return function
    file = _file_of(row.file, row.function, row.line, script)
    return f" at {file}:{row.line}{function}" if file else f" at line {row.line}{function}"


def raised_at(traceback: str | None, script: Mapping[str, str]) -> str:
    """Return where a traceback ends, in the user's code if it has any; nothing if unknown.

    Parameters
    ----------
    traceback : str or None
        Text of the traceback.
    script : mapping of str to str
        Facts of the script.

    Examples
    --------
    >>> raised_at('File "/home/me/pipeline.py", line 41, in root', {})
    '  pipeline.py:41'
    """
    place = ""
    for file, line, function in _FRAME.findall((traceback or "")[-_TRACEBACK:]):
        if "site-packages" in file or "/lib/python" in file:
            continue
        name = _file_of(file, function, int(line), script)
        place = f"  {name}:{line}" if name else f"  line {line} in {function}"
    return place


#: A frame of a traceback, and characters of a traceback that are searched.
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\s]{1,200})')
_TRACEBACK = 100_000


def plain_exception(text: str) -> str:
    """Return the representation of an exception as Python prints it, if it has one text.

    Parameters
    ----------
    text : str
        The representation.

    Examples
    --------
    >>> plain_exception("ValueError('negative sqrt')"), plain_exception("OSError(2, 'No file')")
    ('ValueError: negative sqrt', "OSError(2, 'No file')")
    """
    match = _ONE_TEXT.fullmatch(text)
    if match is None or match[2] in match[3]:
        return text
    return f"{match[1]}: {match[3]}"


_ONE_TEXT = re.compile(r"""([\w.]{1,200})\((['"])(.*)\2,?\)""", re.DOTALL)

#: Longest key in a sentence.
_KEY = 40


def shortened(key: str) -> str:
    """Return a key with an ellipsis for its end, if it is long.

    >>> shortened("flaky-fca8b7a1e2f3")
    'flaky-fca8b7a1e2f3'
    """
    return key if len(key) <= _KEY else f"{key[: _KEY - 1]}…"


def _file_of(
    file: str | None, function: str | None, line: int, script: Mapping[str, str]
) -> str | None:
    """Return the name of a file; cloudpickle leaves out that of functions of the script."""
    if file and not file.startswith("<"):
        return PurePath(file).name
    if _contains(script.get("text", ""), function, line):
        return PurePath(script.get("path", "")).name
    return None


def _contains(text: str, function: str | None, line: int) -> bool:
    """Return whether a line of a script is in a function of this name."""
    lines = text.splitlines()[:line]
    if not function or len(lines) < line:
        return False
    head = next((each for each in reversed(lines) if each.lstrip().startswith(_DEFINES)), "")
    return head.lstrip().removeprefix("async ").startswith(f"def {function}(")


_DEFINES = ("def ", "async def ")


def module_of(call: str) -> str:
    """Return the top module of a function of a library.

    Parameters
    ----------
    call : str
        The function, as in the column ``calls`` of ``task_samples``.

    Examples
    --------
    >>> [module_of(f"{file}:f") for file in ("<frozen genericpath>", "pathlib/_local.py")]
    ['genericpath', 'pathlib']
    >>> module_of("<frozen importlib._bootstrap>:_find_and_load")
    'importlib'
    """
    file = call.rpartition(":")[0].removeprefix("<frozen ").rstrip(">").removesuffix(".py")
    return file.partition("/")[0].partition(".")[0]

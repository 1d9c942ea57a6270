"""Stacks as files for other tools: collapsed stacks, and speedscope's file format."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dask_strata.analysis.stacks import Function, Stack
from dask_strata.errors import StrataError
from dask_strata.report.words import escape_in_json, visible

#: Address of the schema, which speedscope recognises its files by.
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"

#: The separator of frames, which no frame may contain.
_SEPARATOR = re.compile(r"[;\r\n]")


def collapsed(found: Sequence[Stack]) -> str:
    r"""Return collapsed stacks: for each its frames, the outermost first, and its samples.

    Parameters
    ----------
    found : sequence of Stack
        The stacks. Each begins with the prefix of its tasks.

    Examples
    --------
    >>> collapsed([Stack("sum", (Function("a", "m.py", 1), Function("b", "m.py", 5)), 12, 0.12)])
    'sum;a (m.py:1);b (m.py:5) 12\n'
    """
    lines = []
    for stack in found:
        names = [stack.prefix or "event loop", *(f.text for f in stack.frames)]
        path = ";".join(_SEPARATOR.sub(":", visible(name)) for name in names)
        lines.append(f"{path} {stack.n_samples}\n")
    return "".join(lines)


def speedscope(found: Sequence[Stack], name: str, version: str) -> str:
    """Return stacks in speedscope's file format, with a profile for each prefix.

    Parameters
    ----------
    found : sequence of Stack
        The stacks.
    name : str
        Name of the run.
    version : str
        Version of dask-strata.
    """
    numbers: dict[Function, int] = {}
    profiles: dict[str | None, dict[str, Any]] = {}
    for stack in found:
        profile = profiles.setdefault(
            stack.prefix,
            {
                "type": "sampled",
                "name": stack.prefix or "event loop",
                "unit": "seconds",
                "startValue": 0,
                "endValue": 0.0,
                "samples": [],
                "weights": [],
            },
        )
        profile["samples"].append([numbers.setdefault(f, len(numbers)) for f in stack.frames])
        profile["weights"].append(stack.seconds)
        profile["endValue"] += stack.seconds
    return json.dumps({
        "$schema": _SCHEMA,
        "name": name,
        "exporter": f"dask-strata {version}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(function) for function in numbers]},
        "profiles": list(profiles.values()),
    })  # fmt: skip


def _frame(function: Function) -> dict[str, Any]:
    known = {"file": function.module, "line": function.line}
    return {"name": function.name, **{k: v for k, v in known.items() if v is not None}}


#: Formats of stacks, with the functions of stacks, run and version that write them.
STACK_FORMATS: dict[str, Callable[[Sequence[Stack], str, str], str]] = {
    "collapsed": lambda found, *_: collapsed(found),
    "speedscope": speedscope,
}


def write_stacks(text: str, output: Path | None) -> None:
    """Write an exported profile to a file or to standard output.

    Parameters
    ----------
    text : str
        Content of the file.
    output : Path or None
        The file; None for standard output.

    Raises
    ------
    StrataError
        The file cannot be written.
    """
    if output is None:
        if sys.stdout.isatty():
            text = escape_in_json(text) if text.startswith("{") else text
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        output.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StrataError(f"{output} cannot be written: {error.strerror or error}.") from None

"""Events that were damaged on their way, as the coupler's consumer printed them.

A line has one or several ``data failure:``, each followed by the text of a Python dict of
which the end, or more, was overwritten. An event that lacks nothing but last digits of its
time is put together again.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.importers.mofka.cells import value
from dask_strata.importers.mofka.columns import FIELDS, TRANSFER_ENDS
from dask_strata.importers.mofka.literals import sizes

_MARK = b"data failure:"

#: A line may be so long; the rest of it is not looked at.
_MAX_LINE = 4 << 20

#: One item: its name, and a text, a number, a tuple or dict without others in it, or nothing.
_ITEM = re.compile(
    r"""\s*['"](?P<name>\w+)['"]:\s*(?:"""
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<plain>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\([^()]*\)|\{[^{}]*\})"""
    r"""|None|nan|null)\s*(?P<end>[,}])?"""
)

#: Seconds with all digits before the point.
_WHOLE_SECONDS = re.compile(r"[0-9]{10,}\.[0-9]+")


@dataclass(frozen=True)
class Damaged:
    """A damaged event.

    ``role`` is the file that it belongs to, with its values by column, if it can be put
    together; else `kind` says what it seems to have been.
    """

    line: int
    kind: str
    role: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def read_consumer(path: Path) -> Iterator[Damaged]:
    """Yield the damaged events of a consumer's output. Raises OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
            for part in line.split(_MARK)[1:]:
                yield _damaged(number, part.decode("utf-8", "replace").strip())


def _damaged(line: int, text: str) -> Damaged:
    if not text.startswith("{"):
        return Damaged(line, "fragment")
    cells = _cells(text)
    role = _role(cells)
    if role is None:
        return Damaged(line, "log_event" if text.startswith("{'topic'") else "unknown")
    kind = role
    if not _WHOLE_SECONDS.match(cells.get("time", "")):
        return Damaged(line, kind)
    try:
        row = {f.name: value(f, cells.get(f.name, "")) for f in FIELDS[role]}
        "".join(cells.values()).encode()
        if role == "worker_transfer" and not (sizes(row["keys"]) and row["type"] in TRANSFER_ENDS):
            return Damaged(line, kind)
    except ValueError:
        return Damaged(line, kind)
    return Damaged(line, kind, role, row)


def _cells(text: str) -> dict[str, str]:
    """Return the items of a dict's text, up to where it can no longer be read, as cells."""
    found: dict[str, str] = {}
    position = 1
    while item := _ITEM.match(text, position):
        position = item.end()
        if item["text"] is not None:
            found[item["name"]] = _unquoted(item["text"])
        else:
            found[item["name"]] = item["plain"] or ""
        if item["end"] != ",":
            break
    return found


def _unquoted(text: str) -> str:
    if "\\" not in text:
        return text[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text[1:-1]


def _role(cells: dict[str, str]) -> str | None:
    """Tell which file an event belongs to by the columns that only that file has."""
    for role, names in _TELLING.items():
        if names <= cells.keys():
            return role
    return None


_TELLING = {
    "worker_transfer": {"start", "stop", "keys", "type"},
    "scheduler_transition": {"key", "start", "finish", "stimulus_id"},
    "worker_transition": {"key", "start", "finish"},
}

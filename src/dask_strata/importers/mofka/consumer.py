"""Read the damaged events that the coupler's consumer printed to ``consumer.o``.

A line contains one or more ``data failure:``, each followed by the text of a Python dict whose end,
or more, was overwritten. An event is restored if it lacks only the last digits of its time.
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

#: Bytes of a line that are read together; a longer line is read as several lines.
_MAX_LINE = 4 << 20

#: One item: its name, and a string, a number, a tuple or dict without nested ones, or no value.
_ITEM = re.compile(
    r"""\s*['"](?P<name>\w+)['"]:\s*(?:"""
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<plain>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\([^()]*\)|\{[^{}]*\})"""
    r"""|None|nan|null)\s*(?P<end>[,}])?"""
)

#: Unix seconds with all digits before the decimal point.
_WHOLE_SECONDS = re.compile(r"[0-9]{10,}\.[0-9]+")


@dataclass(frozen=True)
class DamagedEvent:
    """A damaged event.

    Attributes
    ----------
    line : int
        Its line in ``consumer.o``.
    kind : str
        Its probable kind: a role of `columns.FIELDS`, fragment, log_event or unknown.
    role : str or None
        If it can be restored, the role of the file that it belongs to.
    values : dict
        If it can be restored, its values by column.
    """

    line: int
    kind: str
    role: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def read_consumer(path: Path) -> Iterator[DamagedEvent]:
    """Yield the damaged events of a consumer's output. Raises OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
            for part in line.split(_MARK)[1:]:
                yield _damaged(number, part.decode("utf-8", "replace").strip())


def _damaged(line: int, text: str) -> DamagedEvent:
    if not text.startswith("{"):
        return DamagedEvent(line, "fragment")
    cells = _cells(text)
    role = _role(cells)
    if role is None:
        return DamagedEvent(line, "log_event" if text.startswith("{'topic'") else "unknown")
    kind = role
    if not _WHOLE_SECONDS.match(cells.get("time", "")):
        return DamagedEvent(line, kind)
    try:
        row = {f.name: value(f, cells.get(f.name, "")) for f in FIELDS[role]}
        "".join(cells.values()).encode()
        if role == "worker_transfer" and not (sizes(row["keys"]) and row["type"] in TRANSFER_ENDS):
            return DamagedEvent(line, kind)
    except ValueError:
        return DamagedEvent(line, kind)
    return DamagedEvent(line, kind, role, row)


def _cells(text: str) -> dict[str, str]:
    """Return the readable items at the beginning of a dict's text, as cells by name."""
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
            warnings.simplefilter("ignore")  # about invalid escapes
            return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text[1:-1]


def _role(cells: dict[str, str]) -> str | None:
    """Return the role of the file that an event belongs to, by its characteristic columns."""
    for role, names in _CHARACTERISTIC.items():
        if names <= cells.keys():
            return role
    return None


_CHARACTERISTIC = {
    "worker_transfer": {"start", "stop", "keys", "type"},
    "scheduler_transition": {"key", "start", "finish", "stimulus_id"},
    "worker_transition": {"key", "start", "finish"},
}

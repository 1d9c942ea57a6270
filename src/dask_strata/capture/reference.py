"""The tables of all classes in ``docs/capture.md``, printed if this module is run."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from dask_strata import capture

#: A name or names in the section "Attributes" of a docstring, their type, and their meaning.
_DOCUMENTED = re.compile(r"^(\w+(?:, \w+)*) : ([^\n]+)\n((?:    [^\n]*\n?)+)", re.MULTILINE)


def reference() -> str:
    """Return a section with a table for each public class, as Markdown."""
    names = [name for name in capture.__all__ if inspect.isclass(getattr(capture, name))]
    return "\n".join(_section(getattr(capture, name)) for name in names).replace("``", "`")


def _section(cls: type) -> str:
    first = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if issubclass(cls, Enum):
        rows = [f"| `{member.name}` | `{member.value}` |" for member in cls]
        rows += [f"| `{name}{kind}` | {text} |" for name, kind, text in _members(cls)]
        head = "| member | value |\n|---|---|"
    else:
        rows = [f"| `{name}` | {kind} | {text} |" for name, kind, text in _attributes(cls)]
        head = "| attribute or method | type | meaning |\n|---|---|---|"
    return f"### {cls.__name__}\n\n{first}\n\n{head}\n" + "\n".join(rows) + "\n"


def _attributes(cls: type) -> list[tuple[str, str, str]]:
    documented = _documented(cls)
    own = [field.name for field in fields(cls)] if is_dataclass(cls) else [*documented]
    rows = [(name, *documented[name]) for name in own]
    for name, kind, text in _members(cls):
        rows.append((name + kind, _returns(cls, name), text))
    return [(name, kind.replace("|", "or"), text) for name, kind, text in rows]


def _documented(cls: type) -> dict[str, tuple[str, str]]:
    """Return the type and meaning of the attributes in a class's docstring, by name."""
    parts = inspect.cleandoc(cls.__doc__ or "").partition("Attributes\n----------\n")[2]
    found = {}
    for names, kind, text in _DOCUMENTED.findall(parts + "\n"):
        meaning = " ".join(text.split())
        found.update(dict.fromkeys(names.split(", "), (kind, meaning)))
    return found


def _members(cls: type) -> list[tuple[str, str, str]]:
    """Return the public properties and methods of a class: name, parentheses, first sentence."""
    found = []
    for name, member in vars(cls).items():
        if name.startswith("_") or isinstance(member, Enum):
            continue
        value = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(value, (property, cached_property)) or inspect.isfunction(value):
            text = inspect.cleandoc(value.__doc__ or "").partition("\n")[0]
            found.append((name, "()" if inspect.isfunction(value) else "", text))
    return found


def _returns(cls: type, name: str) -> str:
    member: Any = inspect.getattr_static(cls, name)
    function = getattr(member, "fget", None) or getattr(member, "func", None) or member
    return str(function.__annotations__.get("return", ""))


if __name__ == "__main__":
    sys.stdout.write(reference())

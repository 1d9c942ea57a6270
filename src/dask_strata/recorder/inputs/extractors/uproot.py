"""Inputs of `uproot.dask`: NumPy or Awkward arrays from files opened before or by the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.call import Call, peek
from dask_strata.recorder.inputs.extractors.paths import given_path

#: Items that describe a part of a file: file, tree, first, last, whether these count entries.
_PARTS = 5


def opened(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the range of entries that a task reads from a tree that is already open."""
    part = call.args[0] if call.args else None
    trees = peek(call.function, "ttrees")
    if not isinstance(part, (tuple, list)) or not isinstance(trees, (list, tuple)):
        return
    number, first, last = part
    tree = trees[number]
    uri = given_path(peek(peek(tree, "_file"), "_file_path"))
    if uri is not None:
        yield {
            "uri": uri,
            "tree": _path_in_file(tree),
            "first": first,
            "last": last,
            "unit": "entries",
            "columns": _branches(call.function),
        }


def _path_in_file(tree: Any) -> str | None:
    path = peek(tree, "object_path")
    return path.strip("/").partition(";")[0] if isinstance(path, str) else None


def to_open(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the part of a file that the task opens: a range of entries, or one of its steps."""
    part = call.args[0] if call.args else None
    if not isinstance(part, (tuple, list)) or len(part) < _PARTS:
        return
    file, tree, first, last, by_entries = part[:_PARTS]
    uri = given_path(file)
    if uri is None:
        return
    found = {"uri": uri, "tree": tree, "columns": _branches(call.function)}
    if by_entries:
        yield {**found, "first": first, "last": last, "unit": "entries"}
    else:  # the number of entries is unknown until the file is open
        steps = {"step": first, "of": last}
        yield {**found, "first": first, "last": first + 1, "unit": "steps", "selection": steps}


def _branches(reader: Any) -> Any:
    keys = peek(reader, "common_keys")
    if keys is not None:
        return keys
    key = peek(reader, "key")
    return [key] if isinstance(key, str) else None


EXTRACTORS = {
    "uproot._dask._UprootRead": opened,
    "uproot._dask._UprootReadNumpy": opened,
    "uproot._dask._UprootOpenAndRead": to_open,
    "uproot._dask._UprootOpenAndReadNumpy": to_open,
}

"""Inputs of `uproot.dask`, with files opened before or by the task, into NumPy or Awkward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.call import Call, peek
from dask_strata.recorder.inputs.extractors.places import given_path


def opened(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the range of entries that is read from a tree that is open already."""
    place = call.args[0] if call.args else None
    trees = peek(call.function, "ttrees")
    if not isinstance(place, (tuple, list)) or not isinstance(trees, (list, tuple)):
        return
    number, first, last = place
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
    """Yield what is read from a file that the task opens: entries, or one of several steps."""
    place = call.args[0] if call.args else None
    if not isinstance(place, (tuple, list)) or len(place) < 5:  # noqa: PLR2004  as uproot makes it
        return
    file, tree, first, last, by_entries = place[:5]
    uri = given_path(file)
    if uri is None:
        return
    found = {"uri": uri, "tree": tree, "columns": _branches(call.function)}
    if by_entries:
        yield {**found, "first": first, "last": last, "unit": "entries"}
    else:  # how many entries there are is known only when the file is open
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

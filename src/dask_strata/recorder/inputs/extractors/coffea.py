"""Inputs of coffea: the chunks of its Runner are arguments of tasks, as objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from dask_strata.recorder.inputs.extractors.call import peek
from dask_strata.recorder.inputs.extractors.paths import given_path

#: Parts of a factory's partition key: uuid, tree, entries.
_KEY_PARTS = 3


def work_item(item: Any) -> Iterator[dict[str, Any]]:
    """Yield the range of entries of a `WorkItem`."""
    for found in file_meta(item):
        yield {
            **found,
            "first": peek(item, "entrystart"),
            "last": peek(item, "entrystop"),
            "unit": "entries",
            "columns": peek(item, "preload") or None,
        }


def file_meta(meta: Any) -> Iterator[dict[str, Any]]:
    """Yield the file of a `FileMeta`, whose metadata a task of the Runner reads."""
    uri = given_path(peek(meta, "filename"))
    if uri is not None:
        yield {"uri": uri, "dataset": peek(meta, "dataset"), "tree": peek(meta, "treename")}


def events_factory(factory: Any) -> Iterator[dict[str, Any]]:
    """Yield the range of a `NanoEventsFactory`, whose partition key has file, tree and entries."""
    key = peek(factory, "_partition_key")
    opener = peek(peek(factory, "_mapping"), "_fileopener")
    files = peek(opener, "_uuid_pfnmap")
    parts = key.split("/") if isinstance(key, str) else []
    if not isinstance(files, dict) or len(parts) != _KEY_PARTS:
        return
    uuid, tree, entries = map(unquote, parts)
    uri = given_path(files.get(uuid))
    if uri is not None:
        first, _, last = entries.partition("-")
        yield {
            "uri": uri,
            "tree": tree.strip("/").partition(";")[0],
            "first": int(first),
            "last": int(last),
            "unit": "entries",
        }


EXTRACTORS = {
    "coffea.processor.executor.WorkItem": work_item,
    "coffea.processor.executor.FileMeta": file_meta,
    "coffea.nanoevents.factory.NanoEventsFactory": events_factory,
}

"""Inputs of coffea's Runner: its chunks stand as they are among a task's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from dask_strata.recorder.inputs.extractors.call import peek
from dask_strata.recorder.inputs.extractors.places import given_path


def work_item(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield the range of entries that a `WorkItem` stands for."""
    for found in file_meta(thing):
        yield {
            **found,
            "first": peek(thing, "entrystart"),
            "last": peek(thing, "entrystop"),
            "unit": "entries",
            "columns": peek(thing, "preload") or None,
        }


def file_meta(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield the file whose metadata a task of the Runner looks up."""
    uri = given_path(peek(thing, "filename"))
    if uri is not None:
        yield {"uri": uri, "dataset": peek(thing, "dataset"), "tree": peek(thing, "treename")}


def events_factory(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield what a `NanoEventsFactory` reads: its partition key has file, tree and range."""
    key = peek(thing, "_partition_key")
    opener = peek(peek(thing, "_mapping"), "_fileopener")
    files = peek(opener, "_uuid_pfnmap")
    if not isinstance(key, str) or not isinstance(files, dict) or key.count("/") != 2:  # noqa: PLR2004  as coffea makes it
        return
    uuid, tree, entries = (unquote(part) for part in key.split("/"))
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

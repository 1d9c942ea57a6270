"""Inputs of dask.bag, and of other readers that use Dask's `read_block_from_file`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.call import Call
from dask_strata.recorder.inputs.extractors.paths import given_path, open_file


def block_of_file(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the range of bytes that `read_block_from_file` reads."""
    file = call.argument(0, "lazy_file")
    first, nbytes = call.argument(1, "off"), call.argument(2, "bs")
    found = open_file(file)
    uri = found[0] if found else given_path(file)
    if uri is None:
        return
    row: dict[str, Any] = {"uri": uri}
    if isinstance(nbytes, int) and isinstance(first, int):
        row |= {"first": first, "last": first + nbytes, "unit": "bytes", "nbytes": nbytes}
    yield row


def lazy_file(file: Any) -> Iterator[dict[str, Any]]:
    """Yield one of fsspec's files that the task opens, unless its mode is for writing."""
    found = open_file(file)
    if found is not None and not set(found[1]) & set("wax"):
        yield {"uri": found[0]}


def text_blocks(call: Call) -> Iterator[dict[str, Any]]:
    """Yield a file that `read_text` reads completely."""
    yield from lazy_file(call.argument(1, "lazy_file"))


EXTRACTORS = {
    "dask.bytes.core.read_block_from_file": block_of_file,
    "dask.bag.text.file_to_blocks": text_blocks,
    "fsspec.core.OpenFile": lazy_file,
    "fsspec.spec.AbstractBufferedFile": lazy_file,
    "fsspec.implementations.local.LocalFileOpener": lazy_file,
}

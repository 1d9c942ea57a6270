"""Inputs of dask.array: zarr, HDF5, files that xarray opens, and image files.

Except for images, a task reads them by `getter(array, index)`, where the array has the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.call import Call, mro, peek, type_name
from dask_strata.recorder.inputs.extractors.paths import given_path, looks_like_path, on_filesystem

#: Bound on nested wrappers of an array; xarray has about five.
_DEPTH = 20


def getter(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the part of a stored array that a chunk of dask.array is read from."""
    array, index = call.argument(0, "a"), call.argument(1, "b")
    cached = call.memo.get(id(array))
    if cached is None:  # thousands of chunks share one array; keep it, so that its id is not reused
        cached = call.memo[id(array)] = (list(stored_array(array)), array)
    for found in cached[0]:
        row = {**found, **_range(index, found["_offsets"])}
        del row["_offsets"]
        yield row


def whole_array(array: Any) -> Iterator[dict[str, Any]]:
    """Yield the store of an array that is itself an argument of a task."""
    for found in stored_array(array):
        found.pop("_offsets", None)
        yield found


def stored_array(array: Any) -> Iterator[dict[str, Any]]:
    """Yield the store of an array, if it has one.

    `_offsets` has the start of the array within the stored one on each axis: empty if the array is
    the stored one, None if unknown.
    """
    offsets: Any = ()
    for _ in range(_DEPTH):
        names = [type_name(base) for base in mro(type(array))]
        for name in names:
            if name in _STORES:
                location = _STORES[name](array)
                if location is not None:
                    yield {"uri": location[0], "dataset": location[1], "_offsets": offsets}
                return
        if not names[0].startswith("xarray."):
            return
        if peek(array, "datastore") is not None:
            yield from ({**found, "_offsets": offsets} for found in _xarray_variable(array))
            return
        if names[0].endswith("LazilyIndexedArray"):
            # Two nested selections are not combined: their offsets are unknown.
            offsets = _offsets(peek(peek(array, "key"), "tuple")) if offsets == () else None
        inner = peek(array, "array")
        array = peek(array, "_array") if inner is None else inner


def _offsets(key: Any) -> Any:
    """Return the start of a selection on each axis; None unless all are slices with step 1."""
    if not isinstance(key, tuple):
        return None
    if not all(isinstance(k, slice) and k.step in (None, 1) and (k.start or 0) >= 0 for k in key):
        return None
    return tuple(k.start or 0 for k in key)


def _xarray_variable(wrapper: Any) -> Iterator[dict[str, Any]]:
    store = peek(wrapper, "datastore")
    path = given_path(peek(store, "_filename"))
    if path is None:  # the file's manager has the path as the first argument for reopening
        opened_with = peek(peek(store, "_manager"), "_args")
        if isinstance(opened_with, tuple) and opened_with:
            path = given_path(opened_with[0])
    if path is not None:
        group, name = peek(store, "_group"), peek(wrapper, "variable_name")
        inside = [part.strip("/") for part in (group, name) if isinstance(part, str)]
        yield {"uri": path, "dataset": "/".join(part for part in inside if part) or None}


def _zarr(array: Any) -> tuple[str, str | None] | None:
    inner = peek(array, "_async_array")
    location = peek(array if inner is None else inner, "store_path")
    if location is None:  # zarr before version 3
        return _store(peek(array, "_store"), peek(array, "_path"))
    return _store(peek(location, "store"), peek(location, "path"))


def _store(store: Any, path: Any) -> tuple[str, str | None] | None:
    root = given_path(peek(store, "root")) or given_path(peek(store, "path"))
    if root is None:
        return None  # in memory, or of a kind without a path
    uri = on_filesystem(root, peek(store, "fs"))
    return uri, path if isinstance(path, str) and path else None


def _hdf5(dataset: Any) -> tuple[str, str | None] | None:
    # h5py raises if the file is closed; the walker counts the failure.
    name = dataset.name
    return dataset.file.filename, name.strip("/") if isinstance(name, str) else None


def _range(index: Any, offsets: Any) -> dict[str, Any]:
    """Return the range on the first axis, and all ranges as ``selection`` if there are several."""
    parts = index if isinstance(index, tuple) else (index,)
    if offsets is None or not parts:
        return {}
    if offsets and len(offsets) != len(parts):
        return {}
    ranges = []
    for axis, part in enumerate(parts):
        offset = offsets[axis] if offsets else 0
        if type(part) is slice and type(part.stop) is int:
            start, step = part.start or 0, part.step
            if type(start) is not int:
                return {}
            span = [start + offset, part.stop + offset]
            ranges.append(span if step in (None, 1) else [*span, int(step)])
        elif type(part) is int:
            ranges.append([part + offset, part + offset + 1])
        else:
            return {}
    first, last = ranges[0][:2]
    found: dict[str, Any] = {"first": first, "last": last, "unit": "axis 0"}
    if len(ranges) > 1:
        found["selection"] = str(ranges)  # valid JSON, and faster than json.dumps
    return found


def image(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the file that `dask_image.imread` reads, with the range of frames."""
    names = call.args[0] if call.args else None
    if names is None or not (isinstance(names, list) or peek(names, "shape")):
        return
    path = given_path(names[0])
    if path is None:
        return
    found: dict[str, Any] = {"uri": path}
    block = call.kwargs.get("block_info")
    if not call.kwargs.get("multiple_files") and isinstance(block, dict):
        first, last = block[None]["array-location"][0]
        found |= {"first": first, "last": last, "unit": "frames"}
    yield found


def names_of_files(array: Any) -> Iterator[dict[str, Any]]:
    """Yield the paths in an array of text; nothing for other arrays."""
    if array.dtype.kind == "U" and array.size <= _MAX_NAMES:
        yield from ({"uri": text} for text in array.ravel().tolist() if looks_like_path(text))


#: Bound on the size of an array of file names; a larger array of text is data.
_MAX_NAMES = 1000

_STORES = {
    "zarr.core.array.Array": _zarr,
    "zarr.core.array.AsyncArray": _zarr,
    "zarr.core.Array": _zarr,
    "h5py._hl.dataset.Dataset": _hdf5,
}

EXTRACTORS = {
    "dask.array.core.getter": getter,
    "dask.array.core.getter_nofancy": getter,
    "dask.array.core.getter_inline": getter,
    "dask_image.imread._map_read_frame": image,
    "xarray.core.indexing.ImplicitToExplicitIndexingAdapter": whole_array,
    "xarray.core.indexing.ExplicitlyIndexed": whole_array,
    "numpy.ndarray": names_of_files,
    **dict.fromkeys(_STORES, whole_array),
}

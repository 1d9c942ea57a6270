"""Inputs of dask.array: zarr, HDF5, what xarray opens, and image files.

All of them are read by `getter(array, index)`, where the array is what knows its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.call import Call, mro, peek, type_name
from dask_strata.recorder.inputs.extractors.places import given_path, looks_like_path, on_filesystem

#: Wrappers of an array within which the place is looked for: xarray has about five.
_DEPTH = 20


def getter(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the part of a stored array that a chunk of dask.array is read from."""
    array, index = call.argument(0, "a"), call.argument(1, "b")
    known = call.memo.get(id(array))
    if known is None:  # each of thousands of chunks is of the same array, which is kept
        known = call.memo[id(array)] = (list(stored_array(array)), array)
    for found in known[0]:
        row = {**found, **_range(index, found["_offsets"])}
        del row["_offsets"]
        yield row


def whole_array(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield the store of an array that is handed to a function as it is."""
    for found in stored_array(thing):
        found.pop("_offsets", None)
        yield found


def stored_array(array: Any) -> Iterator[dict[str, Any]]:
    """Yield where an array is stored, if it is; `_offsets` say which part it is of that."""
    offsets: Any = ()
    for _ in range(_DEPTH):
        names = [type_name(base) for base in mro(type(array))]
        for name in names:
            if name in _STORES:
                place = _STORES[name](array)
                if place is not None:
                    yield {"uri": place[0], "dataset": place[1], "_offsets": offsets}
                return
        if not names[0].startswith("xarray."):
            return
        if peek(array, "datastore") is not None:
            yield from ({**found, "_offsets": offsets} for found in _xarray_variable(array))
            return
        if names[0].endswith("LazilyIndexedArray"):
            # Of two, the inner one was there before: both together are not worked out.
            offsets = _offsets(peek(peek(array, "key"), "tuple")) if offsets == () else None
        inner = peek(array, "array")
        array = peek(array, "_array") if inner is None else inner


def _offsets(key: Any) -> Any:
    """Return what to add to an index on each axis; None if it is not that simple."""
    if not isinstance(key, tuple):
        return None
    if not all(isinstance(k, slice) and k.step in (None, 1) and (k.start or 0) >= 0 for k in key):
        return None
    return tuple(k.start or 0 for k in key)


def _xarray_variable(wrapper: Any) -> Iterator[dict[str, Any]]:
    store = peek(wrapper, "datastore")
    path = given_path(peek(store, "_filename"))
    if path is None:  # the file's manager has it, as the first argument to open it again
        opened_with = peek(peek(store, "_manager"), "_args")
        if isinstance(opened_with, tuple) and opened_with:
            path = given_path(opened_with[0])
    if path is not None:
        group, name = peek(store, "_group"), peek(wrapper, "variable_name")
        inside = [part.strip("/") for part in (group, name) if isinstance(part, str)]
        yield {"uri": path, "dataset": "/".join(part for part in inside if part) or None}


def _zarr(array: Any) -> tuple[str, str | None] | None:
    inner = peek(array, "_async_array")
    place = peek(array if inner is None else inner, "store_path")
    if place is None:  # zarr before version 3
        return _store(peek(array, "_store"), peek(array, "_path"))
    return _store(peek(place, "store"), peek(place, "path"))


def _store(store: Any, path: Any) -> tuple[str, str | None] | None:
    root = given_path(peek(store, "root")) or given_path(peek(store, "path"))
    if root is None:
        return None  # in memory, or of a kind that does not say
    uri = on_filesystem(root, peek(store, "fs"))
    return uri, path if isinstance(path, str) and path else None


def _hdf5(dataset: Any) -> tuple[str, str | None] | None:
    # Of a file that was closed h5py knows no name any more: that raises, and is counted.
    name = dataset.name
    return dataset.file.filename, name.strip("/") if isinstance(name, str) else None


def _range(index: Any, offsets: Any) -> dict[str, Any]:
    """Return the range on the first axis, and all of them where there are several."""
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
        found["selection"] = str(ranges)  # which is JSON, and sooner
    return found


def image(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the file that `dask_image.imread` reads, and which frames of it."""
    names = call.args[0] if call.args else None
    if names is None or not (isinstance(names, list) or peek(names, "shape")):
        return
    path = given_path(names[0])
    if path is None:
        return
    found: dict[str, Any] = {"uri": path}
    place = call.kwargs.get("block_info")
    if not call.kwargs.get("multiple_files") and isinstance(place, dict):
        first, last = place[None]["array-location"][0]
        found |= {"first": first, "last": last, "unit": "frames"}
    yield found


def names_of_files(thing: Any) -> Iterator[dict[str, Any]]:
    """Yield the paths that an array of text holds, if that is what it is."""
    if thing.dtype.kind == "U" and thing.size <= _MOST_NAMES:
        yield from ({"uri": text} for text in thing.ravel().tolist() if looks_like_path(text))


#: An array of more texts than these is data.
_MOST_NAMES = 1000

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

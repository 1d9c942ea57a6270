"""Inputs of dask.dataframe: `read_parquet` with both file systems, and `read_csv`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dask_strata.recorder.inputs.extractors.bag import block_of_file
from dask_strata.recorder.inputs.extractors.call import Call, peek
from dask_strata.recorder.inputs.extractors.paths import given_path, on_filesystem

#: Schemes of Arrow's file systems, by a name that their pickles contain.
_ARROW_SCHEMES = {b"S3FileSystem": "s3", b"GcsFileSystem": "gs", b"HadoopFileSystem": "hdfs"}
#: Schemes of Arrow's file systems, by their `type_name`.
_ARROW_TYPES = {"s3": "s3", "gcs": "gs", "hdfs": "hdfs", "abfs": "abfs"}


def parquet(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the files and row groups that `read_parquet` with fsspec reads for a partition."""
    reader = call.function
    part = call.args[0] if call.args else None
    columns = peek(reader, "_columns")
    for piece in part if isinstance(part, list) else [part]:
        if not isinstance(piece, dict) or not isinstance(piece.get("piece"), tuple):
            continue
        file, groups = (*piece["piece"], None)[:2]
        path = given_path(file) or given_path(peek(file, "path"))
        if path is not None:
            yield {
                "uri": on_filesystem(path, peek(reader, "fs")),
                "columns": columns,
                **_row_groups(groups),
            }


def _row_groups(groups: Any) -> dict[str, Any]:
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, int) for g in groups):
        return {}
    if not groups:
        return {}
    first, last = min(groups), max(groups) + 1
    found: dict[str, Any] = {"first": first, "last": last, "unit": "row groups"}
    if last - first != len(groups):
        found["selection"] = list(groups)
    return found


def fragment(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the fragment that `read_parquet(filesystem="pyarrow")` reads for a partition."""
    yield from _fragments([call.argument(0, "fragment_wrapper")], call.argument(2, "columns"))


def fused_fragments(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the fragments of several partitions that one task reads."""
    pairs = call.argument(0, "frag_filters")
    if isinstance(pairs, (list, tuple)):
        wrappers = [pair[0] for pair in pairs if isinstance(pair, tuple) and pair]
        yield from _fragments(wrappers, call.argument(1, "columns"))


def _fragments(wrappers: Iterable[Any], columns: Any) -> Iterator[dict[str, Any]]:
    for wrapper in wrappers:
        packed = peek(wrapper, "_fragment_packed")  # the form in which it is pickled
        if isinstance(packed, tuple):
            path, scheme = packed[1], _scheme_of_pickle(packed[2])
            uri = f"{scheme}://{path}" if scheme and isinstance(path, str) else path
            if isinstance(uri, str):
                yield {"uri": uri, "columns": columns}
        else:
            inner = peek(wrapper, "_fragment")
            for found in arrow_fragment(wrapper if inner is None else inner):
                yield {**found, "columns": columns}


def _scheme_of_pickle(pickled: Any) -> str | None:
    if isinstance(pickled, bytes):
        for mark, scheme in _ARROW_SCHEMES.items():
            if mark in pickled:
                return scheme
    return None


def arrow_fragment(piece: Any) -> Iterator[dict[str, Any]]:
    """Yield the file of one of Arrow's fragments, without reading it."""
    path = peek(piece, "path")
    if isinstance(path, str):
        kind = peek(peek(piece, "filesystem"), "type_name")
        scheme = _ARROW_TYPES.get(kind) if isinstance(kind, str) else None
        yield {"uri": f"{scheme}://{path}" if scheme else path}


def csv(call: Call) -> Iterator[dict[str, Any]]:
    """Yield the block of a file that `read_csv` reads for one partition."""
    block = call.args[0] if call.args else None
    if isinstance(block, Call) and block.name == "dask.bytes.core.read_block_from_file":
        columns = call.kwargs.get("columns")
        for found in block_of_file(block):
            yield {**found, "columns": columns}


EXTRACTORS = {
    "dask.dataframe.io.parquet.core.ParquetFunctionWrapper": parquet,
    "dask.dataframe.dask_expr.io.parquet.ReadParquetPyarrowFS._fragment_to_table": fragment,
    "dask.dataframe.dask_expr.io.io.FusedParquetIO._load_multiple_files": fused_fragments,
    "pyarrow._dataset.FileFragment": arrow_fragment,
    "dask.dataframe.io.csv._read_csv": csv,
}

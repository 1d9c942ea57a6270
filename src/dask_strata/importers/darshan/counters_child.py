"""Read counters of Darshan's logs with PyDarshan: the program of a child process.

PyDarshan's C code does not check the bytes it reads: a damaged log makes it crash or use all
memory. `counters` therefore runs this module in a process of its own, with ``python -m``. Standard
input is JSON, a list of logs with their modules. For each log, standard output gets a line of JSON
with the number of bytes that follow, and the counters as an Arrow stream of that length.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

#: Limit of the process's address space.
MEMORY_BYTES = 4 << 30

SCHEMA = pa.schema(
    [
        ("module", pa.dictionary(pa.int32(), pa.string())),
        ("uri", pa.dictionary(pa.int32(), pa.string())),
        ("rank", pa.int64()),
        ("counter", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.float64()),
    ]
)


def main() -> None:
    """Read the request from standard input, and answer for each log."""
    # Keep the output of the C library out of the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    wanted = json.load(sys.stdin)
    from darshan.backend import cffi_backend as backend

    for log in wanted:
        try:
            rows = read_counters(backend, log["path"], log["modules"])
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SCHEMA) as stream:
                stream.write_table(rows)
            _answer(answers, {}, sink.getvalue())
        except Exception as error:  # noqa: BLE001  any failure is reported as the answer for this log
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            _answer(answers, {"error": text[:500]}, b"")


def _limit(kind: int, limit: int) -> None:
    """Set a resource limit. A lower hard limit, such as by `ulimit -v`, stays: it is final."""
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _answer(answers: BinaryIO, facts: dict[str, Any], data: Any) -> None:
    answers.write(json.dumps(facts | {"bytes": len(data)}).encode("ascii") + b"\n")
    answers.write(data)
    answers.flush()


def read_counters(backend: Any, path: str, modules: list[str]) -> pa.Table:
    """Return the nonzero counters of a log's modules, as a table of `SCHEMA`.

    Parameters
    ----------
    backend : module
        PyDarshan's ``cffi_backend``.
    path : str
        The log.
    modules : list of str
        Modules to read.

    Raises
    ------
    ValueError
        PyDarshan cannot open the log, or the log names none of a module's files.
    """
    log = backend.log_open(path)
    if not log["handle"]:
        raise ValueError("PyDarshan cannot open it")
    names = backend.log_get_name_records(log)
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for module in modules:
        named = nameless = 0
        while (record := backend.log_get_record(log, module, dtype="numpy")) is not None:
            if record["id"] not in names:
                nameless += 1
                continue
            named += 1
            uri = names[record["id"]]
            for counters, values in _counters(backend, module, record):
                nonzero = values != 0
                n = int(nonzero.sum())
                columns["counter"].append(counters[nonzero])
                columns["value"].append(np.where(values == -1, np.nan, values)[nonzero])
                for column, value in (("module", module), ("uri", uri), ("rank", record["rank"])):
                    columns[column].append((value, n))
        if nameless and not named:
            raise ValueError(f"{module} is damaged: the log names none of its files")
    backend.log_close(log)
    return _table(columns)


def _counters(backend: Any, module: str, record: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    if module == "HEATMAP":
        bins = np.arange(record["nbins"]).astype(str)
        for kind in ("READ", "WRITE"):
            yield np.char.add(f"HEATMAP_{kind}_BIN_", bins), record[f"{kind.lower()}_bins"]
        yield np.array(["HEATMAP_F_BIN_WIDTH"]), np.array([record["bin_width_seconds"]])
        return
    if module == "LUSTRE":
        for component in record.get("components", [record]):
            names = backend.counter_names("LUSTRE_COMP" if "components" in record else module)
            yield np.array(names), component["counters"]
            numbers = np.arange(len(component["ost_ids"])).astype(str)
            yield np.char.add("LUSTRE_OST_ID_", numbers), np.asarray(component["ost_ids"])
        return
    yield np.array(backend.counter_names(module)), record["counters"]
    yield np.array(backend.fcounter_names(module)), record["fcounters"]


def _table(columns: dict[str, list[Any]]) -> pa.Table:
    if not columns["value"]:
        return SCHEMA.empty_table()
    arrays = []
    for field in SCHEMA:
        pieces = columns[field.name]
        if field.name in {"value", "counter"}:
            values = pa.array(np.concatenate(pieces), from_pandas=field.name == "value")
        else:
            lengths = [n for _, n in pieces]
            kinds = pa.array([v for v, _ in pieces])
            values = kinds.take(pa.array(np.repeat(np.arange(len(pieces)), lengths)))
        if pa.types.is_dictionary(field.type):
            values = values.cast(pa.string()).dictionary_encode()
        arrays.append(values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


if __name__ == "__main__":
    main()

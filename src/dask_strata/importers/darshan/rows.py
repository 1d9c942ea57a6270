"""Rows of the ``darshan_*`` tables, from the facts and operations of a log."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from dask_strata.importers.darshan.clock_fit import Shift
from dask_strata.importers.darshan.dxt import Operations
from dask_strata.importers.darshan.survey import Survey
from dask_strata.importers.process_match import ProcessMatch


def log_row(found: Survey, matched: ProcessMatch | None, shift: Shift | None) -> dict[str, Any]:
    """Return the row of ``darshan_logs`` of a log.

    Parameters
    ----------
    found : Survey
        The facts of the log.
    matched : ProcessMatch or None
        The process that wrote it, if the run has that process.
    shift : Shift or None
        The shift of its clock, if it could be estimated.
    """
    log, facts = found.log, found.facts
    process = matched.process if matched else None
    row: dict[str, Any] = {
        "log": found.id,
        "file": found.path.name,
        "pid": facts.pid,
        "host": ", ".join(sorted(found.hosts)) or None,
        "program": program(log.exe),
        "exe": log.exe,
        "uid": log.uid,
        "jobid": log.jobid,
        "nprocs": log.nprocs,
        "start": log.start,
        "stop": facts.stop,
        "log_version": log.version,
        "library_version": log.metadata.get("lib_ver"),
        "modules": json.dumps(list(log.modules)),
        "partial": json.dumps(list(log.partial)) if log.partial else None,
        "operation_bytes": found.operation_bytes,
        "n_segments": found.segments if found.traces else None,
        "main_thread": found.first[1] or None,
        "seq": 0,
    }
    if matched is not None:
        row |= {"worker": matched.worker, "tied_by": ", ".join(matched.by)}
        row["certainty"] = matched.certainty
        row |= {"role": process.role if process else "worker"}
        row["process"] = process.process if process else None
    if shift is not None:
        row["clock_shift_seconds"] = shift.seconds
        row["clock_uncertainty_seconds"] = shift.uncertainty_seconds
        row["clock_fit"] = shift.fit
    return row


def program(exe: str) -> str:
    """Return a short name of the program that a command line runs.

    >>> program("/usr/bin/python3 -B -c from multiprocessing.resource_tracker import main")
    'resource_tracker'
    >>> program("/opt/bin/python3.10 /opt/bin/dask worker --scheduler-file=s.json")
    'dask worker'
    >>> program("uname -s")
    'uname'
    """
    for name in ("resource_tracker", "spawn_main", "forkserver"):
        if name in exe:
            return name
    words = [word.rpartition("/")[2] for word in exe.split()]
    if words[:1] and words[0].startswith("python") and len(words) > 1:
        words = words[2:] if words[1] == "-m" else words[1:] if words[1][:1] != "-" else words[:1]
    if words[:1] == ["dask"] and len(words) > 1:
        return f"dask {words[1]}"
    return words[0][:80] if words else ""


def segment_rows(
    operations: Operations, found: Survey, module: str, uri: pa.Array, seq: int
) -> pa.Table:
    """Return rows of ``darshan_segments``.

    Parameters
    ----------
    operations : Operations
        The reads and writes.
    found : Survey
        The facts of their log.
    module : str
        Trace module that they are from.
    uri : pyarrow.Array
        Name of the file of each operation.
    seq : int
        Number of the first row.
    """
    n = len(operations)
    start = found.log.start
    threads = operations.thread
    return pa.table(
        {
            "log": _constant(found.id, n),
            "module": _constant(module, n),
            "operation": pa.DictionaryArray.from_arrays(
                pa.array(operations.write.astype(np.int32)), pa.array(["read", "write"])
            ),
            "uri": uri,
            "rank": operations.rank,
            "thread": pa.array(threads, mask=threads == 0),
            "offset": operations.offset,
            "length_bytes": operations.length,
            "start": _times(start, operations.start),
            "stop": _times(start, operations.stop),
            "seq": np.arange(seq, seq + n),
        }
    )


def _times(start: int, seconds: Any) -> pa.Array:
    ns = start + np.round(seconds * 1e9).astype(np.int64)
    return pa.array(ns).cast(pa.timestamp("ns", "UTC"))


def _constant(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))


def counter_rows(counters: pa.Table, log: str) -> pa.Table:
    """Return rows of ``darshan_counters``, from counters of the log with the id `log`."""
    n = len(counters)
    return counters.append_column("log", _constant(log, n)).append_column(
        "seq", pa.array(np.arange(n))
    )

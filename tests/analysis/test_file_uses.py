"""Files of tasks, one row for each file and range: bytes and events are those of the row alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata import open_run
from dask_strata.analysis.lineage import FileUse, trace
from tests.support.synthetic import SECOND, T0, Process, life, new_run

W = "tcp://w:1"
THREAD = 1


def entries(key: str, uri: str, tree: str, first: int, last: int) -> dict[str, Any]:
    """Return an input that a definition claims: entries of a tree in a file."""
    return {
        "key": key,
        "uri": uri,
        "tree": tree,
        "unit": "entries",
        "first": first,
        "last": last,
        "extractor": "dask_awkward.from_uproot",
    }


def files_of(
    folder: Path, claims: list[dict[str, Any]], reads: dict[str, dict[str, int]], kind: str
) -> dict[str, tuple[FileUse, ...]]:
    """Return the files of the tasks of a run in which each task read bytes of files.

    The bytes are on record as the library's own (library), as Darshan's (darshan), or as those
    of the task's thread (thread).
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    worker = Process(folder, "worker-1", address=W, name="w", nthreads=1, pid=1)
    log = {"log": "l", "worker": W, "tied_by": "pid", "certainty": 1.0, "pid": 1, "nprocs": 1}
    worker.write("darshan_logs", [log | {"start": T0, "stop": T0 + 9 * SECOND}])
    transitions = []
    for n, (key, nbytes) in enumerate(reads.items()):
        start, stop = T0 + (2 * n + 1) * SECOND, T0 + (2 * n + 2) * SECOND
        transitions += life(key, 2 * n + 1, 2 * n + 2, W)
        task = {"execution": n, "key": key, "worker": W}
        measured = {"kind": "thread", "thread": THREAD, "start": start, "stop": stop}
        if kind == "thread":
            counted = {"read_bytes": sum(nbytes.values()), "other_read_bytes": 0}
            measured |= counted | {"n_opened": len(nbytes)}
        worker.write("executions", [task | measured | {"outcome": "finished"}])
        opened = [task | {"uri": uri, "mode": "read", "count": 1} for uri in nbytes]
        worker.write("file_opens", opened)
        if kind == "library":
            of_files = [{"uri": uri, "requested_bytes": size} for uri, size in nbytes.items()]
            worker.write("library_reads", [task | {"library": "uproot"} | row for row in of_files])
        if kind == "darshan":
            segment = {"log": "l", "module": "DXT_POSIX", "operation": "read", "thread": THREAD}
            times = {"offset": 0, "start": start, "stop": stop}
            of_files = [{"uri": uri, "length_bytes": size} for uri, size in nbytes.items()]
            worker.write("darshan_segments", [segment | times | row for row in of_files])
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    scheduler.write("claimed_inputs", claims)
    scheduler.end()
    worker.end()
    run = open_run(folder)
    return {key: trace(run, key).made_from.files for key in reads}


def test_files_of_one_name_keep_their_own_bytes(tmp_path: Path) -> None:
    """The same ranges of `a/x.root` and `b/x.root` are one row each, with their own bytes."""
    claims = [
        entries("first", "/a/x.root", "Events", 0, 10),
        entries("second", "/b/x.root", "Events", 0, 10),
        entries("both", "/a/x.root", "Events", 0, 10),
        entries("both", "/b/x.root", "Events", 0, 10),
    ]
    reads = {
        "first": {"/a/x.root": 100},
        "second": {"/b/x.root": 200},
        "both": {"/a/x.root": 300, "/b/x.root": 400},
    }
    for kind in ("library", "darshan"):
        found = files_of(tmp_path / kind, claims, reads, kind)
        for key, nbytes in reads.items():
            rows = [(f.uri, f.first, f.last, f.events) for f in found[key]]
            assert rows == [(uri, 0, 10, 10) for uri in nbytes], key
        of_one = {f.uri: f.read_bytes for key in ("first", "second") for f in found[key]}
        assert of_one == {"/a/x.root": 100, "/b/x.root": 200}
        of_both = {f.uri: f.read_bytes for f in found["both"]}
        # A library may name a file by another path: its name alone does not tell the two apart.
        unknown = dict.fromkeys(reads["both"])
        assert of_both == (unknown if kind == "library" else reads["both"])


def test_bytes_of_a_file_are_not_those_of_each_of_its_trees(tmp_path: Path) -> None:
    """Two trees of one file in a task: nothing on record divides the bytes of the file."""
    uri = "/a/x.root"
    claims = [
        entries("two", uri, "Events", 0, 10),
        entries("two", uri, "Runs", 0, 5),
        entries("one", uri, "Events", 0, 10),
    ]
    reads = {"two": {uri: 300}, "one": {uri: 400}}
    for kind in ("thread", "darshan"):
        found = files_of(tmp_path / kind, claims, reads, kind)
        rows = [(f.tree, f.events, f.read_bytes, f.bytes_from) for f in found["two"]]
        assert sorted(rows) == [("Events", 10, None, None), ("Runs", 5, None, None)]
        [alone] = found["one"]
        assert (alone.read_bytes, alone.bytes_from) == (400, kind)

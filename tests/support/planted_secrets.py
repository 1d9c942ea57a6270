"""A synthetic run with a row in each recorded table, whose texts have hosts, paths and code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata.schema import RECORDED, Column, Table
from dask_strata.store.manifest import Manifest
from tests.support.synthetic import SECOND, T0, Process, life

HOST, PATH, CODE = "plantedhost", "/plantedfolder/plantedfile", "plantedline()"
ADDRESS = f"tcp://{HOST}:1"

#: What must not be in an export without a class of facts.
PLANTED = {"hosts": HOST, "paths": "plantedf", "code": "plantedline"}

TRACEBACK = f'  File "{PATH}", line 1, in f\n    {CODE}\n'

#: Rows of tables in which the name of a fact decides on its value.
FACTS = {
    "job": [
        {"name": "job.script", "value": f"#!/bin/sh\n{CODE}", "source": PATH},
        {"name": "host.name", "value": HOST, "source": "socket.gethostname"},
        {"name": "process.command-line", "value": f"python {PATH}", "source": "/proc"},
        {"name": "cpu.logical-cores", "value": "8", "source": "os"},
    ],
    "script": [
        {"name": "text", "value": CODE},
        {"name": "path", "value": PATH},
        {"name": "name", "value": "planted.py"},
    ],
    "config": [{"name": "temporary-directory", "value": f'"{PATH}"', "source": PATH}],
}


def value(column: Column) -> Any:
    """Return a value for a column, with secrets as the kinds of columns have them."""
    if column.kind == "time":
        return T0
    if column.kind in ("seconds", "float"):
        return 1.5
    if column.kind in ("int", "bytes"):
        return 1
    if column.kind == "bool":
        return True
    if column.kind == "intervals":
        return [["transfer", T0, SECOND, ADDRESS]]
    if column.kind == "key":
        return f"read-{PATH}"
    texts = {"path": PATH, "host": HOST, "code": CODE, "nothing": "plain", "error": TRACEBACK}
    return texts.get(column.sensitivity, f"{ADDRESS} cannot read {PATH}")


def rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return FACTS.get(table.name) or [{column.name: value(column) for column in table.columns}]


def planted_run(folder: Path) -> Path:
    """Make a complete run."""
    client = "Client-6a86b8a2-e99e-11f1-9755-02fc00000001"
    facts = {"address": ADDRESS, "id": "Scheduler-1", "pid": 1}
    Manifest("planted1", "planted", T0, "0", scheduler=facts).write(folder)
    scheduler = Process(folder, "scheduler-1", address=ADDRESS, host=HOST)
    added = {"time": T0, "worker": ADDRESS, "name": "w", "action": "add", "reason": "2 threads"}
    scheduler.write("worker_events", [added])
    scheduler.write("submissions", [{"submission": "u", "time": T0, "client": client}])
    scheduler.write("graph_tasks", [{"submission": "u", "key": f"read-{PATH}", "requested": True}])
    scheduler.write("scheduler_transitions", life(f"read-{PATH}", 1, 5, ADDRESS))
    for name, table in RECORDED.items():
        if name not in {"processes", "worker_events", "submissions", "clock_offsets"}:
            scheduler.write(name, rows(table))
    lines = [*TRACEBACK.splitlines(), "ValueError", "an ordinary line"]
    common = {"time": T0, "worker": ADDRESS, "pid": 1, "stream": "stderr"}
    scheduler.write("output_lines", [{**common, "line": line} for line in lines])
    scheduler.end()
    worker = Process(folder, "worker-1", address=ADDRESS, host=HOST, name="w", nthreads=2)
    worker.end()
    return folder

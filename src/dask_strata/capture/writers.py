"""A handler's events as files, written a page at a time."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq

from dask_strata.capture.events import Event, WXferEvent, stamp
from dask_strata.capture.frames import EVENTS, FRAMES, ROWS, batch, schema
from dask_strata.capture.handler import TaskHandler
from dask_strata.capture.states import plain
from dask_strata.capture.task import Task
from dask_strata.report.formats import CSV, JSON, PARQUET, Format, formats_of, register


def write_txt(handler: TaskHandler, path: Path) -> None:
    """Write one block of text a task: what printing the task gives."""
    with _open(path) as out:
        out.writelines(map(str, handler.tasks))


def write_json(handler: TaskHandler, path: Path) -> None:
    """Write one array of tasks, each with its events."""
    with _open(path) as out:
        between = "[\n"
        for task in handler.tasks:
            out.write(between)
            out.write(json.dumps(_task(task), ensure_ascii=False, default=_plain))
            between = ",\n"
        out.write("[]\n" if between == "[\n" else "\n]\n")


def write_csv(handler: TaskHandler, path: Path) -> None:
    """Write one row an event, of all kinds, in time order (RFC 4180)."""
    with _open(path, "") as out:
        writer = csv.writer(out)
        writer.writerow([column.name for column in EVENTS])
        gets = [column.get for column in EVENTS]
        writer.writerows(
            [_cell(get(event)) for get in gets] for event in handler.return_all_events()
        )


def write_parquet(handler: TaskHandler, path: Path) -> None:
    """Write the rows of `write_csv` as Parquet."""
    form = schema(EVENTS, handler.tz)
    events = handler.return_all_events()
    with pq.ParquetWriter(path, form, compression="zstd") as out:
        while some := list(islice(events, ROWS)):
            out.write_batch(batch(some, EVENTS, form))


def write_frames(handler: TaskHandler, folder: Path) -> None:
    """Write a CSV file of each kind of event, as the older tool did, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, columns in FRAMES.items():
        with _open(folder / f"{kind.name}_df.csv", "") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["", *(column.name for column in columns)])
            gets = [column.get for column in columns]
            writer.writerows(
                [number, *(_older_cell(get(event)) for get in gets)]
                for number, event in enumerate(handler.events_of(kind))
            )


for _format, _writer in (
    (Format("txt", ".txt"), write_txt),
    (JSON, write_json),
    (CSV, write_csv),
    (PARQUET, write_parquet),
    (Format("df_csv", ""), write_frames),
):
    register(TaskHandler, _format, _writer)

#: Names of the formats that a handler can be written in.
FORMATS = tuple(output_format.name for output_format in formats_of(TaskHandler))


def _open(path: Path, newline: str = "\n") -> TextIO:
    """Open a file for text; what is no text in a key is spelled out."""
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline=newline)


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value)
    return plain(value) if isinstance(value, str) else value


def _older_cell(value: Any) -> Any:
    """Return a value as pandas wrote it for the older tool: members by name."""
    if isinstance(value, datetime):
        return stamp(value)
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else value


#: In JSON a transfer has its keys as an object.
_IN_JSON = {
    kind: [c for c in columns if c.name not in ("key", "keys")] for kind, columns in FRAMES.items()
}


def _fields(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": event.e_type}
    fields.update((c.name, c.get(event)) for c in _IN_JSON[event.e_type])
    if isinstance(event, WXferEvent):
        fields["keys"] = event.keys
    return fields


def _plain(value: Any) -> Any:
    """Return what JSON has no form for; enums are text to it already."""
    return stamp(value) if isinstance(value, datetime) else str(value)


def _task(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "t_start": task.t_start,
        "t_end": task.t_end,
        "workers": task.workers,
        "n_attempts": task.n_attempts,
        "bytes_in": task.bytes_in,
        "bytes_out": task.bytes_out,
        "events": [_fields(event) for event in task.events],
    }

"""Write the events of a handler to files, a page at a time."""

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
from dask_strata.report.words import spreadsheet_text


def write_txt(handler: TaskHandler, path: Path) -> None:
    """Write one block of text per task: `str` of the task."""
    with _open(path) as out:
        out.writelines(map(str, handler.tasks))


def write_json(handler: TaskHandler, path: Path) -> None:
    """Write a JSON array of tasks, each with its events."""
    with _open(path) as out:
        separator = "[\n"
        for task in handler.tasks:
            out.write(separator)
            out.write(json.dumps(_task(task), ensure_ascii=False, default=_plain))
            separator = ",\n"
        out.write("[]\n" if separator == "[\n" else "\n]\n")


def write_csv(handler: TaskHandler, path: Path) -> None:
    """Write one row per event of any kind, in time order, as CSV (RFC 4180)."""
    with _open(path, "") as out:
        writer = csv.writer(out)
        writer.writerow([column.name for column in EVENTS])
        gets = [column.get for column in EVENTS]
        writer.writerows(
            [_cell(get(event)) for get in gets] for event in handler.return_all_events()
        )


def write_parquet(handler: TaskHandler, path: Path) -> None:
    """Write the rows of `write_csv` as Parquet."""
    arrow_schema = schema(EVENTS, handler.tz)
    events = handler.return_all_events()
    with pq.ParquetWriter(path, arrow_schema, compression="zstd") as out:
        while chunk := list(islice(events, ROWS)):
            out.write_batch(batch(chunk, EVENTS, arrow_schema))


def write_frames(handler: TaskHandler, folder: Path) -> None:
    """Write a CSV file for each kind of event into a folder, as the older tool did."""
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
    """Open a text file; lone surrogates in keys are written as escapes."""
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline=newline)


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value)
    return spreadsheet_text(plain(value)) if isinstance(value, str) else value


def _older_cell(value: Any) -> Any:
    """Return a value as in the older tool's files: enum members as ``TaskState.MEMORY``.

    No text is a spreadsheet's formula.
    """
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return spreadsheet_text(value) if isinstance(value, str) else value


#: Columns in JSON, where a transfer's keys are an object instead of columns.
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
    """Return the text of a value that `json` cannot write; enum members are texts to it."""
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

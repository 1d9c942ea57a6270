"""Files like those that the Mofka-Dask coupler writes with pandas, with rows that tests choose."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: A time in the coupler's unit, seconds: a float of this size is exact to microseconds.
T0 = 1_713_553_298.0

COLUMNS: dict[str, tuple[str, ...]] = {
    "scheduler_transition": (
        *("key", "thread", "worker", "prefix", "group", "start", "finish", "stimulus_id"),
        *("called_from", "begins", "ends", "duration", "size", "time"),
    ),
    "worker_transition": ("key", "start", "finish", "called_from", "time"),
    "worker_transfer": (
        *("start", "stop", "middle", "duration", "keys", "total", "bandwidth", "who", "type"),
        *("called_from", "time", "compressed"),
    ),
    "worker": ("worker", "action", "stimulus_id", "time"),
    "client": ("client", "action", "time"),
    "graph": ("client", "keys", "dependencies", "time"),
}

#: Integer columns that pandas writes as floats, because some rows are empty.
FLOATS = {"thread", "size", "compressed"}

#: Values of the first column, `action`, of a newer coupler.
ACTIONS = {
    "scheduler_transition": "scheduler_transition",
    "worker_transition": "worker_transition",
    "worker_transfer": "worker_transfer",
    "graph": "update_graph",
}


def scheduler(key: Any, start: str, finish: str, time: float, /, **more: Any) -> Row:
    """Return a row of the scheduler's file."""
    row = {
        "key": str(key),
        "start": start,
        "finish": finish,
        "stimulus_id": f"s-{time}",
        "called_from": "tcp://10.0.0.1:8786",
        "time": time,
    }
    return row | more


def life(key: Any, start: float, stop: float, worker: str, /, **more: Any) -> list[Row]:
    """Return the scheduler's rows of a task that ran on a worker from start to stop."""
    done = {"thread": 140234, "worker": worker, "size": 28, "begins": start, "ends": stop}
    done |= {"duration": stop - start}
    return [
        scheduler(key, "released", "waiting", start - 0.5),
        scheduler(key, "waiting", "processing", start - 0.25),
        scheduler(key, "processing", "memory", stop + 0.25, **(done | more)),
    ]


def worker(key: Any, start: str, finish: str, time: float, called_from: Any = None) -> Row:
    """Return a row of the workers' file."""
    called_from = W1 if called_from is None else called_from
    return {
        "key": str(key),
        "start": start,
        "finish": finish,
        "called_from": called_from,
        "time": time,
    }


def transfer(keys: Any, start: float, stop: float, /, **more: Any) -> Row:
    """Return a row of the transfers' file, by default of an incoming transfer on W1 from W2."""
    total = sum(keys.values()) if isinstance(keys, dict) else 8
    row = {
        "start": start,
        "stop": stop,
        "middle": (start + stop) / 2,
        "duration": stop - start,
        "keys": str(keys),
        "total": total,
        "bandwidth": total / (stop - start) if stop > start else None,
        "who": W2,
        "type": "incoming_transfer",
        "called_from": W1,
        "time": stop + 0.25,
    }
    return row | more


W1 = "tcp://10.0.0.2:4001"
W2 = "tcp://10.0.0.3:4002"


def added(address: Any, time: float, **more: Any) -> Row:
    """Return a row of the file of workers."""
    return {"worker": address, "action": "add", "time": time} | more


def cell(column: str, value: Any) -> str:
    """Return a value as pandas writes it."""
    if value is None:
        return ""
    if column in FLOATS and isinstance(value, int):
        return repr(float(value))
    return repr(value) if isinstance(value, float) else str(value)


def iso(seconds: float) -> str:
    """Return a time as ISO 8601."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).isoformat()


def nanoseconds(seconds: float) -> int:
    """Return the nanoseconds of a float, from all digits of its text."""
    return int(Decimal(repr(seconds)) * 10**9)


def text(
    role: str, rows: Iterable[Row], columns: Sequence[str] | None = None, *, new: bool = False
) -> str:
    """Return the text of a file.

    Parameters
    ----------
    role : str
        Role of the file, the start of its name.
    rows : iterable of Row
        Its rows; a missing column is empty.
    columns : sequence of str, optional
        Other columns, or another order of them.
    new : bool, optional
        Whether to write the form of couplers since the end of 2024: `action` first, times as text.
    """
    columns = list(columns or COLUMNS[role])
    if new and role in ACTIONS:
        columns = ["action", *(c for c in columns if c != "action")]
    lines: list[str] = []
    writer = csv.writer(_Lines(lines), lineterminator="\n")
    writer.writerow(["", *columns])
    for number, given in enumerate(rows):
        row = {"action": ACTIONS.get(role), **given} if new else given
        if new and isinstance(row.get("time"), float):
            row = row | {"time": iso(row["time"]) if number % 2 else cell("time", row["time"])}
        writer.writerow([str(number), *(cell(c, row.get(c)) for c in columns)])
    return "".join(lines)


class _Lines:
    """A file for csv.writer that keeps all lines in memory."""

    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append


def write(folder: Path, files: Mapping[str, Iterable[Row]], *, new: bool = False) -> Path:
    """Create a folder with files, given by role, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for role, rows in files.items():
        put(folder / f"{role}.csv", text(role, rows, new=new))
    return folder


def put(path: Path, content: str | bytes) -> Path:
    """Write a file without translation of line endings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def damaged(row: Row, lost: int = 3) -> str:
    """Return the output of a consumer for an event whose last bytes were overwritten."""
    kept = {k: v for k, v in row.items() if v is not None and k != "time"}
    payload = str(kept | {"time": row["time"]})
    return f"data failure:  {payload[: -lost - 1]}" + "\N{REPLACEMENT CHARACTER}" * lost + "\n"

"""One process's segment: reading it, and knowing whether it is still written to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.store.arrow import Rows
from dask_strata.store.frames import (
    CUT,
    FRAME_OVERHEAD,
    Damage,
    FrameError,
    decode,
    payloads,
    unpack,
)
from dask_strata.store.place import place


@dataclass
class Segment:
    """What is known of one process's segment.

    ``end_reason`` is null as long as the process has not written its last row. ``next_seq``
    is the sequence number that its next row has, null as long as there is none.
    """

    process: str
    path: Path
    size: int
    modified: float
    header: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    damages: list[str] = field(default_factory=list)
    lost_rows: int = 0
    end_reason: str | None = None
    host: str | None = None
    next_seq: int | None = None

    def absorb(self, later: Segment) -> None:
        """Add what was read behind the part that this one is about."""
        self.size, self.modified = later.size, later.modified
        self.header = later.header or self.header
        self.rows += later.rows
        self.damages += later.damages
        self.lost_rows += later.lost_rows
        self.end_reason = later.end_reason or self.end_reason
        self.next_seq = later.next_seq


def read_segment(path: Path, known: Segment | None, rows: Mapping[str, Rows]) -> Segment:
    """Read a segment, or what came behind the part of it that is known already.

    Parameters
    ----------
    path : Path
        The file.
    known : Segment or None
        What was read of it before, and is in Parquet.
    rows : mapping of table name to Rows
        Gets the rows.
    """
    offset = 0 if known is None else known.size
    try:
        stat, data = path.stat(), path.read_bytes()
    except OSError as error:
        segment = Segment(path.stem, path, offset, 0.0)
        segment.damages.append(f"cannot be read: {error.strerror or error}")
        return segment
    segment = Segment(path.stem, path, stat.st_size, stat.st_mtime)
    segment.next_seq = None if known is None else known.next_seq
    if not data:
        segment.damages.append("the file is empty")
        return segment
    position = 0
    for payload in payloads(data):
        if isinstance(payload, Damage):
            position += payload.length
            if position > offset:
                segment.damages.append(
                    f"{payload.length} bytes at {payload.offset}: {payload.reason}"
                )
            continue
        position += len(payload) + FRAME_OVERHEAD
        try:
            body = unpack(payload)
            if isinstance(body, dict):
                segment.header = segment.header or body
                segment.host = segment.header.get("host")
            elif position > offset:
                _add_frame(segment, body, rows)
        except FrameError as error:
            if position > offset:
                segment.damages.append(f"{len(payload)} bytes before {position}: {error}")
    cut = bool(segment.damages) and segment.damages[-1].endswith(CUT)
    if cut and segment_state(segment) == "recording":
        segment.damages.pop()  # a frame that is just being written
    return segment


def _add_frame(segment: Segment, body: Any, rows: Mapping[str, Rows]) -> None:
    layout = segment.header.get("tables")
    if not isinstance(layout, dict):
        raise FrameError("the header is missing, so that nothing says which columns these are")
    for table, seq, n, columns in list(decode(body, layout)):
        expected = segment.next_seq
        if expected is not None and seq < expected:
            continue  # sent twice, because the answer to the first time was lost
        if expected is not None and seq > expected:
            segment.lost_rows += seq - expected
        segment.next_seq = seq + n
        segment.rows += n
        if table in rows:
            rows[table].extend(n, columns, segment.process, seq)
        if table == "processes":
            reasons = [r for r in columns.get("exit_reason", ()) if r]
            segment.end_reason = reasons[-1] if reasons else segment.end_reason


def segment_state(segment: Segment) -> str:
    """Return ended, recording or cut: whether a process has ended, goes on, or was cut off.

    For a process whose pid means nothing here, silence decides; it samples more often.
    """
    if segment.end_reason is not None:
        return "ended"
    alive = _alive(segment)
    if alive is not None:
        return "recording" if alive else "cut"
    interval = segment.header.get("sample_interval_seconds")
    silent = max(_SILENT_SECONDS, 5 * interval if isinstance(interval, (int, float)) else 0)
    return "recording" if time.time() - segment.modified < silent else "cut"


def may_grow(segment: Segment) -> bool:
    """Return whether a process may write to its segment again, as far as can be known here."""
    return segment.end_reason is None and _alive(segment) is not False


#: A process that wrote nothing for so long, sampling twice a second, is taken as gone.
_SILENT_SECONDS = 60


def _alive(segment: Segment) -> bool | None:
    """Return whether its process is alive; None where its pid means nothing."""
    pid, pids = segment.header.get("pid"), segment.header.get("pids")
    if not isinstance(pid, int) or pid <= 0 or pids is None or pids != place()["pids"]:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[:1] != ["Z"]

"""One process's segment: reading it, and knowing whether it is still written to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.store.arrow import Rows
from dask_strata.store.decode import FrameError, LargeFrameError, decode, unpack
from dask_strata.store.frames import CUT, FRAME_OVERHEAD, Damage, payloads
from dask_strata.store.limits import DAMAGES, NAME_CHARACTERS, Budget
from dask_strata.store.liveness import process_identity
from dask_strata.store.manifest import SEGMENTS
from dask_strata.store.safe_files import open_inside

#: What a header says of its process, beside the tables that it has.
_FACTS = ("format", "process", "role", "run", "sample_interval_seconds", "pid", "host", "pids")


@dataclass
class Segment:
    """What is known of one process's segment.

    ``end_reason`` is null as long as the process has not written its last row. ``next_seq``
    is the sequence number that its next row has, null as long as there is none. ``too_large``
    is whether some of it was not read because it would take too much memory.
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
    too_large: bool = False

    def damage(self, what: str) -> None:
        """Note a damaged part; of very many only that there are more."""
        if len(self.damages) < DAMAGES:
            self.damages.append(what)
        elif len(self.damages) == DAMAGES:
            self.damages.append("there are more damaged parts than these")

    def absorb(self, later: Segment) -> None:
        """Add what was read behind the part that this one is about."""
        self.size, self.modified = later.size, later.modified
        self.header = later.header or self.header
        self.rows += later.rows
        for damage in later.damages:
            self.damage(damage)
        self.lost_rows += later.lost_rows
        self.end_reason = later.end_reason or self.end_reason
        self.next_seq = later.next_seq


def header_facts(header: object) -> dict[str, Any]:
    """Return what a header says of its process, as far as it is what it should be."""
    if not isinstance(header, Mapping):
        return {}
    facts = {name: header.get(name) for name in _FACTS}
    return {
        name: fact
        for name, fact in facts.items()
        if (isinstance(fact, str) and len(fact) <= NAME_CHARACTERS)
        or (isinstance(fact, (int, float)) and abs(fact) < 1 << 31)
    }


def read_segment(
    run: Path, name: str, known: Segment | None, rows: Mapping[str, Rows], budget: Budget
) -> Segment:
    """Read a segment, or what came behind the part of it that is known already.

    Parameters
    ----------
    run : Path
        The run's folder.
    name : str
        Name of the file.
    known : Segment or None
        What was read of it before, and is in Parquet.
    rows : mapping of table name to Rows
        Gets the rows.
    budget : Budget
        Of the memory that they may take.
    """
    path = run / SEGMENTS / name
    offset = 0 if known is None else known.size
    segment = Segment(path.stem, path, offset, 0.0)
    try:
        with open_inside(run, SEGMENTS, name) as file:
            stat = os.fstat(file.fileno())
            segment.size, segment.modified = stat.st_size, stat.st_mtime
            segment.next_seq = None if known is None else known.next_seq
            if stat.st_size:
                _read_frames(segment, payloads(file), offset, (rows, budget))
            else:
                segment.damage("the file is empty")
    except OSError as error:
        segment.damage(f"cannot be read: {error.strerror or error}")
    cut = bool(segment.damages) and segment.damages[-1].endswith(CUT)
    if cut and segment_state(segment) == "recording":
        segment.damages.pop()  # a frame that is just being written
    return segment


def _read_frames(
    segment: Segment,
    found: Iterator[bytes | Damage],
    offset: int,
    into: tuple[Mapping[str, Rows], Budget],
) -> None:
    """Read what is behind an offset; before it, the header."""
    position = 0
    layout: Mapping[str, Sequence[str]] = {}
    for payload in found:
        if isinstance(payload, Damage):
            position += payload.length
            if position > offset:
                segment.damage(f"{payload.length} bytes at {payload.offset}: {payload.reason}")
            continue
        position += len(payload) + FRAME_OVERHEAD
        if position <= offset and layout:
            continue
        try:
            body = unpack(payload, into[1])
            if isinstance(body, dict):
                layout = layout or _layout(body)
                segment.header = segment.header or header_facts(body)
                host = segment.header.get("host")
                segment.host = host if isinstance(host, str) else None
            elif position > offset:
                _add_frame(segment, body, layout, into)
        except FrameError as error:
            if position > offset:
                segment.damage(f"{len(payload)} bytes before {position}: {error}")
                segment.too_large |= isinstance(error, LargeFrameError)


def _layout(header: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return which columns each table has by a header."""
    tables = header.get("tables")
    if not isinstance(tables, dict) or not all(
        isinstance(names, list) and all(isinstance(n, str) for n in [table, *names])
        for table, names in tables.items()
    ):
        raise FrameError("the header does not say which columns there are")
    return tables


def _add_frame(
    segment: Segment,
    body: Any,
    layout: Mapping[str, Sequence[str]],
    into: tuple[Mapping[str, Rows], Budget],
) -> None:
    if not layout:
        raise FrameError("the header is missing, so that nothing says which columns these are")
    rows, budget = into
    for table, seq, n, columns in list(decode(body, layout, budget)):
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
            reasons = [r for r in columns.get("exit_reason", ()) if r and isinstance(r, str)]
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
    if not isinstance(pid, int) or pid <= 0 or pids is None or pids != process_identity()["pids"]:
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

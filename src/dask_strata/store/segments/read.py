"""Reading the segment of one process, and finding out whether the process still writes to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dask_strata.schema import WITHOUT_SEQ
from dask_strata.store.limits import DAMAGES, NAME_CHARACTERS, PIECES, Budget
from dask_strata.store.manifest import SEGMENTS, process_identity
from dask_strata.store.safe_files import open_inside
from dask_strata.store.segments.decode import decode, unpack
from dask_strata.store.segments.errors import FrameError, LargeFrameError
from dask_strata.store.segments.frames import CUT, FRAME_OVERHEAD, Damage, payloads
from dask_strata.store.segments.values import values_of

if TYPE_CHECKING:
    from dask_strata.store.arrow import Rows

#: Fields of a header that describe the process.
_FACTS = ("format", "process", "role", "run", "sample_interval_seconds", "pid", "host", "pids")


@dataclass
class Segment:
    """State of one process's segment.

    Attributes
    ----------
    process : str
        Id of the process.
    path : Path
        The file.
    size : int
        Bytes of the file that have been read.
    modified : float
        When the file was last written, in seconds since the epoch.
    header : dict
        Fields of the header that describe the process.
    rows : int
        Rows read.
    damages : list of str
        Position and reason of each part that cannot be read.
    lost_rows : int
        Rows missing between two frames, by their sequence numbers.
    end_reason : str or None
        Why the process ended; None as long as it has not written its last row.
    host : str or None
        Host of the process.
    next_seq : int or None
        Sequence number of its next row; None before the first row.
    too_large : bool
        Whether frames were skipped because they would take too much memory.
    foreign : str or None
        Why the file is not a segment of this run and process, so that its rows were not read.
    complete : int or None
        End of its last intact frame, in bytes; None if unknown. The file may end in another one.
    unnumbered : list of tuple of str, int and int
        Table, sequence number of the first row, and number of rows of each piece of a table that
        has no column ``seq``; only of rows that were read by this version.
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
    foreign: str | None = None
    complete: int | None = None
    unnumbered: list[tuple[str, int, int]] = field(default_factory=list)

    def add_unnumbered(self, table: str, seq: int, n: int) -> None:
        """Add a piece of a table without a column ``seq``, up to `PIECES` of them."""
        if self.unnumbered and self.unnumbered[-1][0] == table:
            _, first, before = self.unnumbered[-1]
            if first + before == seq:
                self.unnumbered[-1] = (table, first, before + n)
                return
        if len(self.unnumbered) < PIECES:
            self.unnumbered.append((table, seq, n))

    def add_damage(self, text: str) -> None:
        """Add a damaged part; beyond `DAMAGES` of them, add a single remark instead."""
        if len(self.damages) < DAMAGES:
            self.damages.append(text)
        elif len(self.damages) == DAMAGES:
            self.damages.append("more damaged parts, which are not listed")

    def extend(self, later: Segment) -> None:
        """Add a later part of the same segment."""
        self.size, self.modified = later.size, later.modified
        self.header = later.header or self.header
        self.rows += later.rows
        for damage in later.damages:
            self.add_damage(damage)
        self.lost_rows += later.lost_rows
        self.end_reason = later.end_reason or self.end_reason
        self.next_seq = later.next_seq
        self.complete = later.complete
        for table, seq, n in later.unnumbered:
            self.add_unnumbered(table, seq, n)


def header_facts(header: object) -> dict[str, Any]:
    """Return the fields of a header that describe the process and have a valid type.

    >>> header_facts({"role": "worker", "pid": 7, "host": ["odd"], "tables": {}})
    {'role': 'worker', 'pid': 7}
    """
    if not isinstance(header, Mapping):
        return {}
    facts = {name: header.get(name) for name in _FACTS}
    return {
        name: fact
        for name, fact in facts.items()
        if (isinstance(fact, str) and len(fact) <= NAME_CHARACTERS)
        or (isinstance(fact, (int, float)) and abs(fact) < 1 << 31)
    }


def foreign_header(header: Mapping[str, Any], run_id: str, process: str) -> str | None:
    """Return why a header does not belong to a process of a run; None if it does.

    Parameters
    ----------
    header : mapping
        Fields of the header; unknown ones are not compared.
    run_id : str
        Id of the run, by its manifest.
    process : str
        Id of the process, by the name of the file.

    Examples
    --------
    >>> foreign_header({"run": "0a1b", "process": "worker-1"}, "0a1b", "worker-1-copy")
    'is a copy of the segment of worker-1, or was renamed'
    """
    if header.get("run", run_id) != run_id:
        return f"belongs to another run, {header['run']}"
    if header.get("process", process) != process:
        return f"is a copy of the segment of {header['process']}, or was renamed"
    return None


def read_segment(
    run: Path,
    run_id: str,
    name: str,
    known: Segment | None,
    into: tuple[Mapping[str, Rows], Budget],
) -> Segment:
    """Read a segment, or the frames that were appended since it was compacted.

    Parameters
    ----------
    run : Path
        The run's folder.
    run_id : str
        Id of the run. The rows of a segment whose header names another run or another process
        than the file are not read: see `Segment.foreign`.
    name : str
        Name of the file.
    known : Segment or None
        The part of the segment that is in Parquet already; it is skipped.
    into : tuple of mapping of str to Rows and Budget
        Collects the rows, by table; rows of other tables are only counted. The memory that the
        rows may take.

    Returns
    -------
    Segment
        State of the part that was read now. A file that cannot be read is a damage.
    """
    path = run / SEGMENTS / name
    offset = 0 if known is None else known.size
    segment = Segment(path.stem, path, offset, 0.0)
    try:
        with open_inside(run, SEGMENTS, name) as file:
            stat = os.fstat(file.fileno())
            segment.size, segment.modified = stat.st_size, stat.st_mtime
            segment.next_seq = None if known is None else known.next_seq
            if known is not None and (known.size, known.modified) == (stat.st_size, stat.st_mtime):
                segment.complete, segment.host = known.complete, known.host
            elif stat.st_size:
                _read_frames(segment, run_id, _frames(file, known), offset, into)
            else:
                segment.add_damage("the file is empty")
    except OSError as error:
        segment.add_damage(f"cannot be read: {error.strerror or error}")
    cut = bool(segment.damages) and segment.damages[-1].endswith(CUT)
    if cut and segment_state(segment) == "recording":
        segment.damages.pop()  # the process is writing this frame right now
        segment.size = segment.complete or segment.size
    return segment


def _frames(file: BinaryIO, known: Segment | None) -> Iterator[tuple[int, bytes | Damage]]:
    """Yield the end and the payload of the header, and of each frame that may be new."""
    position = 0
    found = payloads(file)
    if known is not None and known.complete is not None:
        for payload in found:
            position += _length(payload)
            yield position, payload
            if not isinstance(payload, Damage):
                position = max(position, known.complete)
                found = payloads(file, position)
                break
    for payload in found:
        position += _length(payload)
        yield position, payload


def _length(payload: bytes | Damage) -> int:
    return payload.length if isinstance(payload, Damage) else len(payload) + FRAME_OVERHEAD


def _read_frames(
    segment: Segment,
    run_id: str,
    found: Iterable[tuple[int, bytes | Damage]],
    offset: int,
    into: tuple[Mapping[str, Rows], Budget],
) -> None:
    """Read the header, and the rows of the frames after an offset."""
    layout: Mapping[str, Sequence[str]] = {}
    for position, payload in found:
        if isinstance(payload, Damage):
            if position > offset:
                segment.add_damage(f"{payload.length} bytes at {payload.offset}: {payload.reason}")
            continue
        segment.complete = position
        if position <= offset and layout:
            continue
        try:
            body = unpack(payload, into[1])
            if isinstance(body, dict):
                layout = layout or layout_of(body)
                segment.header = segment.header or header_facts(body)
                host = segment.header.get("host")
                segment.host = host if isinstance(host, str) else None
                segment.foreign = foreign_header(segment.header, run_id, segment.process)
                if segment.foreign:
                    return
            elif position > offset:
                _add_frame(segment, body, layout, into)
        except FrameError as error:
            if position > offset:
                segment.add_damage(f"{len(payload)} bytes before {position}: {error}")
                segment.too_large |= isinstance(error, LargeFrameError)


def layout_of(header: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the columns of each table, from a header."""
    tables = header.get("tables")
    if not isinstance(tables, dict) or not all(
        isinstance(names, list) and {str}.issuperset(map(type, (table, *names)))
        for table, names in tables.items()
    ):
        raise FrameError("the header does not list the columns")
    return tables


def _add_frame(
    segment: Segment,
    body: Any,
    layout: Mapping[str, Sequence[str]],
    into: tuple[Mapping[str, Rows], Budget],
) -> None:
    if not layout:
        raise FrameError("the header is missing, and with it the names of the columns")
    rows, budget = into
    for table, seq, n, columns in list(decode(body, layout, budget)):
        expected = segment.next_seq
        if expected is not None and seq < expected:
            continue  # a duplicate: the frame was sent again because its reply was lost
        if expected is not None and seq > expected:
            segment.lost_rows += seq - expected
        segment.next_seq = seq + n
        segment.rows += n
        if table in rows:
            rows[table].extend(n, columns, segment.process, seq)
        if table in WITHOUT_SEQ:
            segment.add_unnumbered(table, seq, n)
        if table == "processes":
            ends = values_of(columns.get("exit_reason"), n)
            reasons = [reason for reason in ends if reason and isinstance(reason, str)]
            segment.end_reason = reasons[-1] if reasons else segment.end_reason


def segment_state(segment: Segment) -> str:
    """Return the state of the process that writes a segment.

    Returns
    -------
    str
        ``ended`` if it wrote its last row, ``recording`` if it is alive, ``cut`` if it was
        killed. For a process on another host, or in another pid namespace, the time since its
        last write decides: a recorded process takes samples more often than that.

    Examples
    --------
    >>> segment_state(Segment("worker-1", Path("worker-1.seg"), 0, 0.0, end_reason="done"))
    'ended'
    >>> segment_state(Segment("worker-1", Path("worker-1.seg"), 0, 0.0))
    'cut'
    """
    if segment.end_reason is not None:
        return "ended"
    alive = _alive(segment)
    if alive is not None:
        return "recording" if alive else "cut"
    interval = segment.header.get("sample_interval_seconds")
    limit = max(_SILENT_SECONDS, 5 * interval if isinstance(interval, (int, float)) else 0)
    return "recording" if time.time() - segment.modified < limit else "cut"


def may_grow(segment: Segment) -> bool:
    """Return whether a process may still append to its segment.

    True unless the process wrote its last row, or ended on this host: a process elsewhere may be
    alive however long it wrote nothing.
    """
    return segment.end_reason is None and _alive(segment) is not False


#: A process that wrote nothing for this long, though it samples twice a second, counts as killed.
_SILENT_SECONDS = 60


def _alive(segment: Segment) -> bool | None:
    """Return whether its process is alive; None if it ran on another host or pid namespace."""
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

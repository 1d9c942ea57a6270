"""Reading the rows that a process appends to its segment, frame by frame."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dask_strata.schema import RECORDED
from dask_strata.store.arrow import Rows
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.safe_files import open_inside
from dask_strata.store.segments.decode import decode, unpack
from dask_strata.store.segments.errors import FrameError
from dask_strata.store.segments.frames import FRAME_OVERHEAD, Damage, payloads
from dask_strata.store.segments.read import (
    Segment,
    foreign_header,
    header_facts,
    layout_of,
    segment_state,
)
from dask_strata.store.segments.values import values_of
from dask_strata.stream.batch import Batch, slices

#: Rows, and bytes of frames, that are read at once.
_ROWS = 1 << 14
_BYTES = 4 << 20


class Tail:
    """The segment of one process, read up to some frame.

    Parameters
    ----------
    run : Path
        The run's folder.
    run_id : str
        Id of the run.
    process : str
        Id of the process.
    tables : collection of str
        The wanted tables.
    start : int
        Number of the first wanted row.
    keep : bool, optional
        Whether the file stays open, so that it can be read after it was removed.

    Attributes
    ----------
    next_seq : int
        Number of the next row of any table.
    damaged_bytes : int
        Bytes that cannot be read, and were skipped.
    progressed : bool
        Whether the last call of `read` has read a frame.
    """

    def __init__(  # noqa: PLR0913  the facts of a segment
        self,
        run: Path,
        run_id: str,
        process: str,
        tables: Collection[str],
        start: int,
        *,
        keep: bool = False,
    ) -> None:
        self._run, self._run_id, self.process = run, run_id, process
        self._tables, self._start = tables, start
        self.next_seq = start
        self.damaged_bytes = 0
        self.progressed = False
        self._expected: int | None = None
        self._offset = 0
        #: Size of the file when its last frame was found to be incomplete.
        self._torn_size = 0
        self._layout: Mapping[str, Sequence[str]] = {}
        self._segment = Segment(process, run / SEGMENTS / f"{process}{SUFFIX}", 0, 0.0)
        self._keep = keep
        self._file: BinaryIO | None = None
        self._pieces: list[tuple[str, int, int]] = []

    @property
    def state(self) -> str:
        """ended, recording or cut, by the rows that were read and the processes that are alive."""
        with suppress(OSError):
            self._segment.modified = self._segment.path.lstat().st_mtime
        return "cut" if self._segment.foreign else segment_state(self._segment)

    @property
    def modified(self) -> float:
        """When the file was last written, in seconds since the epoch."""
        return self._segment.modified

    def has_more(self) -> bool:
        """Return whether the file has grown since it was read.

        Raises
        ------
        FileNotFoundError
            The file was removed: compaction does this after it wrote the rows as Parquet.
        """
        known = max(self._offset, self._torn_size)
        try:
            stat = self._segment.path.lstat()
        except FileNotFoundError:
            if self._file is None or os.fstat(self._file.fileno()).st_size <= known:
                raise
            return True
        self._segment.modified = stat.st_mtime
        return stat.st_size > known and not self._segment.foreign

    def read(self) -> Iterator[Batch]:
        """Yield the rows of the next frames, up to some thousand.

        The incomplete frame at the end of the file is left for the next call, unless the process
        has written its last row. One that counts as dead may go on: it is on another host, and was
        silent for long.

        Raises
        ------
        FileNotFoundError
            The file was removed.
        """
        rows: dict[str, Rows] = {}
        offset, start = self._offset, self._start
        with self._opened() as file:
            size = os.fstat(file.fileno()).st_size
            for payload in payloads(file, self._offset):
                if isinstance(payload, Damage):
                    at_end = payload.offset + payload.length >= size
                    if at_end and self.state != "ended":
                        self._torn_size = size  # the process is writing this frame
                        break
                    self._offset = payload.offset + payload.length
                    self.damaged_bytes += payload.length
                    continue
                self._offset += len(payload) + FRAME_OVERHEAD
                self._add(payload, rows)
                enough = sum(n for _, _, n in self._pieces) >= _ROWS
                if enough or self._offset - offset >= _BYTES or self._segment.foreign:
                    break
        self.progressed = self._offset > offset
        pieces, self._pieces = self._pieces, []
        found = {name: collected.table() for name, collected in rows.items()}
        for batch in slices(self.process, pieces, found, start):
            self.next_seq = batch.last_seq + 1
            yield batch
        self.next_seq = max(self._expected or 0, self.next_seq)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        file = self._file or open_inside(self._run, SEGMENTS, self._segment.path.name)
        if self._keep:
            self._file = file
            yield file
            return
        with file:
            yield file

    def _add(self, payload: bytes, rows: dict[str, Rows]) -> None:
        try:
            body = unpack(payload, Budget())
            if isinstance(body, dict):
                self._layout = self._layout or layout_of(body)
                self._segment.header = self._segment.header or header_facts(body)
                self._segment.foreign = foreign_header(
                    self._segment.header, self._run_id, self.process
                )
            elif self._layout:
                self._add_rows(body, rows)
        except FrameError:
            self.damaged_bytes += len(payload)

    def _add_rows(self, body: object, rows: dict[str, Rows]) -> None:
        for table, seq, n, columns in list(decode(body, self._layout, Budget())):
            if self._expected is not None and seq < self._expected:
                continue  # the frame was sent again because its reply was lost
            self._expected = seq + n
            if table in self._tables and seq + n > self._start:
                if table not in rows:
                    rows[table] = Rows(RECORDED[table])
                rows[table].extend(n, columns, self.process, seq)
                self._pieces.append((table, seq, n))
            if table == "processes":
                ends = values_of(columns.get("exit_reason"), n)
                reasons = [reason for reason in ends if reason and isinstance(reason, str)]
                if reasons:
                    self._segment.end_reason = reasons[-1]

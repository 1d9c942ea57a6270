"""Writing the segment of one process from the rows of messages, in whichever order they arrive."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dask_strata.brokers.json_rows import json_values
from dask_strata.brokers.message import Message
from dask_strata.importers.streams.seen import Seen
from dask_strata.importers.streams.wire_rows import wire_batch
from dask_strata.schema import RECORDED
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.segments.frames import Batch, Encoder

#: Rows, and bytes of their messages, that wait for a frame.
_ROWS, _BYTES = 4096, 1 << 20

_ROLE = re.compile(r"([a-z]+)-[0-9a-f]{8}")

_NS = 1_000_000_000

_SILENT_SECONDS = 120


class SegmentFile:
    """The segment of one process.

    A frame has rows with consecutive numbers only, so that frames can be put in order at the end.

    Parameters
    ----------
    folder : Path
        The run's folder.
    run_id : str
        Id of the run.
    process : str
        Id of the process: a plain name.

    Attributes
    ----------
    seen : Seen
        Numbers of the rows so far.
    rows : Counter of str
        Rows by table.
    duplicates : int
        Rows that had arrived before and were dropped.
    unusable : int
        Rows that cannot be part of a segment.
    waiting_bytes : int
        Bytes of the messages whose rows wait in memory.
    first_ns, last_ns : int or None
        Earliest and latest time of a row.
    """

    def __init__(self, folder: Path, run_id: str, process: str) -> None:
        self.process = process
        self._path = folder / SEGMENTS / f"{process}{SUFFIX}"
        role = _ROLE.fullmatch(process)
        facts = {"run": run_id, **({"role": role[1]} if role else {})}
        self._encoder = Encoder(process, facts)
        self._pieces: list[tuple[str, list[dict[str, Any]]]] = []
        self._n = 0
        self._first = self._next = 0
        self._frames: list[tuple[int, int, int]] = []
        self._size = 0
        self.seen = Seen()
        self.rows: Counter[str] = Counter()
        self.duplicates = self.unusable = self.waiting_bytes = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def add(self, message: Message) -> None:
        """Add the rows of a message that have not arrived before.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        table = str(message.table)
        for seq, row in _numbered(message):
            if self.seen.add(seq):
                self._append(table, seq, row)
            else:
                self.duplicates += 1
        self.waiting_bytes += len(message.data)
        if self._n >= _ROWS or self.waiting_bytes >= _BYTES:
            self.flush()

    def _append(self, table: str, seq: int, row: dict[str, Any]) -> None:
        if seq != self._next or not self._n:
            self.flush()
            self._first = seq
        if self._pieces and self._pieces[-1][0] == table:
            self._pieces[-1][1].append(row)
        else:
            self._pieces.append((table, [row]))
        self._next = seq + 1
        self._n += 1
        self.rows[table] += 1
        for name in ("time", "start", "stop"):
            at = row.get(name)
            if type(at) is int:
                self.first_ns = at if self.first_ns is None else min(at, self.first_ns)
                self.last_ns = at if self.last_ns is None else max(at, self.last_ns)

    def flush(self) -> None:
        """Write the rows that wait.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        if self._n:
            self._encoder.seq = self._first
            with self._path.open("ab") as file:
                for seq, frame in self._made([wire_batch(t, rows) for t, rows in self._pieces]):
                    if not self._size:
                        self._size += file.write(self._encoder.header())
                    self._frames.append((seq, self._size, len(frame)))
                    self._size += file.write(frame)
        self._pieces, self._n, self.waiting_bytes = [], 0, 0

    def _made(self, batches: list[Batch]) -> Iterator[tuple[int, bytes]]:
        """Yield frames of rows with their first number; rows that cannot be encoded are counted."""
        seq = self._encoder.seq
        try:
            frame = self._encoder.frame(batches)
        except Exception:  # noqa: BLE001  an odd value must cost only its own row
            if len(batches) > 1:
                parts = [[batch] for batch in batches]
            elif batches[0].n > 1:
                parts = [[half] for half in batches[0].halves()]
            else:
                self.unusable += 1
                self._encoder.seq += 1
                return
            for part in parts:
                yield from self._made(part)
            return
        yield seq, frame

    def finish(self) -> None:
        """Write the remaining rows, and put the frames in the order of their numbers.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        self.flush()
        if not self._size:
            return
        if self._frames != sorted(self._frames):
            self._sort()
        # The time of the last write is that of the last row, and not of late: readers take a
        # process without a last row that wrote in the last minute for one that is being recorded.
        last = min((self.last_ns or 0) / _NS, time.time() - _SILENT_SECONDS)
        os.utime(self._path, (last, last))

    def _sort(self) -> None:
        sorted_path = self._path.with_suffix(".sorted")
        with self._path.open("rb") as source, sorted_path.open("wb") as target:
            target.write(self._encoder.header())
            for _, offset, length in sorted(self._frames):
                source.seek(offset)
                target.write(source.read(length))
        sorted_path.replace(self._path)


def _numbered(message: Message) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a message with their numbers."""
    content = message.content
    if not isinstance(content, pa.RecordBatch):
        yield int(message.first or 0), content
        return
    seqs = content["seq"].to_pylist()
    rows = content.drop_columns(["seq"]) if len(content.schema) > 1 else None
    values = json_values(RECORDED[str(message.table)], rows) if rows is not None else ()
    if rows is None:
        values = ({} for _ in seqs)
    yield from zip(seqs, values, strict=True)

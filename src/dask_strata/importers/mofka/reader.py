"""Read and count the rows of the coupler's files, and set invalid rows aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import ImportedDataError
from dask_strata.importers.mofka.cells import ARROW, plain
from dask_strata.importers.mofka.columns import EXPECTED, FIELDS, NAMES, TRANSFER_ENDS
from dask_strata.importers.mofka.consumer import DamagedEvent, read_consumer
from dask_strata.importers.mofka.csv_blocks import Aside, Block, CsvFile
from dask_strata.importers.mofka.literals import USUAL, LiteralError, sizes
from dask_strata.importers.results import Progress
from dask_strata.store.bulk_writer import BulkRun


@dataclass
class SourceFile:
    """One of the coupler's files, and the counts of its rows.

    Attributes
    ----------
    path : Path
        The file.
    columns : list of str
        All its columns.
    unknown : list of str
        The columns that are not read.
    counts : Counter of str
        Number of rows read, resent, salvaged and set_aside.
    problem : str or None
        Why no row of it can be read.
    """

    path: Path
    columns: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    problem: str | None = None


class CouplerReader:
    """Reads the coupler's files, and writes the rows that it sets aside to a run.

    Parameters
    ----------
    files : mapping of str to Path
        The files by role.
    run : BulkRun
        Receives the rows that cannot be understood, in its folder `aside`.
    strict : bool
        Whether such a row is an error.
    salvage : bool
        Whether to restore damaged events where possible.
    progress : Progress
        Called with the bytes read so far and the bytes in total.

    Attributes
    ----------
    sources : dict of str to SourceFile
        The files by role, with their counts.
    lost : Counter of str
        Damaged events that could not be restored, by kind.
    first_ns : int or None
        Earliest time of a row so far, in nanoseconds since the epoch.
    origin : str or None
        Address of the stream whose events the files have.

    Raises
    ------
    OSError
        A file cannot be read.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        run: BulkRun,
        *,
        strict: bool,
        salvage: bool,
        progress: Progress,
    ) -> None:
        self.sources = {role: SourceFile(path) for role, path in files.items()}
        self.lost: Counter[str] = Counter()
        self.first_ns: int | None = None
        self.origin: str | None = None
        self._run = run
        self._strict = strict
        self._progress = progress
        self._total = sum(path.stat().st_size for path in files.values())
        self._read = 0
        self._salvaged: dict[str, list[DamagedEvent]] = {}
        if "consumer" in files:
            self._read_consumer(self.sources["consumer"], salvage=salvage)

    def blocks(self, role: str) -> Iterator[Block]:
        """Yield the rows of a file, then the restored events that belong to it.

        The tables have the known columns of the file, and `file`, `line` and `cut`: whether the
        last value of a row may be incomplete.
        """
        source = self.sources.get(role)
        if source is not None:
            file = CsvFile(source.path, FIELDS[role])
            source.columns, source.unknown = file.names, file.unknown
            if file.missing:
                source.problem = f"has no column {', '.join(file.missing)}"
            if not file.names:
                empty = not source.path.stat().st_size
                source.problem = "is empty" if empty else "has no readable header"
            for block in file.blocks():
                source.counts["rows"] += len(block.table) + len(block.aside)
                source.counts["salvaged"] += _cut(block.table)
                yield self._checked(role, source, block)
                self._advance(len(block.data))
        if role in self._salvaged:
            rows = self._salvaged_rows(role)
            self._note_time(rows)
            yield Block(rows, [])

    def rows(self, role: str) -> Iterator[pa.Table]:
        """Yield the valid rows of `blocks`."""
        for block in self.blocks(role):
            if len(block.table):
                yield block.table

    def refuse(self, role: str, block: Block, reasons: dict[int, str]) -> pa.Table:
        """Set rows of a block aside, given as reasons by line, and return the others."""
        kept = block.without(reasons)
        if reasons:
            source = self.sources[role]
            source.counts["salvaged"] -= _cut(block.table) - _cut(kept.table)
            self._set_aside(source, kept.aside[len(block.aside) :])
        return kept.table

    def note_resent(self, files: pa.ChunkedArray) -> None:
        """Count duplicate transfers, given as the names of their files."""
        for name, n in Counter(files.cast(pa.string()).to_pylist()).items():
            for source in self.sources.values():
                if source.path.name == name:
                    source.counts["resent"] += n

    def _checked(self, role: str, source: SourceFile, block: Block) -> Block:
        self._set_aside(source, block.aside)
        if role == "worker_transfer" and len(block.table):
            block = replace(block, table=self.refuse(role, block, _bad_transfers(block.table)))
        name = pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), len(block.table)), [source.path.name]
        )
        table = block.table.append_column("file", name)
        self._note_time(table)
        return replace(block, table=table, aside=[])

    def _set_aside(self, source: SourceFile, rows: list[Aside]) -> None:
        if not rows:
            return
        name = source.path.name
        if self._strict:
            raise ImportedDataError(
                f"{source.path}, line {rows[0].line}: {rows[0].reason}.",
                hint="Without --strict such rows are set aside, counted and reported.",
            )
        source.counts["set_aside"] += len(rows)
        for row in rows:
            self._run.set_aside(name, row.data if row.data.endswith(b"\n") else row.data + b"\n")
        self._run.write_rows(
            "set_aside",
            [
                {
                    "file": name,
                    "line": row.line,
                    "lines": row.lines,
                    "reason": row.reason,
                    "process": "import",
                }
                for row in rows
            ],
        )

    def _read_consumer(self, source: SourceFile, *, salvage: bool) -> None:
        for event in read_consumer(source.path):
            source.counts["rows"] += 1
            if salvage and event.role is not None:
                source.counts["salvaged"] += 1
                self._salvaged.setdefault(event.role, []).append(event)
            else:
                self.lost[event.kind] += 1
        self._advance(source.path.stat().st_size)

    def _salvaged_rows(self, role: str) -> pa.Table:
        events = self._salvaged[role]
        n = len(events)
        columns: dict[str, Any] = {
            f.name: pa.array([e.values[f.name] for e in events], plain(f)).cast(ARROW[f.kind])
            for f in FIELDS[role]
        }
        columns["line"] = pa.array([e.line for e in events], pa.int64())
        columns["cut"] = pa.array([True] * n, pa.bool_())
        columns["file"] = pa.array([NAMES["consumer"][0]] * n).dictionary_encode()
        return pa.table(columns)

    def _note_time(self, rows: pa.Table) -> None:
        if len(rows) and "time" in rows.column_names:
            first = pc.min(rows["time"].cast(pa.int64())).as_py()
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)

    def _advance(self, size: int) -> None:
        self._read += size
        self._progress(min(self._read, self._total), self._total)

    def losses(self, folder: Path) -> Iterator[dict[str, Any]]:
        """Yield a row of ``losses`` for each missing file, unread column and kind of lost event."""
        for role in EXPECTED:
            if role not in self.sources:
                names = " or ".join(NAMES[role])
                yield {
                    "what": names,
                    "reason": "the file does not exist",
                    "where": self.origin or str(folder),
                }
        for source in self.sources.values():
            where = self.origin or str(source.path)
            if source.problem:
                yield {"what": source.path.name, "reason": source.problem, "where": where}
            for column in source.unknown:
                yield {
                    "what": f"column {column} of {source.path.name}",
                    "count": source.counts["rows"],
                    "reason": "left out: its meaning is unknown",
                    "where": where,
                }
        for kind, count in sorted(self.lost.items()):
            yield {
                "what": f"{_KINDS.get(kind, kind)} of consumer.o",
                "count": count,
                "reason": "damaged before the coupler wrote them",
                "where": str(self.sources["consumer"].path),
            }

    def imports(self) -> Iterator[dict[str, Any]]:
        """Yield a row of ``imports`` for each file."""
        for source in self.sources.values():
            counts = source.counts
            lost = sum(self.lost.values()) if source is self.sources.get("consumer") else 0
            yield {
                "file": source.path.name,
                "folder": self.origin or str(source.path.parent),
                "rows": counts["rows"],
                "kept": counts["rows"] - counts["resent"] - counts["set_aside"] - lost,
                "resent": counts["resent"],
                "salvaged": counts["salvaged"],
                "set_aside": counts["set_aside"],
                "size_bytes": source.path.stat().st_size,
                "columns": json.dumps(source.columns, ensure_ascii=False),
            }


_KINDS = {
    "fragment": "fragments of events",
    "log_event": "log events",
    "unknown": "events of an unknown kind",
    "scheduler_transition": "scheduler transitions",
    "worker_transition": "worker transitions",
    "worker_transfer": "transfers",
}


def _cut(rows: pa.Table) -> int:
    """Return the number of rows that may lack digits."""
    return pc.sum(rows["cut"]).as_py() or 0


def _bad_transfers(rows: pa.Table) -> dict[int, str]:
    """Return the reasons to set transfers aside, by line."""
    reasons: dict[int, str] = {}
    known = pc.is_in(rows["type"].cast(pa.string()), pa.array(TRANSFER_ENDS))
    for line in rows["line"].filter(pc.invert(known)).to_pylist():
        reasons[line] = "type is neither incoming_transfer nor outgoing_transfer"
    unusual = rows.filter(pc.invert(pc.match_substring_regex(rows["keys"], USUAL)))
    for line, cell in zip(unusual["line"].to_pylist(), unusual["keys"].to_pylist(), strict=True):
        try:
            sizes(cell)
        except LiteralError as error:
            reasons[line] = str(error)
    return reasons

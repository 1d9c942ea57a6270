"""Read the rows of a large CSV file, block by block, with the line of each.

Arrow reads a block at once. If Arrow reports an error, or another number of rows than the block has
lines, the block is read again row by row. Valid rows have the same values either way. Invalid
rows are set aside with their line and the reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dask_strata.importers.mofka.cells import ARROW, Field, converted, parsed_as, plain, value

#: Bytes that are read at a time.
BLOCK_BYTES = 8 << 20

#: Bytes without an end of a row that are held in memory; beyond, the block is cut there.
MAX_ROW_BYTES = 256 << 20

#: Lines that one quoted cell may span.
MAX_LINES = 1000

_BOM = b"\xef\xbb\xbf"

#: Year 2001, in nanoseconds. If a file ends within a row, an earlier time in it lacks digits.
_TEN_DIGITS = 1_000_000_000 * 1_000_000_000


@dataclass(frozen=True)
class Aside:
    """A row that could not be understood.

    Attributes
    ----------
    line : int
        Its first line in the file.
    lines : int
        Number of its lines.
    reason : str
        Why it was set aside.
    data : bytes
        The row as it is in the file.
    """

    line: int
    lines: int
    reason: str
    data: bytes


@dataclass(frozen=True)
class Block:
    """Some rows of a file.

    Attributes
    ----------
    table : pyarrow.Table
        A column for each known field of the file, `line`, and `cut`: whether the file ends
        within this row or without a line end after it.
    aside : list of Aside
        Rows that could not be understood.
    data : bytes
        The part of the file with these rows.
    first_line : int
        Line at which `data` begins.
    width : int, optional
        Number of cells in a row.
    """

    table: pa.Table
    aside: list[Aside]
    data: bytes = b""
    first_line: int = 0
    width: int | None = None

    def without(self, reasons: dict[int, str]) -> Block:
        """Return the block with more rows set aside, given as reasons by line."""
        if not reasons:
            return self
        lines = pa.array(reasons.keys(), pa.int64())
        table = self.table.filter(pc.invert(pc.is_in(self.table["line"], lines)))
        more = [
            Aside(self.first_line + number, n, reasons[self.first_line + number], data)
            for number, n, data, _ in _records(self.data, self.width)
            if self.first_line + number in reasons
        ]
        return replace(self, table=table, aside=[*self.aside, *more])


class CsvFile:
    """A CSV file with a header.

    Parameters
    ----------
    path : Path
        The file.
    fields : sequence of Field
        The known columns. The file may have them in any order, and others between them.

    Attributes
    ----------
    names : list of str
        All columns of the file, in order.
    fields : list of Field
        The known columns that the file has, in its order.
    missing : list of str
        Required columns that the file lacks.
    unknown : list of str
        Columns that are not read: names that are not known, and repeated names.

    Raises
    ------
    OSError
        The file cannot be read.
    """

    def __init__(self, path: Path, fields: Sequence[Field]) -> None:
        self.path = path
        with path.open("rb") as file:
            header = file.readline(MAX_ROW_BYTES)
        self._start = len(header)
        self.names = _names(header)
        known = {field.name: field for field in fields}
        self.fields = [known[n] for n in dict.fromkeys(self.names) if n in known]
        self.missing = [f.name for f in fields if f.required and f.name not in self.names]
        repeated = (n for i, n in enumerate(self.names) if n in self.names[:i])
        self.unknown = [n for n in self.names if n and n not in known]
        self.unknown += [n for n in repeated if n in known]

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in order. Raises OSError."""
        line = 2
        with self.path.open("rb") as file:
            file.seek(self._start)
            for piece in _pieces(file):
                n = piece.count(b"\n")
                yield self._block(piece, line, n)
                line += n

    def _block(self, piece: bytes, line: int, n: int) -> Block:
        table = None if self.missing else self._by_arrow(piece, line, n)
        if table is not None:
            return Block(table, [], piece, line, len(self.names))
        rows, aside = self._row_by_row(piece, line)
        return Block(rows, aside, piece, line, len(self.names))

    def _by_arrow(self, piece: bytes, line: int, n: int) -> pa.Table | None:
        """Return the rows of a block of n lines; None if it has to be read row by row."""
        if not piece.endswith(b"\n") or b"\0" in piece:
            return None
        if b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n"):
            return None  # Arrow ends a row at a lone carriage return
        names = [f"{i} {name}" for i, name in enumerate(self.names)]
        chosen = [names[self.names.index(field.name)] for field in self.fields]
        try:
            found = pa.csv.read_csv(
                pa.BufferReader(piece),
                pa.csv.ReadOptions(column_names=names, block_size=len(piece) + 1),
                pa.csv.ParseOptions(newlines_in_values=True),
                pa.csv.ConvertOptions(
                    column_types={
                        c: parsed_as(f) for c, f in zip(chosen, self.fields, strict=True)
                    },
                    include_columns=chosen,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            ).combine_chunks()
            if len(found) != n:
                return None
            columns = [
                converted(field, column.chunk(0) if column.num_chunks else column)
                for field, column in zip(self.fields, found.columns, strict=True)
            ]
        except (pa.ArrowException, ValueError):
            return None
        return self._table(
            columns,
            pa.array(range(line, line + n), pa.int64()),
            pa.repeat(pa.scalar(value=False), n),
        )

    def _row_by_row(self, piece: bytes, line: int) -> tuple[pa.Table, list[Aside]]:
        at = [self.names.index(field.name) for field in self.fields]
        rows: list[list[Any]] = []
        lines: list[int] = []
        aside = []
        cut = False
        for number, n, data, cells in _records(piece, len(self.names)):
            last = not data.endswith(b"\n")
            row = self._values(cells, at, last=last)
            if isinstance(row, str):
                reason = "the file ends in the middle of this row" if last else row
                aside.append(Aside(line + number, n, reason, data))
                continue
            cut = last
            rows.append(row)
            lines.append(line + number)
        columns = [
            pa.array([row[k] for row in rows], plain(field)).cast(ARROW[field.kind])
            for k, field in enumerate(self.fields)
        ]
        cuts = [False] * len(rows)
        if cut:
            cuts[-1] = True
        return self._table(columns, pa.array(lines, pa.int64()), pa.array(cuts, pa.bool_())), aside

    def _values(self, cells: list[str] | str, at: list[int], *, last: bool) -> list[Any] | str:
        """Return the values of a row, or the reason to set it aside."""
        if self.missing:
            return f"the file has no column {', '.join(self.missing)}"
        if isinstance(cells, str):
            return cells
        chosen = [cells[k] for k in at]
        try:
            "".join(chosen).encode()
            row = [value(f, cell) for f, cell in zip(self.fields, chosen, strict=True)]
        except UnicodeEncodeError:
            return "not UTF-8"
        except ValueError as error:
            return str(error)
        for field, found in zip(self.fields, row, strict=True):
            if last and field.kind == "time" and found is not None and found < _TEN_DIGITS:
                return f"{field.name} lacks digits"
        return row

    def _table(self, columns: list[Any], line: pa.Array, cut: pa.Array) -> pa.Table:
        names = [field.name for field in self.fields]
        return pa.table([*columns, line, cut], names=[*names, "line", "cut"])


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file in pieces of whole rows."""
    rest = b""
    while data := file.read(BLOCK_BYTES):
        piece = rest + data
        end = _end_of_rows(piece)
        if not end and len(piece) > MAX_ROW_BYTES:
            end = len(piece)
        if end:
            yield piece[:end]
        rest = piece[end:]
    if rest:
        yield rest


def _names(header: bytes) -> list[str]:
    """Return the names in a header; an empty list if it is no CSV row."""
    text = header.removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")
    try:
        return [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _end_of_rows(piece: bytes) -> int:
    """Return the position after the last complete row; a quoted cell may contain line ends."""
    last = end = piece.rfind(b"\n") + 1
    in_quotes = piece.count(b'"', 0, end) % 2
    lines = 0
    while in_quotes:
        start = piece.rfind(b"\n", 0, piece.rfind(b'"', 0, end)) + 1
        in_quotes ^= piece.count(b'"', start, end) % 2
        lines += piece.count(b"\n", start, end)
        if lines > MAX_LINES:
            return last
        end = start
    return end


def _records(piece: bytes, width: int | None) -> Iterator[tuple[int, int, bytes, list[str] | str]]:
    """Yield the rows of a piece: line, number of lines, bytes, and cells or the reason for none.

    A row that cannot be read is taken as one line, so that a stray quote costs only its own row.
    """
    lines = io.BytesIO(piece).readlines()
    limit = csv.field_size_limit(MAX_ROW_BYTES)
    try:
        i = 0
        while i < len(lines):
            n, cells = _record(lines, i, width)
            if cells is not None:
                yield i, n, b"".join(lines[i : i + n]), cells
            i += n
    finally:
        csv.field_size_limit(limit)


def _record(lines: list[bytes], i: int, width: int | None) -> tuple[int, list[str] | str | None]:
    """Return the number of lines of the row at line i, and its cells; None for an empty line."""
    if not lines[i].strip(b"\r\n"):
        return 1, None
    for limit in (1, MAX_LINES):
        candidates = lines[i : i + limit]
        # Two stray quotes could join several rows: strict reading refuses text after a quote.
        reader = csv.reader(
            chain((line.decode("utf-8", "surrogateescape") for line in candidates), [""]),
            strict=limit > 1,
        )
        try:
            cells = next(reader)
        except (csv.Error, StopIteration):
            return 1, "not a CSV row" if limit == 1 else "a quote is not closed"
        n = reader.line_num
        if n <= len(candidates):
            break
    else:
        return 1, "a quote is not closed"
    if b"\0" in lines[i] or (n > 1 and any("\0" in cell for cell in cells)):
        return 1, "contains NUL bytes"
    if width is not None and len(cells) != width:
        return 1, f"has {len(cells)} cells, but the header has {width}"
    return n, cells

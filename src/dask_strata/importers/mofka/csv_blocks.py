"""Rows of a large CSV file, block by block, with the line of each.

A block is read by Arrow at once. Where Arrow finds anything odd in it, or finds another
number of rows than there are lines, that block is read row by row: what can be understood
is the same, and what cannot is set aside with its line and the reason.
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

BLOCK_BYTES = 8 << 20

#: A row without an end may be so long; it is set aside then.
MAX_ROW_BYTES = 256 << 20

#: A quoted cell may go over so many lines.
MAX_LINES = 1000

_BOM = b"\xef\xbb\xbf"

#: A row that its file ends in may lack digits. A time before this (in 2001) lacks some for sure.
_TEN_DIGITS = 1_000_000_000 * 1_000_000_000


@dataclass(frozen=True)
class Aside:
    """A row that could not be understood: where it is, why not, and its bytes."""

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
        One column a field that the file has, `line`, and `cut`: whether the file ends in the
        middle of this row, or at least without an end of line.
    aside : list of Aside
        Rows that could not be understood.
    data : bytes
        The part of the file that these rows are, which begins at line `first_line`.
    width : int, optional
        How many cells a row has.
    """

    table: pa.Table
    aside: list[Aside]
    data: bytes = b""
    first_line: int = 0
    width: int | None = None

    def without(self, reasons: dict[int, str]) -> Block:
        """Return the block with some more rows set aside: the reason by line."""
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
        Columns that are wanted; they may be in any order, and others between them.

    Attributes
    ----------
    names : list of str
        The columns in their order.
    missing, unknown : list of str
        Required fields that the file has not; columns that nobody asked for.

    Raises
    ------
    OSError
        It cannot be read.
    """

    def __init__(self, path: Path, fields: Sequence[Field]) -> None:
        self.path = path
        with path.open("rb") as file:
            header = file.readline(MAX_ROW_BYTES)
        self._start = len(header)
        self.names = _names(header)
        wanted = {field.name: field for field in fields}
        self.fields = [wanted[n] for n in dict.fromkeys(self.names) if n in wanted]
        self.missing = [f.name for f in fields if f.required and f.name not in self.names]
        again = (n for i, n in enumerate(self.names) if n in self.names[:i])
        self.unknown = [n for n in self.names if n and n not in wanted]
        self.unknown += [n for n in again if n in wanted]

    def blocks(self) -> Iterator[Block]:
        """Yield all rows, in their order. Raises OSError."""
        line = 2
        with self.path.open("rb") as file:
            file.seek(self._start)
            for piece in _pieces(file):
                n = piece.count(b"\n")
                yield self._block(piece, line, n)
                line += n

    def _block(self, piece: bytes, line: int, n: int) -> Block:
        table = None if self.missing else self._clean(piece, line, n)
        if table is not None:
            return Block(table, [], piece, line, len(self.names))
        rows, aside = self._row_by_row(piece, line)
        return Block(rows, aside, piece, line, len(self.names))

    def _clean(self, piece: bytes, line: int, n: int) -> pa.Table | None:
        """Return the rows of a block of n lines in which nothing is odd; else null."""
        if not piece.endswith(b"\n") or b"\0" in piece:
            return None
        if b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n"):
            return None  # Arrow takes these for ends of rows
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
        places: list[int] = []
        aside = []
        cut = False
        for number, n, data, cells in _records(piece, len(self.names)):
            last = not data.endswith(b"\n")
            row = self._values(cells, at, last=last)
            if isinstance(row, str):
                reason = "the file ends in the middle of it" if last else row
                aside.append(Aside(line + number, n, reason, data))
                continue
            cut = last
            rows.append(row)
            places.append(line + number)
        columns = [
            pa.array([row[k] for row in rows], plain(field)).cast(ARROW[field.kind])
            for k, field in enumerate(self.fields)
        ]
        marks = [False] * len(rows)
        if cut:
            marks[-1] = True
        return self._table(
            columns, pa.array(places, pa.int64()), pa.array(marks, pa.bool_())
        ), aside

    def _values(self, cells: list[str] | str, at: list[int], *, last: bool) -> list[Any] | str:
        """Return the values of a row, or why it has none."""
        if self.missing:
            return f"its file has no column {', '.join(self.missing)}"
        if isinstance(cells, str):
            return cells
        chosen = [cells[k] for k in at]
        try:
            "".join(chosen).encode()
            row = [value(f, cell) for f, cell in zip(self.fields, chosen, strict=True)]
        except UnicodeEncodeError:
            return "it is not UTF-8"
        except ValueError as error:
            return str(error)
        for field, found in zip(self.fields, row, strict=True):
            if last and field.kind == "time" and found is not None and found < _TEN_DIGITS:
                return f"{field.name} is cut"
        return row

    def _table(self, columns: list[Any], line: pa.Array, cut: pa.Array) -> pa.Table:
        names = [field.name for field in self.fields]
        return pa.table([*columns, line, cut], names=[*names, "line", "cut"])


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file in pieces that end where a row ends."""
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
    """Return the names in a header; none, if it is no row of CSV."""
    text = header.removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")
    try:
        return [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _end_of_rows(piece: bytes) -> int:
    """Return where the last row ends that is whole; a quoted cell may have line ends in it."""
    last = end = piece.rfind(b"\n") + 1
    odd = piece.count(b'"', 0, end) % 2
    lines = 0
    while odd:
        start = piece.rfind(b"\n", 0, piece.rfind(b'"', 0, end)) + 1
        odd ^= piece.count(b'"', start, end) % 2
        lines += piece.count(b"\n", start, end)
        if lines > MAX_LINES:
            return last
        end = start
    return end


def _records(piece: bytes, width: int | None) -> Iterator[tuple[int, int, bytes, list[str] | str]]:
    """Yield the rows of a piece: first line, lines, bytes, and the cells or why there are none.

    A row that cannot be read is one line, so that the rows behind a stray quote are not lost.
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
    """Return how many lines the row at line i is, and its cells; null for an empty line."""
    if not lines[i].strip(b"\r\n"):
        return 1, None
    for most in (1, MAX_LINES):
        some = lines[i : i + most]
        # Rows that two stray quotes seem to make one of are told by what follows the second.
        reader = csv.reader(
            chain((line.decode("utf-8", "surrogateescape") for line in some), [""]),
            strict=most > 1,
        )
        try:
            cells = next(reader)
        except (csv.Error, StopIteration):
            return 1, "it is no row of CSV" if most == 1 else "a quote is not closed"
        n = reader.line_num
        if n <= len(some):
            break
    else:
        return 1, "a quote is not closed"
    if b"\0" in lines[i] or (n > 1 and any("\0" in cell for cell in cells)):
        return 1, "it has NUL bytes"
    if width is not None and len(cells) != width:
        return 1, f"it has {len(cells)} cells, the header {width}"
    return n, cells

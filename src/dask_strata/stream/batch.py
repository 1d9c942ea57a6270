"""Rows of one table of one process, in the order in which they were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.schema import WITHOUT_SEQ

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Rows of one table.

    Attributes
    ----------
    table : str
        Name of the table.
    process : str or None
        Id of the process that recorded the rows; None for a derived table.
    first_seq, last_seq : int
        Numbers of the first and the last row. A process numbers the rows of all its tables
        together, without gaps; rows of a derived table are counted from 0.
    rows : pyarrow.RecordBatch
        The rows.
    """

    table: str
    process: str | None
    first_seq: int
    last_seq: int
    rows: pa.RecordBatch

    @property
    def is_consecutive(self) -> bool:
        """Whether no row of another table is between these rows."""
        return bool(self.last_seq - self.first_seq + 1 == self.rows.num_rows)

    @property
    def seqs(self) -> pa.Array:
        """The number of each row, also of tables that have no column ``seq``."""
        if not self.is_consecutive:
            return self.rows["seq"]
        return pa.array(np.arange(self.first_seq, self.last_seq + 1))


def joins(table: str, end: int, seq: int) -> bool:
    """Return whether a batch that ends before one number may continue at another.

    Rows of a table without a column ``seq`` have only the number of the first row.
    """
    return end == seq or table not in WITHOUT_SEQ


def slices(
    process: str,
    pieces: Iterable[tuple[str, int, int]],
    rows: dict[str, pa.Table],
    start: int,
) -> Iterator[Batch]:
    """Yield the rows of tables of one process in the order of their numbers.

    Parameters
    ----------
    process : str
        Id of the process.
    pieces : iterable of tuple of str, int and int
        Table, number of the first row and number of rows of each piece, in order.
    rows : dict of str to pyarrow.Table
        The rows of these pieces, by table.
    start : int
        Number of the first wanted row.
    """
    whole = {name: one_batch(table) for name, table in rows.items()}
    at = dict.fromkeys(rows, 0)
    held: tuple[str, int, int, int, int] | None = None  # table, first, end, offset, length
    for table, seq, n in pieces:
        skip = min(max(0, start - seq), n)
        offset = at[table] + skip
        at[table] += n
        if skip == n:
            continue
        first, length = seq + skip, n - skip
        if held is not None and held[0] == table and joins(table, held[2], first):
            held = (table, held[1], seq + n, held[3], held[4] + length)
            continue
        if held is not None:
            yield _made(process, held, whole)
        held = (table, first, seq + n, offset, length)
    if held is not None:
        yield _made(process, held, whole)


def _made(
    process: str, held: tuple[str, int, int, int, int], whole: dict[str, pa.RecordBatch]
) -> Batch:
    table, first, end, offset, length = held
    return Batch(table, process, first, end - 1, whole[table].slice(offset, length))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one record batch."""
    found = table.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], table.schema)


#: Yields rows of one table with their numbers, in order.
Chunks = Iterator[tuple[Ints, pa.RecordBatch]]


def merged(process: str, chunks: Sequence[tuple[str, Chunks]]) -> Iterator[Batch]:
    """Yield the rows of several tables of one process in the order of their numbers.

    Parameters
    ----------
    process : str
        Id of the process.
    chunks : sequence of tuple of str and iterator
        Name of each table, and its rows in order.
    """
    heads = [head for name, found in chunks if (head := _Head(name, found)).load()]
    while heads:
        head = min(heads, key=_Head.seq)
        until = min((other.seq() for other in heads if other is not head), default=None)
        yield from head.take(process, until)
        if not head.load():
            heads.remove(head)


class _Head:
    """The next rows of one table."""

    def __init__(self, table: str, chunks: Chunks) -> None:
        self._table, self._chunks = table, chunks
        self._seqs: Ints = np.empty(0, np.int64)
        self._rows: pa.RecordBatch | None = None
        self._at = 0

    def load(self) -> bool:
        """Load the next rows if there are none; return whether there are some."""
        while self._at == len(self._seqs):
            found = next(self._chunks, None)
            if found is None:
                return False
            self._seqs, self._rows = found
            self._at = 0
        return True

    def seq(self) -> int:
        """Return the number of the next row."""
        return int(self._seqs[self._at])

    def take(self, process: str, until: int | None) -> Iterator[Batch]:
        """Yield the loaded rows with numbers below a limit."""
        stop = len(self._seqs) if until is None else int(np.searchsorted(self._seqs, until))
        stop = max(stop, self._at + 1)
        ends = [stop]
        if self._table in WITHOUT_SEQ:
            gaps = np.flatnonzero(np.diff(self._seqs[self._at : stop]) != 1) + 1 + self._at
            ends = [*gaps.tolist(), stop]
        for end in ends:
            part = self._rows.slice(self._at, end - self._at)  # type: ignore[union-attr]  # loaded
            yield Batch(self._table, process, self.seq(), int(self._seqs[end - 1]), part)
            self._at = end

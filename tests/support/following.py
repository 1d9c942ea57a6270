"""The rows that `follow` yields, and those that the files of a run have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dask_strata.schema import RECORDED
from dask_strata.store.reader import read_record
from dask_strata.stream.batch import Batch

Row = tuple[Any, ...]


class Followed:
    """Rows by table and process, in the order in which they were yielded."""

    def __init__(self, start: dict[str, int] | None = None) -> None:
        self.next = dict(start or {})
        self.rows: dict[tuple[str, str | None], list[tuple[int, Row]]] = defaultdict(list)

    def add(self, batches: Iterable[Batch], limit: int | None = None) -> None:
        """Add batches, up to a number of them; their rows follow those before."""
        for i, batch in enumerate(batches):
            if i == limit:
                break
            expected = self.next.get(str(batch.process), 0)
            assert batch.first_seq >= expected, (batch, expected)
            seqs = batch.seqs.to_pylist()
            assert (seqs[0], seqs[-1]) == (batch.first_seq, batch.last_seq)
            assert seqs == sorted(set(seqs))
            self.next[str(batch.process)] = batch.last_seq + 1
            rows = plain(batch.rows.to_pylist())
            self.rows[batch.table, batch.process] += zip(seqs, rows, strict=True)

    def contents(self) -> dict[tuple[str, str | None], list[Row]]:
        """Return the rows without their numbers."""
        return {place: [row for _, row in rows] for place, rows in self.rows.items()}


def plain(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """Return rows as tuples that can be compared."""
    return [tuple(repr(value) for value in row.values()) for row in rows]


def recorded(folder: Path) -> dict[tuple[str, str | None], list[Row]]:
    """Return the rows of a run's files by table and process, read by another way."""
    found: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for name, rows in read_record(folder).tables.items():
        assert name in RECORDED
        for row in rows.to_pylist():
            by_reader = name == "losses" and row["seq"] == 0  # what the reader itself found
            if not by_reader:
                found[name, row["process"]] += plain([row])
    return found

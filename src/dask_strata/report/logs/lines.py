"""Entries of logs as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dask_strata.analysis.logs import Entries
from dask_strata.report.words import count, visible
from dask_strata.run.table_view import microseconds

#: Columns of a line, with their widths.
_WIDTHS = (("where", 16), ("level", 8), ("logger", 21))


def entry_lines(entries: Entries) -> Iterator[str]:
    """Yield the lines of entries: time, process, level, logger or stream, message.

    Further lines of a message, and the traceback that came with it, follow indented.

    Parameters
    ----------
    entries : Entries
        The entries.
    """
    for batch in entries.rows.to_batches(max_chunksize=10_000):
        for row in microseconds(batch_table(batch)).to_pylist():
            yield from lines_of(row)


def batch_table(batch: Any) -> Any:
    """Return a batch of rows as a table."""
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def lines_of(row: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one entry.

    Parameters
    ----------
    row : dict
        A row of the table ``logs``.
    """
    first, *others = (row["message"] or "").split("\n")
    values = {
        "where": where_of(row),
        "level": row["level"] or "–",
        "logger": row["logger"] or row["stream"] or "–",
    }
    columns = "  ".join(visible(values[name]).ljust(width) for name, width in _WIDTHS)
    yield f"{row['time']:%Y-%m-%d %H:%M:%S.%f}  {columns}  {visible(first)}".rstrip()
    for line in (*others, *(row["exception"] or "").split("\n")):
        if line:
            yield f"    {visible(line)}"


def where_of(row: dict[str, Any]) -> str:
    """Return the process of an entry in few characters: its role, and the worker's name.

    Parameters
    ----------
    row : dict
        A row of the table ``logs``.
    """
    name = row["name"] or row["worker"]
    if row["role"] == "worker":
        return f"worker {name}" if name else "worker"
    return f"{row['role']} {name}" if name and row["role"] == "nanny" else row["role"] or "–"


def note_of(entries: Entries) -> str:
    """Return the note below the entries: how many there are, and what is missing.

    Parameters
    ----------
    entries : Entries
        The entries.
    """
    shown, total = len(entries.rows), entries.total
    of_all = "" if shown == total else f" of {total:,}"
    return "\n".join([f"{shown:,}{of_all} entries", *_missing(entries)])


def _missing(entries: Entries) -> Iterable[str]:
    if entries.left_out:
        yield "logs were left out of this record (leave-out: logs)"
    elif not entries.total:
        yield "no process logged or printed anything, or the run was recorded by an earlier version"
    for what, n, reason in entries.lost:
        noun = "line of output" if what == "output_lines" else "log record"
        lost = f"an unknown number of {noun}s" if n is None else count(n, noun)
        yield visible(f"missing: {lost}: {reason}")

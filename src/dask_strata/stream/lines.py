"""Rows of a run that is followed, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.brokers.json_rows import column_kinds, json_text, json_values
from dask_strata.brokers.message import encode
from dask_strata.report.words import visible
from dask_strata.schema import RECORDED, TABLES
from dask_strata.stream.batch import Batch

#: Characters of a value in a line for people.
_VALUE_CHARACTERS = 60


def json_lines(run_id: str, batch: Batch) -> Iterator[str]:
    """Yield a JSON object for each row: the messages of a stream, also of derived tables.

    Parameters
    ----------
    run_id : str
        Id of the run.
    batch : Batch
        The rows.
    """
    if batch.table in RECORDED:
        first = batch.first_seq if batch.is_consecutive else None
        messages = encode(run_id, batch.table, str(batch.process), batch.rows, first=first)
        yield from (message.data.decode() for message in messages)
        return
    head = {"strata": 1, "run": run_id, "kind": "row", "table": batch.table, "process": None}
    for seq, row in zip(batch.seqs.to_pylist(), _values(batch), strict=True):
        yield json_text({**head, "seq": seq, "row": row})


def table_lines(_: str, batch: Batch) -> Iterator[str]:
    """Yield a line for people for each row: process, number, table, and the known values."""
    for seq, row in zip(batch.seqs.to_pylist(), _values(batch), strict=True):
        values = " ".join(f"{name}={_short(value)}" for name, value in row.items())
        yield f"{batch.process or '-'} {seq} {batch.table} {values}"


def _values(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the columns of each row that have a value; times in nanoseconds."""
    table = TABLES[batch.table]
    known = [n for n in batch.rows.schema.names if n in column_kinds(table)]
    found = json_values(table, batch.rows.select(known))
    if not table.derived or "process" not in batch.rows.schema.names:
        yield from found
        return
    for process, row in zip(batch.rows["process"].to_pylist(), found, strict=True):
        yield row if process is None else {**row, "process": process}


def _short(value: Any) -> str:
    text = visible(str(value))
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"

"""Messages for tests of streams: rows of every table with values of every kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dask_strata.brokers.address import Form
from dask_strata.brokers.message import Message, encode, encode_facts
from dask_strata.schema import RECORDED, Table
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.manifest import Manifest

T0 = 1_795_000_000_123_456_789

#: Values of each kind: usual, special and extreme ones.
VALUES: dict[str, tuple[Any, ...]] = {
    "time": (T0, 0, 1 << 62),
    "seconds": (0.25, -1e-9, 0.0),
    "bytes": (1 << 40, 0, 7),
    "int": (-(1 << 63), (1 << 63) - 1, 5),
    "float": (1.5, math.inf, -math.inf),
    "bool": (True, False, True),
    "text": ("é\u2028'\"\\", "", "x\0y"),
    "long": ("line\nline\r\n", "𝄞" * 40, "{}[]"),
    "key": ("('x', 0)", "sum-0a1b", "b'7'"),
    "intervals": (
        [{"action": "compute", "start": T0, "stop": T0 + 1, "source": None}],
        [],
        [{"action": None, "start": None, "stop": 5, "source": "tcp://w:1"}] * 2,
    ),
}


def sample_rows(table: Table, seqs: list[int]) -> pa.RecordBatch:
    """Return rows of a table with the Arrow types of the schema; a third of the values is null."""
    schema = arrow_schema(table)
    kinds: dict[str, str] = {}
    for column in table.all_columns:
        kinds[column.name] = column.kind
        if column.kind == "key":
            kinds[f"{column.name}_type"] = "text"
    columns = []
    for i, field in enumerate(schema):
        if field.name == "process":
            values: list[Any] = ["worker-1"] * len(seqs)
        elif field.name == "seq" and table.events:
            values = seqs
        else:
            choices = (*VALUES[kinds[field.name]], None)
            values = [choices[(seq + i) % len(choices)] for seq in seqs]
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        columns.append(pa.array(values, plain).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def messages_of(
    run: str, *processes: str, rows: int = 4, form: Form = "json", start: int = 0
) -> list[Message]:
    """Return the messages of a run: each process has some rows of every table in turn."""
    made: list[Message] = []
    seqs = dict.fromkeys(processes, start)
    for name, table in RECORDED.items():
        for process in processes:
            first = seqs[process]
            batch = sample_rows(table, list(range(first, first + rows)))
            made += encode(run, name, process, batch, first=first, form=form)
            seqs[process] = first + rows
    return made


def simple_messages(run: str, process: str, seqs: range, text: str = "x") -> list[Message]:
    """Return rows of one table of one process."""
    rows = pa.record_batch(
        {"name": pa.array([text] * len(seqs)), "seq": pa.array(seqs, pa.int64())}
    )
    return encode(run, "job", process, rows)


def first_and_last(run: str) -> tuple[Message, Message]:
    """Return the messages before and after the rows of a run."""
    manifest = Manifest(run, "pipeline", T0, "0.1.0")
    end = {"state": "complete", "rows": {"worker-1": {"tasks": 3}}}
    return encode_facts(run, "run", manifest.to_json()), encode_facts(run, "end", end)


def by_process(messages: list[Message]) -> dict[tuple[str, str | None], list[int | None]]:
    """Return the numbers of the first rows by run and process, in the order of the messages."""
    found: dict[tuple[str, str | None], list[int | None]] = {}
    for message in messages:
        found.setdefault((message.run, message.process), []).append(message.first)
    return found


def seen_once(messages: Iterator[Any], run: str) -> dict[str, list[int]]:
    """Return what a reader has that drops rows with a number that it has had."""
    found: dict[str, list[int]] = {}
    for message in messages:
        assert isinstance(message, Message), message
        if message.run == run and message.process is not None and message.first is not None:
            seqs = found.setdefault(message.process, [])
            if not seqs or message.first > seqs[-1]:
                seqs.append(message.first)
    return found

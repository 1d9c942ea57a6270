"""The messages of a recorded run, made frame by frame from its segments."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dask_strata import Run
from dask_strata.brokers.address import Form
from dask_strata.brokers.message import Message, encode, encode_facts
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import Rows
from dask_strata.store.manifest import MANIFEST, SEGMENTS, SUFFIX, Manifest
from dask_strata.store.segments.decode import decode, unpack
from dask_strata.store.segments.frames import payloads


def batches_of(path: Path) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield table, number of the first row and rows of each batch of a segment."""
    layout = None
    for payload in payloads(path.read_bytes()):
        if not isinstance(payload, bytes):
            continue  # cut in the middle by a kill
        body = unpack(payload)
        if isinstance(body, dict):
            layout = body["tables"]
            continue
        for table, first, n, columns in decode(body, layout):
            rows = Rows(RECORDED[table])
            rows.extend(n, columns, path.stem, first)
            (batch,) = rows.table().combine_chunks().to_batches()
            yield table, first, batch


def messages_of(run: Path, form: Form = "json") -> list[Message]:
    """Return the messages of a run in segments: its begin, rows in turns of processes, its end."""
    facts = json.loads((run / MANIFEST).read_text())
    run_id = Manifest.read(run).run_id
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    sent: list[list[Message]] = []
    for path in sorted((run / SEGMENTS).glob(f"*{SUFFIX}")):
        process = path.stem
        for i, (table, first, rows) in enumerate(batches_of(path)):
            counts[process][table] += len(rows)
            if i == len(sent):
                sent.append([])
            sent[i] += encode(run_id, table, process, rows, first=first, form=form)
    end = {"state": "complete", "rows": counts}
    return [
        encode_facts(run_id, "run", facts),
        *(message for turn in sent for message in turn),
        encode_facts(run_id, "end", end),
    ]


def recorded_rows(run: Run) -> dict[str, list[str]]:
    """Return the recorded rows of a run, exactly: times in nanoseconds, floats in full."""
    found = {}
    for name in RECORDED:
        table = run.record.tables[name]
        plain = [
            f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema
        ]
        found[name] = sorted(map(repr, table.cast(pa.schema(plain)).to_pylist()))
    return found

"""Events as tables: one row an event, none twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from dask_strata.capture.events import Event, WXferEvent
from dask_strata.capture.states import EventTypeEnum, TaskState, TransferTypeEnum, plain
from dask_strata.run.table_view import TableView

#: Rows that are in memory at a time when a file is written.
ROWS = 65_536

_TEXT = pa.dictionary(pa.int32(), pa.string())


class Column(NamedTuple):
    """A column: its name and type, and how an event's value in it is got."""

    name: str
    type: pa.DataType | None
    get: Callable[[Any], Any]


def _col(name: str, kind: pa.DataType | None = _TEXT, source: str | None = None) -> Column:
    return Column(name, kind, attrgetter(source or name))


def first_key(event: WXferEvent) -> str | None:
    """Return the first of a transfer's keys."""
    return next(iter(event.keys), None)


def keys_text(event: WXferEvent) -> str:
    """Return a transfer's keys as JSON: the bytes of each."""
    return json.dumps(event.keys, ensure_ascii=False)


#: Of type None: a time.
_CHANGE = (_col("start"), _col("finish"), _col("key"))
_TRANSFER = (
    _col("middle", None),
    _col("duration", pa.float64()),
    Column("key", _TEXT, first_key),
    _col("total", pa.int64()),
    _col("bandwidth", pa.float64()),
    _col("compressed", pa.int64()),
    _col("requestor"),
    _col("fulfiller"),
    _col("transfer_type"),
)
_KEYS = Column("keys", pa.string(), keys_text)

#: The older tool's columns in their order, then what it left out.
FRAMES: dict[EventTypeEnum, tuple[Column, ...]] = {
    EventTypeEnum.SCHEDULER: (
        *_CHANGE,
        _col("t_begins", None),
        _col("t_ends", None),
        _col("ip"),
        _col("stimulus_id"),
        _col("t_event", None),
        _col("action"),
        _col("worker"),
        _col("nbytes", pa.int64()),
    ),
    EventTypeEnum.WORKER: (*_CHANGE, _col("ip"), _col("t_event", None)),
    EventTypeEnum.WORKER_TRANSFER: (
        _col("start", None),
        _col("stop", None),
        *_TRANSFER,
        _col("t_event", None),
        _KEYS,
    ),
}


def _for_changes(name: str, kind: pa.DataType | None = _TEXT) -> Column:
    return Column(name, kind, lambda e: getattr(e, name, None))


def _not_for_transfers(name: str) -> Column:
    get = attrgetter(name)
    return Column(name, _TEXT, lambda e: None if isinstance(e, WXferEvent) else get(e))


def _for_transfers(column: Column, name: str | None = None) -> Column:
    get = column.get
    return Column(
        name or column.name,
        column.type,
        lambda e: get(e) if isinstance(e, WXferEvent) else None,
    )


#: One table of all kinds. Times of a transfer and states have the same name in the objects.
EVENTS: tuple[Column, ...] = (
    _col("kind", source="e_type"),
    _col("t_event", None),
    Column("key", _TEXT, lambda e: first_key(e) if isinstance(e, WXferEvent) else e.key),
    *map(_not_for_transfers, ("start", "finish")),
    *map(_for_changes, ("ip", "stimulus_id", "worker")),
    _for_changes("t_begins", None),
    _for_changes("t_ends", None),
    _for_changes("action"),
    _for_changes("nbytes", pa.int64()),
    _for_transfers(_col("start", None), "transfer_start"),
    _for_transfers(_col("stop", None), "transfer_stop"),
    *(_for_transfers(c) for c in _TRANSFER if c.name != "key"),
    _for_transfers(_KEYS),
)


_MEMBERS: dict[str, Callable[[str], Any]] = {
    "start": TaskState.of,
    "finish": TaskState.of,
    "transfer_type": TransferTypeEnum,
}


def schema(columns: Iterable[Column], zone: tzinfo) -> pa.Schema:
    """Return the Arrow schema of columns, with times in a zone."""
    time = pa.timestamp("us", str(zone).removeprefix("UTC") or "UTC")
    return pa.schema([(c.name, time if c.type is None else c.type) for c in columns])


def batch(events: list[Event], columns: Iterable[Column], form: pa.Schema) -> pa.RecordBatch:
    """Return events as rows of a table."""
    arrays = []
    for column, field in zip(columns, form, strict=True):
        values = [column.get(event) for event in events]
        if field.type == _TEXT:
            texts = [None if v is None else plain(v) for v in values]
            arrays.append(pa.array(texts, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=form)


def table(events: Iterator[Event], columns: Iterable[Column], zone: tzinfo) -> pa.Table:
    """Return events as a table."""
    form = schema(columns, zone)
    batches = []
    while some := list(islice(events, ROWS)):
        batches.append(batch(some, columns, form))
    return pa.Table.from_batches(batches, form).unify_dictionaries()


def to_pandas(table: pa.Table) -> Any:
    """Return a table as a data frame that has the members of enums; StrataError without pandas."""
    found = TableView("capture", lambda: table).to_pandas()
    from pandas import Series

    for name, of in _MEMBERS.items():
        if name in table.column_names and table.schema.field(name).type == _TEXT:
            members = [*map(of, found[name].cat.categories), None]  # code -1 is null
            values = [members[code] for code in found[name].cat.codes]
            found[name] = Series(values, dtype=object)
    return found

"""Tables of events, with one row per event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from dask_strata.capture.events import Event, WXferEvent
from dask_strata.capture.states import (
    STIMULI,
    EventTypeEnum,
    TaskState,
    TransferTypeEnum,
    plain,
)
from dask_strata.run.table_view import TableView

#: Rows that are held in memory while a file is written.
ROWS = 65_536

_TEXT = pa.dictionary(pa.int32(), pa.string())


class Column(NamedTuple):
    """A column of a table of events.

    Attributes
    ----------
    name : str
        Its name.
    type : pyarrow.DataType or None
        Its type; None for a time.
    get : callable
        Returns the value of an event in this column.
    """

    name: str
    type: pa.DataType | None
    get: Callable[[Any], Any]


def _col(name: str, kind: pa.DataType | None = _TEXT, source: str | None = None) -> Column:
    return Column(name, kind, attrgetter(source or name))


def first_key(event: WXferEvent) -> str | None:
    """Return the first key of a transfer, or None."""
    return next(iter(event.keys), None)


def keys_text(event: WXferEvent) -> str:
    """Return the keys of a transfer as a JSON object, with the bytes of each."""
    return json.dumps(event.keys, ensure_ascii=False)


#: Columns of transitions.
_TRANSITION = (_col("start"), _col("finish"), _col("key"))
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

#: Columns by kind of event: those of the older tool in their order, then further ones.
FRAMES: dict[EventTypeEnum, tuple[Column, ...]] = {
    EventTypeEnum.SCHEDULER: (
        *_TRANSITION,
        _col("t_begins", None),
        _col("t_ends", None),
        _col("ip"),
        _col("stimulus_id"),
        _col("t_event", None),
        _col("action"),
        _col("worker"),
        _col("nbytes", pa.int64()),
        _col("stimulus_type"),
    ),
    EventTypeEnum.WORKER: (*_TRANSITION, _col("ip"), _col("t_event", None)),
    EventTypeEnum.WORKER_TRANSFER: (
        _col("start", None),
        _col("stop", None),
        *_TRANSFER,
        _col("t_event", None),
        _KEYS,
    ),
}


def _if_present(name: str, kind: pa.DataType | None = _TEXT) -> Column:
    """Return a column that is null for events without this attribute."""
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


#: Columns of the table of all events. ``start`` and ``stop`` of transfers are times, and have names
#: of their own because ``start`` of transitions is a state.
EVENTS: tuple[Column, ...] = (
    _col("kind", source="e_type"),
    _col("t_event", None),
    Column("key", _TEXT, lambda e: first_key(e) if isinstance(e, WXferEvent) else e.key),
    *map(_not_for_transfers, ("start", "finish")),
    *map(_if_present, ("ip", "stimulus_id", "worker")),
    _if_present("t_begins", None),
    _if_present("t_ends", None),
    _if_present("action"),
    _if_present("nbytes", pa.int64()),
    _for_transfers(_col("start", None), "transfer_start"),
    _for_transfers(_col("stop", None), "transfer_stop"),
    *(_for_transfers(c) for c in _TRANSFER if c.name != "key"),
    _for_transfers(_KEYS),
    _if_present("stimulus_type"),
)


#: Columns of enums, and how their texts become members.
_MEMBERS: dict[str, Callable[[str], Any]] = {
    "start": TaskState.of,
    "finish": TaskState.of,
    "transfer_type": TransferTypeEnum,
    "stimulus_type": lambda kind: STIMULI.get(kind, kind),
}


def schema(columns: Iterable[Column], zone: tzinfo) -> pa.Schema:
    """Return the Arrow schema of columns, with times in `zone`."""
    time = pa.timestamp("us", str(zone).removeprefix("UTC") or "UTC")
    return pa.schema([(c.name, time if c.type is None else c.type) for c in columns])


def batch(
    events: list[Event], columns: Iterable[Column], arrow_schema: pa.Schema
) -> pa.RecordBatch:
    """Return events as rows of columns with a schema from `schema`."""
    arrays = []
    for column, field in zip(columns, arrow_schema, strict=True):
        values = [column.get(event) for event in events]
        if field.type == _TEXT:
            texts = [None if v is None else plain(v) for v in values]
            arrays.append(pa.array(texts, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def table(events: Iterator[Event], columns: Iterable[Column], zone: tzinfo) -> pa.Table:
    """Return events as a table with times in `zone`."""
    arrow_schema = schema(columns, zone)
    batches = []
    while chunk := list(islice(events, ROWS)):
        batches.append(batch(chunk, columns, arrow_schema))
    return pa.Table.from_batches(batches, arrow_schema).unify_dictionaries()


def to_pandas(table: pa.Table) -> Any:
    """Return a table as a data frame with members of enums. Raises StrataError without pandas."""
    frame = TableView("capture", lambda: table).to_pandas()
    from pandas import Series

    for name, member in _MEMBERS.items():
        if name in table.column_names and table.schema.field(name).type == _TEXT:
            members = [*map(member, frame[name].cat.categories), None]  # the code of null is -1
            values = [members[code] for code in frame[name].cat.codes]
            frame[name] = Series(values, dtype=object)
    return frame

"""Create events from rows of Arrow tables, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.capture.events import Event, EventSource, SchedulerEvent, WorkerEvent, WXferEvent
from dask_strata.capture.index import SCHEDULER, TRANSFER, WORKER, Index, Rows
from dask_strata.capture.states import TaskState, TransferTypeEnum

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: The texts of a column are kept as Python objects if it has at most this many distinct ones.
_FEW = 65_536

#: Returns the values of a column in some rows.
ColumnReader = Callable[[pa.Array], list[Any]]


class EventFactory:
    """Creates events from the tables of an index.

    Parameters
    ----------
    index : Index
        The tables.
    zone : tzinfo
        Zone of all times.
    """

    def __init__(self, index: Index, zone: tzinfo) -> None:
        self._index = index
        self._zone = None if zone is timezone.utc else zone
        self._columns: dict[tuple[int, str], ColumnReader] = {}

    def events(self, rows: Rows) -> list[Event]:
        """Return the events of some rows, in the same order."""
        by_kind: tuple[Iterator[Event], ...] = (
            self._scheduler(rows.of(SCHEDULER)),
            self._worker(rows.of(WORKER)),
            self._transfers(rows.of(TRANSFER)),
        )
        return [next(by_kind[kind]) for kind in rows.kind.to_pylist()]

    def _scheduler(self, rows: pa.Array) -> Iterator[Event]:
        get = self._getter(SCHEDULER, rows)
        sources = map(EventSource, get("address"), get("stimulus_id"))
        return map(
            SchedulerEvent,
            self._times(get("time")),
            self._times(get("begins")),
            self._times(get("ends")),
            _states(get("start_state")),
            _states(get("finish_state")),
            sources,
            get("key"),
            get("action"),
            get("worker"),
            get("nbytes"),
        )

    def _worker(self, rows: pa.Array) -> Iterator[Event]:
        get = self._getter(WORKER, rows)
        return map(
            WorkerEvent,
            _states(get("start_state")),
            _states(get("finish_state")),
            get("worker"),
            self._times(get("time")),
            get("key"),
        )

    def _transfers(self, rows: pa.Array) -> Iterator[Event]:
        get = self._getter(TRANSFER, rows)
        types = {"incoming": TransferTypeEnum.INCOMING, "outgoing": TransferTypeEnum.OUTGOING}
        return map(
            WXferEvent,
            self._times(get("start")),
            self._times(get("stop")),
            self._times(get("middle")),
            get("duration"),
            map(_contents, get("keys"), get("sizes")),
            get("total_bytes"),
            get("bandwidth"),
            get("compressed_bytes"),
            get("peer"),
            get("worker"),
            [types[end] for end in get("end")],
            self._times(get("t_event")),
        )

    def _getter(self, kind: int, rows: pa.Array) -> Callable[[str], list[Any]]:
        def get(name: str) -> list[Any]:
            column = self._columns.get((kind, name))
            if column is None:
                column = self._columns[kind, name] = _column(self._index.columns[kind][name])
            return column(rows)

        return get

    def _times(self, nanoseconds: list[int | None]) -> list[datetime | None]:
        """Return times from nanoseconds, rounded to the nearest microsecond."""
        times = [
            None if ns is None else _EPOCH + timedelta(0, 0, (ns + 500) // 1000)
            for ns in nanoseconds
        ]
        if self._zone is None:
            return times
        return [None if t is None else t.astimezone(self._zone) for t in times]


def _column(column: pa.ChunkedArray) -> ColumnReader:
    """Return a function that returns the values of a column in some rows."""
    if pa.types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        if len(whole.dictionary) <= _FEW:
            texts = [*whole.dictionary.to_pylist(), None]
            codes = pc.fill_null(whole.indices, len(texts) - 1)
            return lambda rows: [texts[code] for code in codes.take(rows).to_pylist()]
        return lambda rows: whole.dictionary.take(whole.indices.take(rows)).to_pylist()
    values = column.combine_chunks()
    return lambda rows: values.take(rows).to_pylist()


def _states(texts: list[str | None]) -> list[TaskState | str]:
    state = TaskState.of
    return [state(text or "") for text in texts]


def _contents(keys: list[str] | None, sizes: list[int | None] | None) -> dict[str, int | None]:
    return {} if keys is None or sizes is None else dict(zip(keys, sizes, strict=True))

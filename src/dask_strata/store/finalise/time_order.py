"""Put the rows of an imported table in the order of time, without having all of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.store.finalise.spool import Batches
from dask_strata.store.parquet_writer import ROWS_PER_GROUP

#: The table whose rows have no order of their own: `run.prepare.order_by_time`.
ORDERED = "scheduler_transitions"

_PLACE = "_place"

_Ints = npt.NDArray[np.int64]


def places(rows: pa.Table) -> _Ints | None:
    """Return the place of each row in the order of time; None if the rows are in that order.

    Parameters
    ----------
    rows : pyarrow.Table
        The columns ``time`` and ``seq``.
    """
    times = rows["time"].cast(pa.int64()).combine_chunks()
    if len(times) < 2 or not pc.any(pc.less(times[1:], times[:-1])).as_py():  # noqa: PLR2004
        return None
    order = pc.sort_indices(rows, [("time", "ascending"), ("seq", "ascending")])
    found = np.empty(len(rows), np.int64)
    found[order.to_numpy()] = np.arange(len(rows))
    return found


def in_time_order(
    rows: Iterable[pa.Table], place: _Ints | None, files: Batches
) -> Iterator[pa.Table]:
    """Yield rows in the order of time, with ``seq`` renumbered in that order.

    Parameters
    ----------
    rows : iterable of pyarrow.Table
        All rows of the table, in the order of its files.
    place : numpy.ndarray or None
        The place of each row, see `places`.
    files : Batches
        Files that keep the rows until those before them are known.
    """
    start = 0
    for batch in rows if place is None else _sorted(rows, place, files):
        yield _numbered(batch, start)
        start += len(batch)


def _sorted(rows: Iterable[pa.Table], place: _Ints, files: Batches) -> Iterator[pa.Table]:
    """Divide the rows into groups of neighbours in files, then yield each group, sorted."""
    start = 0
    for batch in rows:
        own = place[start : start + len(batch)]
        start += len(batch)
        group = own // ROWS_PER_GROUP
        with_place = batch.append_column(_PLACE, pa.array(own))
        for number in np.unique(group).tolist():
            files.append(f"time-{number}", with_place.filter(pa.array(group == number)))
    for number in range(-(-len(place) // ROWS_PER_GROUP)):
        group = pa.Table.from_batches(list(files.batches(f"time-{number}")))
        files.remove(f"time-{number}")
        group = group.unify_dictionaries()
        yield group.take(pc.sort_indices(group[_PLACE])).drop_columns([_PLACE])


def _numbered(rows: pa.Table, start: int) -> pa.Table:
    index = rows.schema.get_field_index("seq")
    seq = pa.array(np.arange(start, start + len(rows), dtype=np.int64))
    return rows.set_column(index, rows.schema.field(index), seq)

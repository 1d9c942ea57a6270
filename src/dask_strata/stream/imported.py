"""The rows of runs that no recorder numbered, such as imported ones: they are counted here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run import Run
from dask_strata.schema import RECORDED
from dask_strata.store.index import read_index
from dask_strata.store.manifest import ADDITIONS
from dask_strata.store.parquet import main_home
from dask_strata.store.safe_files import kind_of
from dask_strata.stream.batch import Batch, one_batch
from dask_strata.stream.stored import StoredRows

#: Rows of a batch.
_ROWS = 1 << 13


def imported_batches(
    run: Run, tables: Collection[str], start: Mapping[str, int], damaged: set[str]
) -> Iterator[Batch]:
    """Yield the rows of a run that has no segments, one table after the other.

    Parameters
    ----------
    run : Run
        The run.
    tables : collection of str
        The wanted tables.
    start : mapping of str to int
        Number of the first wanted row by process.
    damaged : set of str
        Wanted tables that cannot be read are added to it.

    Notes
    -----
    The rows of each process are counted over all tables. The column ``seq`` has the line of the
    imported file.
    """
    n: dict[str, int] = {}
    for name, rows in _all_rows(run, damaged):
        yield from _by_process(name, rows, n, start, tables)
    damaged &= set(tables)


def _all_rows(run: Run, damaged: set[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    home = main_home(run.path)
    if home is not None and not kind_of(run.path / ADDITIONS):
        index = read_index(run.path, home)
        if index.keys_per_bucket:
            stored = StoredRows(run.path, run.manifest.run_id, home, index)
            damaged.update(stored.damaged)
            yield from stored.in_file_order()
            return
    for name in RECORDED:
        for part in run.record.tables.parts(name):
            for at in range(0, len(part), _ROWS):
                yield name, one_batch(part.slice(at, _ROWS))


def _by_process(
    name: str,
    rows: pa.RecordBatch,
    n: dict[str, int],
    start: Mapping[str, int],
    tables: Collection[str],
) -> Iterator[Batch]:
    column = rows["process"]
    codes = pc.fill_null(column.cast(pa.string()), "").dictionary_encode()
    numbers = codes.indices.to_numpy()
    for code, process in enumerate(codes.dictionary.to_pylist()):
        places = np.flatnonzero(numbers == code)
        first = n.get(process, 0)
        n[process] = first + len(places)
        skipped = min(max(0, start.get(process, 0) - first), len(places))
        if name in tables and skipped < len(places):
            found = rows.take(pa.array(places[skipped:]))
            yield Batch(name, process, first + skipped, n[process] - 1, found)

"""Yielding the rows of a run in the order of each process, while it is recorded or later."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dask_strata.errors import UsageError
from dask_strata.run import Run
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.safe_files import is_name
from dask_strata.stream.batch import Batch
from dask_strata.stream.derived import DerivedRows
from dask_strata.stream.recorded import damage_error, rows_of

#: Shortest time between two looks for new rows, and the share of time that they may take.
_PAUSE_SECONDS = 0.1
_SHARE = 0.2

#: After so many rows, the next look follows at once.
_MANY_ROWS = 10_000


def follow(
    run: Run | str | Path,
    tables: Collection[str] | None = None,
    start: Mapping[str, int] | None = None,
    *,
    wait: bool = True,
) -> Iterator[Batch]:
    """Yield the rows of a run, and those that are recorded meanwhile, in order by process.

    Parameters
    ----------
    run : Run, str or Path
        The run, its folder or its URL.
    tables : collection of str, optional
        Names of tables; by default all recorded ones. Rows of a derived table (`attempts`, `tasks`,
        `transfers`, …) are yielded once each, when they are final; see `docs/streams.md`.
    start : mapping of str to int, optional
        Number of the first wanted row by process; of other processes all rows are yielded.
    wait : bool, optional
        Whether to wait for new rows until the recording has ended. Otherwise the iterator ends
        after the rows that are on record.

    Yields
    ------
    Batch
        Rows of one table of one process. Those of a process are yielded in the order of their
        numbers, without gap: to continue later, pass ``{batch.process: batch.last_seq + 1}``.

    Raises
    ------
    UsageError
        There is no such table, or a position is invalid.
    NotARunError
        There is no such run.
    StrataError
        A part of the run cannot be read. If it is a damaged table, all other rows were yielded.

    Notes
    -----
    Times of recorded rows are those of the clock of their process, as recorded.

    Examples
    --------
    >>> for batch in follow("runs/2026-…", ["attempts"]):  # doctest: +SKIP
    ...     print(batch.rows.to_pylist())
    """
    names = list(RECORDED) if tables is None else list(dict.fromkeys(tables))
    for name in names:
        if name not in TABLES:
            raise UsageError(f"There is no table {name!a}.", hint="List them: dask-strata tables")
    begin = dict(start or {})
    for process, seq in begin.items():
        if not is_name(process) or isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
            raise UsageError(
                f"{process!a}: {seq!a} is not a position.",
                hint="A position is the name of a process and a number from 0.",
            )
    opened = run if isinstance(run, Run) else Run(run)
    if opened.client is not None:
        raise UsageError(
            "follow yields the rows of all clients.", hint="Open the run without client=…"
        )
    return _follow(opened, names, begin, wait=wait)


def _follow(run: Run, names: list[str], start: dict[str, int], *, wait: bool) -> Iterator[Batch]:
    recorded = [name for name in names if name in RECORDED]
    derived = DerivedRows(run, [name for name in names if name not in RECORDED])
    rows = rows_of(run, recorded, start)
    first = True
    while True:
        began = time.monotonic()
        # Whether a process is alive is known when the start of its segment has been read.
        grows = wait and (first or rows.is_recording())
        found = 0
        for batch in rows.look():
            found += len(batch.rows)
            yield batch
        if not grows and not found:
            break
        if grows:
            yield from derived.final(rows.complete_until())
            if not first and found < _MANY_ROWS:
                took = 0 if found else time.monotonic() - began
                time.sleep(max(_PAUSE_SECONDS, took / _SHARE))
                run.fetch()
        first = False
    yield from derived.rest()
    if rows.damaged:
        raise damage_error(run.path, rows.damaged)

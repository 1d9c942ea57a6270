"""Yielding the rows of a run in the order of each process, while it is recorded or later."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dask_strata.errors import StrataError, UsageError
from dask_strata.run import Run
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.index import Index, read_index
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.parquet import READ_ERRORS, main_home, unreadable
from dask_strata.store.safe_files import FILE, entries, is_name
from dask_strata.stream.batch import Batch
from dask_strata.stream.derived import DerivedRows
from dask_strata.stream.imported import imported_batches
from dask_strata.stream.stored import StoredRows
from dask_strata.stream.tail import Tail

#: Shortest time between two looks for new rows, and the share of time that they may take.
_PAUSE_SECONDS = 0.1
_SHARE = 0.2

#: A run without any segment this long after its begin is not being recorded.
_START_SECONDS = 30

#: How often the Parquet is read again if compaction replaces it meanwhile.
_TRIES = 5


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
        A part of the run cannot be read.

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
    if run.manifest.imported_from is not None or RecordedRows(run, (), {}).has_no_segments():
        yield from imported_batches(run, recorded, start)
        yield from derived.rest()
        return
    rows = RecordedRows(run, recorded, start)
    while True:
        began = time.monotonic()
        grows = wait and rows.is_recording()
        found = False
        for batch in rows.look():
            found = True
            yield batch
        if not grows and not found:
            break
        if grows:
            yield from derived.final(rows.complete_until())
            if not found:
                took = time.monotonic() - began
                time.sleep(max(_PAUSE_SECONDS, took / _SHARE))
                run.fetch()
    yield from derived.rest()


class RecordedRows:
    """The recorded rows of a run of which some have been yielded.

    Parameters
    ----------
    run : Run
        The run.
    tables : collection of str
        The wanted tables.
    start : mapping of str to int
        Number of the first wanted row by process.
    """

    def __init__(self, run: Run, tables: Collection[str], start: Mapping[str, int]) -> None:
        self._folder, self._manifest = run.path, run.manifest
        self._tables = frozenset(tables)
        self._next = dict(start)
        self._tails: dict[str, Tail] = {}
        #: Processes whose rows have been read from Parquet; their segments are removed.
        self._stored: set[str] = set()

    def is_recording(self) -> bool:
        """Return whether rows may follow: a process that is alive has not written its last one."""
        self._find_segments()
        if not self._tails and not self._stored and main_home(self._folder) is None:
            return time.time() - self._manifest.created_ns / 1e9 < _START_SECONDS
        return any(tail.state == "recording" for tail in self._tails.values())

    def has_no_segments(self) -> bool:
        """Return whether the run has Parquet that was not made from segments."""
        self._find_segments()
        found = self._index()
        return not self._tails and found is not None and not found[1].segments

    def complete_until(self) -> float | None:
        """Return the time up to which all living processes have written their rows.

        In seconds since the epoch; None if no process is alive.
        """
        alive = [t.modified for t in self._tails.values() if t.state == "recording"]
        return min(alive, default=None)

    def look(self) -> Iterator[Batch]:
        """Yield all rows that are on record now."""
        self._find_segments()
        growing = list(self._tails.values())
        while growing:
            more = []
            for tail in growing:
                try:
                    if tail.has_more():
                        yield from self._read(tail)
                        more.append(tail)
                except FileNotFoundError:
                    self._next[tail.process] = tail.next_seq
                    del self._tails[tail.process]
            growing = [tail for tail in more if tail.progressed]
        yield from self._read_stored()

    def _read(self, tail: Tail) -> Iterator[Batch]:
        for batch in tail.read():
            self._next[tail.process] = batch.last_seq + 1
            yield batch

    def _find_segments(self) -> None:
        try:
            found = entries(self._folder, SEGMENTS)
        except OSError:
            found = []
        for name, kind in found:
            process = name.removesuffix(SUFFIX)
            is_segment = kind == FILE and name.endswith(SUFFIX) and is_name(process)
            if is_segment and process not in self._tails and process not in self._stored:
                first = self._next.get(process, 0)
                self._tails[process] = Tail(
                    self._folder, self._manifest.run_id, process, self._tables, first
                )

    def _read_stored(self) -> Iterator[Batch]:
        """Yield the rows of processes whose segments were removed, which the Parquet has."""
        for attempt in range(_TRIES):
            found = self._index()
            if found is None:
                return
            home, index = found
            known = {s.process for s in index.segments} - self._tails.keys() - self._stored
            if not known:
                return
            try:
                stored = StoredRows(self._folder, self._manifest.run_id, home, index)
                without = {*self._tails, *self._stored}
                for batch in stored.batches(self._tables, self._next, without):
                    self._next[str(batch.process)] = batch.last_seq + 1
                    yield batch
            except READ_ERRORS as error:
                if attempt + 1 < _TRIES and self._index() != found:
                    continue  # compaction has replaced the files
                raise StrataError(
                    f"The Parquet of {self._folder} cannot be read: {unreadable(error)}.",
                    hint=f"List the damage: dask-strata check {self._folder}",
                ) from error
            self._stored |= known
            return

    def _index(self) -> tuple[str, Index] | None:
        home = main_home(self._folder)
        if home is None:
            return None
        try:
            index = read_index(self._folder, home)
        except (OSError, ValueError):
            return None
        return None if index.foreign(self._manifest.run_id) else (home, index)

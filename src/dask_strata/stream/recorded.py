"""The recorded rows of a run: of segments that may grow, of Parquet, and from one to the other."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dask_strata.errors import StrataError
from dask_strata.run import Run
from dask_strata.store.index import Index, read_index
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.parquet import READ_ERRORS, main_home, unreadable
from dask_strata.store.safe_files import FILE, entries, is_name
from dask_strata.store.segments.read import segment_state
from dask_strata.stream.batch import Batch
from dask_strata.stream.imported import imported_batches
from dask_strata.stream.stored import StoredRows
from dask_strata.stream.tail import Tail

#: A run without any segment this long after its start is not being recorded.
_START_SECONDS = 30

#: Begin of the id of the process that records the exit status of a script, and how long after the
#: other processes it may do so.
LAUNCHER = "record-"
_STATUS_SECONDS = 10

#: How often the Parquet is read again if compaction replaces it meanwhile.
_TRIES = 5

#: Number of segments that are kept open.
_OPEN_FILES = 200


def rows_of(run: Run, tables: Collection[str], start: Mapping[str, int]) -> RecordedRows:
    """Return the rows of a run, none of which has been yielded.

    Parameters
    ----------
    run : Run
        The run.
    tables : collection of str
        The wanted tables.
    start : mapping of str to int
        Number of the first wanted row by process.
    """
    rows = RecordedRows(run, tables, start)
    if run.manifest.imported_from is not None or rows.has_no_segments():
        return ImportedRows(run, tables, start)
    return rows


def damage_error(folder: Path, tables: Collection[str]) -> StrataError:
    """Return the error of a run of which all rows were yielded but those of damaged tables.

    Parameters
    ----------
    folder : Path
        The run's folder.
    tables : collection of str
        The damaged tables.
    """
    return StrataError(
        f"The Parquet of {folder} is damaged: rows of {', '.join(sorted(tables))} are missing.",
        hint=f"List the damage: dask-strata check {folder}",
    )


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

    Attributes
    ----------
    damaged : set of str
        Wanted tables whose Parquet is damaged: their rows were left out.
    """

    def __init__(self, run: Run, tables: Collection[str], start: Mapping[str, int]) -> None:
        self.damaged: set[str] = set()
        self._folder, self._manifest = run.path, run.manifest
        self._tables = frozenset(tables)
        self._next = dict(start)
        self._tails: dict[str, Tail] = {}
        #: Processes whose rows have been read from Parquet; their segments are removed.
        self._stored: set[str] = set()
        #: States of the processes whose segments are removed, by what was read of them.
        self._gone: dict[str, str] = {}

    def is_recording(self) -> bool:
        """Return whether rows may follow: a process that is alive has not written its last one."""
        self._find_segments()
        if not (self._tails or self._stored or self._gone) and main_home(self._folder) is None:
            return time.time() - self._manifest.created_ns / 1e9 < _START_SECONDS
        if any(tail.state == "recording" for tail in self._tails.values()):
            return True
        return self._awaits_status()

    def _awaits_status(self) -> bool:
        """Return whether `dask-strata record` is about to add the exit status of its script."""
        processes = self._tails.keys() | self._stored
        if self._manifest.session is None or any(p.startswith(LAUNCHER) for p in processes):
            return False
        latest = max((tail.modified for tail in self._tails.values()), default=0.0)
        return time.time() - latest < _STATUS_SECONDS

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

    def state(self) -> str:
        """Return complete, recording or cut, as `Run.state` has it."""
        states = dict(self._gone) | {p: tail.state for p, tail in self._tails.items()}
        found = self._index()
        for segment in found[1].segments if found is not None else ():
            states.setdefault(segment.process, segment_state(segment))
        ends = {state for process, state in states.items() if process.startswith("scheduler")}
        if "recording" in ends:
            return "recording"
        return "complete" if ends == {"ended"} else "cut"

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
                    self._gone[tail.process] = tail.state
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
                keep = len(self._tails) < _OPEN_FILES
                self._tails[process] = Tail(
                    self._folder, self._manifest.run_id, process, self._tables, first, keep=keep
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
            self.damaged |= self._tables & set(stored.damaged)
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


class ImportedRows(RecordedRows):
    """The rows of a run that has no segments, which are yielded once."""

    def __init__(self, run: Run, tables: Collection[str], start: Mapping[str, int]) -> None:
        super().__init__(run, tables, start)
        self._run = run
        self._batches = imported_batches(run, tables, start, self.damaged)

    def is_recording(self) -> bool:
        """Return False: nothing follows."""
        return False

    def state(self) -> str:
        """Return the state of the run."""
        return self._run.state

    def look(self) -> Iterator[Batch]:
        """Yield all rows once."""
        yield from self._batches

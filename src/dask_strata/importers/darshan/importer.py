"""Darshan's logs, into a run that is on record.

Each log is looked at twice: once for what it says of the process it is of, which ties it to a
process of Dask's, and once more for its rows. Counters are PyDarshan's, traces our own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.importers.added import (
    Added,
    Notes,
    Progress,
    digest_of,
    known_files,
)
from dask_strata.importers.darshan.clock_fit import estimate_shift
from dask_strata.importers.darshan.counters import Wanted, available, read_counters
from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import DXT, DarshanLog, LogError, open_log
from dask_strata.importers.darshan.rows import counter_rows, log_row, segment_rows
from dask_strata.importers.darshan.survey import ID_CHARACTERS, Survey, survey
from dask_strata.importers.dask_side import DaskSide, dask_side
from dask_strata.importers.process_match import ProcessMatch, happened_meanwhile, tie
from dask_strata.schema.values import LOST_COUNTERS
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.reader import Record

KIND = "darshan"


def add_logs(  # noqa: PLR0913
    files: Sequence[Path],
    addition: Addition,
    record: Record,
    process: str,
    progress: Progress,
    *,
    others: bool = False,
) -> Added:
    """Add the rows of some logs to a run.

    Parameters
    ----------
    files : sequence of Path
        The logs.
    addition : Addition
        Gets the rows.
    record : Record
        The run.
    process : str
        The process that imports, for rows about the import.
    progress : Progress
        Told how far it is.
    others : bool, optional
        Whether logs are kept that are of no process of the run, nor of its time.

    Raises
    ------
    OSError
        The run's folder cannot be written.
    """
    work = _Import(addition, record, process, others=others)
    total = sum(_size(path) for path in files)
    done = 0
    for path in files:
        work.take(path)
        done += _size(path)
        progress(done // 2, total)
    work.tie()
    work.write(progress, total)
    return work.added


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _Has:
    """What a run has of logs: their rows, and those of their traces and counters.

    Attributes
    ----------
    logs, traced, counted : set of str
        Ids of the logs that have a row, of those with traces, and of those with counters.
    files : set of str
        SHA-256 of the files that it notes as imported.
    """

    def __init__(self, record: Record) -> None:
        rows = record.tables["darshan_logs"].select(["log", "n_segments", "modules"]).to_pylist()
        self.logs = {row["log"] for row in rows}
        self.traced = _ids(record, "darshan_segments")
        self.counted = _ids(record, "darshan_counters")
        self.files = known_files(record)
        untraced = {row["log"] for row in rows if row["n_segments"]} - self.traced
        self._whole = self.logs - untraced
        self._countable = {
            row["log"] for row in rows if set(json.loads(row["modules"] or "[]")) - set(DXT)
        }

    def whole(self, log: str) -> bool:
        """Return whether the run has a log with its traces."""
        return log in self._whole

    def wants_counters(self, log: str) -> bool:
        """Return whether a log that the run has has counters that the run has not."""
        return log in self._countable - self.counted


def _ids(record: Record, table: str) -> set[str]:
    return set(pc.unique(record.tables[table]["log"].cast(pa.string())).to_pylist())


def _looked_at(path: Path, digest: str) -> Survey:
    """Look at a log, and work out what it is tied by, which numbers out of range may prevent."""
    found = survey(path, digest)
    _ = found.facts, found.sample
    return found


class _Import:
    """One import: looks at logs, ties them, writes their rows."""

    def __init__(self, addition: Addition, record: Record, process: str, *, others: bool) -> None:
        self._keep_others = others
        self.added = Added()
        self._addition = addition
        self._notes = Notes(KIND, addition, process, self.added)
        self._side: DaskSide = dask_side(record)
        self._has = _Has(record)
        self._taken: set[str] = set()
        self._logs: list[tuple[Survey, ProcessMatch | None]] = []
        self._surveys: list[Survey] = []
        #: Logs that are in the run, but without their counters.
        self._to_count: list[Survey] = []

    def take(self, path: Path) -> None:
        """Look at a log, unless it is in the run."""
        digest = None
        try:
            digest = digest_of(path)
            if digest in self._taken or self._has.whole(digest[:ID_CHARACTERS]):
                self._again(path, digest)
            else:
                self._surveys.append(_looked_at(path, digest))
            self._taken.add(digest)
        except LogError as error:
            self._notes.refuse(path, str(error), digest)
        except OSError as error:
            self._notes.refuse(path, f"cannot be read: {error.strerror or error}", None)
        except Exception as error:  # noqa: BLE001  what a damaged log says must not stop the others
            said = str(error) or type(error).__name__
            self._notes.refuse(path, f"cannot be understood: {said}", digest)

    def _again(self, path: Path, digest: str) -> None:
        self.added.again += 1
        log = digest[:ID_CHARACTERS]
        if digest not in self._taken and self._has.wants_counters(log) and available():
            self._to_count.append(Survey(path, digest, open_log(path), {}))

    def tie(self) -> None:
        """ProcessMatch the logs to processes, and leave out those that are of another run."""
        others = 0
        for found in self._surveys:
            tied = tie(found.facts, self._side)
            if tied is None and not happened_meanwhile(found.facts, self._side):
                others += 1
                if not self._keep_others:
                    continue
            self._logs.append((found, tied))
        n_tied = sum(1 for _, t in self._logs if t)
        foreign = len(self._logs) - n_tied - (others if self._keep_others else 0)
        self.added.files += len(self._logs)
        if n_tied:
            self.added.said.append(f"{_count(n_tied)} of processes of this run")
        if foreign:
            self.added.said.append(f"{_count(foreign)} of other programs meanwhile, kept as such")
        if others:
            what = "kept as such" if self._keep_others else "left out (--others keeps them)"
            self.added.said.append(
                f"{_count(others)} of no process of this run, nor of its time: {what}"
            )

    def write(self, progress: Progress, total: int) -> None:
        """Write the rows of the logs. Raises OSError."""
        shifted = 0
        done = total // 2
        for found, tied in self._logs:
            shift = None
            if tied is not None:
                shift = estimate_shift(found.sample, self._side.runs_in(tied.process, tied.worker))
            if shift is not None and abs(shift.seconds) > 60:  # noqa: PLR2004
                shifted += 1
            # Of a log some tables may be there, where the Parquet of the others is damaged.
            kept = 0 if found.id in self._has.traced else self._write_traces(found)
            if found.id not in self._has.logs:
                self._addition.write_rows("darshan_logs", [log_row(found, tied, shift)])
                kept += 1
            for trouble in found.troubles:
                self.added.troubles.append(f"{found.path}: {trouble}")
                self._notes.loss(found.path, found.path.name, trouble)
            if found.sha256 not in self._has.files:
                self._notes.imported(found.path, found.sha256, kept)
            self.added.rows += kept
            done += found.log.size // 2
            progress(done, total)
        if shifted:
            self.added.said.append(
                f"{_count(shifted)} with a clock more than a minute off: shifted to where they fit"
            )
        self._write_counters()

    def _write_traces(self, found: Survey) -> int:
        kept = 0
        names = pa.array(found.names.values(), pa.string())
        ids = np.array(list(found.names), np.uint64)
        order = np.argsort(ids)
        for module in found.traces:
            try:
                for operations in Trace(found.log, module, found.names):
                    place = order[np.searchsorted(ids[order], operations.file)]
                    uri = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), names)
                    rows = segment_rows(operations, found, module, uri, kept)
                    self._addition.write("darshan_segments", rows)
                    kept += len(rows)
            except LogError:
                continue  # told when it was looked at
        return kept

    def _write_counters(self) -> None:
        logs = [found for found, _ in self._logs if found.id not in self._has.counted]
        logs += self._to_count
        wanted = [(found, Wanted(found.path, _countable(found.log))) for found in logs]
        wanted = [(found, w) for found, w in wanted if w.modules]
        if wanted and not available():
            self.added.troubles.append(
                "PyDarshan is not installed, so that counters are left out: pip install "
                "'dask-strata[darshan]' (Python up to 3.12), then import again."
            )
            self._notes.loss(None, LOST_COUNTERS, "PyDarshan is not installed here", len(wanted))
            return
        answers = read_counters([w for _, w in wanted])
        for (found, _), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, str):
                self.added.troubles.append(f"{found.path}: no counters: {answer}")
                self._notes.loss(found.path, f"counters of {found.path.name}", answer)
                continue
            self.added.rows += len(answer)
            self._addition.write("darshan_counters", counter_rows(answer, found.id))


def _count(n: int) -> str:
    return f"{n:,} log" if n == 1 else f"{n:,} logs"


def _countable(log: DarshanLog) -> tuple[str, ...]:
    """Return the modules that PyDarshan has counters of."""
    known = {"POSIX", "STDIO", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "LUSTRE"}
    known |= {"HEATMAP", "DFS", "DAOS", "BG/Q"}
    return tuple(m for m, region in log.modules.items() if m in known and not log.cut(region))

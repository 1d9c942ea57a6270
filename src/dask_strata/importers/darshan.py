"""Darshan's logs, into a run that is on record.

Each log is looked at twice: once for what it says of the process it is of, which ties it to a
process of Dask's, and once more for its rows. Counters are PyDarshan's, traces our own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.importers.added import COUNTERS, Added, Progress
from dask_strata.importers.clock_fit import estimate_shift
from dask_strata.importers.darshan_counters import Wanted, available, read_counters
from dask_strata.importers.darshan_log import DXT, DarshanLog, LogError, open_log
from dask_strata.importers.darshan_rows import counter_rows, log_row, segment_rows
from dask_strata.importers.darshan_survey import ID_CHARACTERS, Survey, survey
from dask_strata.importers.dask_side import DaskSide, dask_side
from dask_strata.importers.dxt import Trace
from dask_strata.importers.tying import Tie, happened_meanwhile, tie
from dask_strata.store.bulk import Addition
from dask_strata.store.reader import Record

KIND = "darshan"


def add_logs(
    files: Sequence[Path], addition: Addition, record: Record, process: str, progress: Progress
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

    Raises
    ------
    OSError
        The run's folder cannot be written.
    """
    work = _Import(addition, record, process)
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


class _Import:
    """One import: looks at logs, ties them, writes their rows."""

    def __init__(self, addition: Addition, record: Record, process: str) -> None:
        self.added = Added()
        self._addition = addition
        self._process = process
        self._side: DaskSide = dask_side(record)
        known = record.tables["imports"]
        self._known = set(known["sha256"].cast(pa.string()).to_pylist()) - {None}
        counted = record.tables["darshan_counters"]["log"]
        self._counted = set(pc.unique(counted.cast(pa.string())).to_pylist())
        self._logs: list[tuple[Survey, Tie | None]] = []
        self._surveys: list[Survey] = []
        #: Logs that are in the run, but without their counters.
        self._to_count: list[Survey] = []
        self._modules = _without_counters(record)

    def take(self, path: Path) -> None:
        """Look at a log, unless it is in the run."""
        try:
            with path.open("rb") as file:
                sha256 = hashlib.sha256()
                while piece := file.read(1 << 20):
                    sha256.update(piece)
            digest = sha256.hexdigest()
            if digest in self._known:
                self._again(path, digest)
                return
            self._known.add(digest)
            self._surveys.append(survey(path, digest))
        except LogError as error:
            self._refuse(path, str(error), digest)
        except OSError as error:
            self._refuse(path, f"cannot be read: {error.strerror or error}", None)

    def _again(self, path: Path, digest: str) -> None:
        self.added.again += 1
        if digest[:ID_CHARACTERS] in self._modules - self._counted and available():
            log = open_log(path)
            self._to_count.append(Survey(path, digest, log, {}))

    def _refuse(self, path: Path, why: str, digest: str | None) -> None:
        self.added.troubles.append(f"{path}: {why}")
        self._loss(path, path.name, why)
        if digest is not None:
            self._imported(path, digest, kept=0)

    def tie(self) -> None:
        """Tie the logs to processes, and leave out those that are of another run."""
        others = 0
        for found in self._surveys:
            tied = tie(found.facts, self._side)
            if tied is None and not happened_meanwhile(found.facts, self._side):
                others += 1
                continue
            self._logs.append((found, tied))
        n_tied = sum(1 for _, t in self._logs if t)
        foreign = len(self._logs) - n_tied
        self.added.files += len(self._logs)
        if n_tied:
            self.added.said.append(f"{_count(n_tied)} of processes of this run")
        if foreign:
            self.added.said.append(f"{_count(foreign)} of other programs meanwhile, kept as such")
        if others:
            self.added.said.append(
                f"{_count(others)} of no process of this run, nor of its time: left out"
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
            kept = self._write_traces(found)
            self._addition.write_rows("darshan_logs", [log_row(found, tied, shift)])
            for trouble in found.troubles:
                self.added.troubles.append(f"{found.path}: {trouble}")
                self._loss(found.path, found.path.name, trouble)
            self._imported(found.path, found.sha256, kept)
            self.added.rows += 1 + kept
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
        logs = [found for found, _ in self._logs] + self._to_count
        wanted = [(found, Wanted(found.path, _countable(found.log))) for found in logs]
        wanted = [(found, w) for found, w in wanted if w.modules]
        if wanted and not available():
            self.added.troubles.append(
                "PyDarshan is not installed, so that counters are left out: pip install "
                "'dask-strata[darshan]' (Python up to 3.12), then import again."
            )
            self._loss(None, COUNTERS, "PyDarshan is not installed here", len(wanted))
            return
        answers = read_counters([w for _, w in wanted])
        for (found, _), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, str):
                self.added.troubles.append(f"{found.path}: no counters: {answer}")
                self._loss(found.path, f"counters of {found.path.name}", answer)
                continue
            self.added.rows += len(answer)
            self._addition.write("darshan_counters", counter_rows(answer, found.id))

    def _imported(self, path: Path, sha256: str, kept: int) -> None:
        row = {
            "file": path.name,
            "folder": str(path.absolute().parent),
            "kept": kept,
            "size_bytes": path.stat().st_size,
            "kind": KIND,
            "sha256": sha256,
            "process": self._process,
        }
        self._addition.write_rows("imports", [row])
        self.added.noted += 1

    def _loss(self, path: Path | None, what: str, reason: str, count: int | None = None) -> None:
        where = None if path is None else str(path.absolute())
        row = {"what": what, "count": count, "reason": reason, "where": where}
        self._addition.write_rows("losses", [row | {"process": self._process}])
        self.added.noted += 1


def _count(n: int) -> str:
    return f"{n:,} log" if n == 1 else f"{n:,} logs"


def _without_counters(record: Record) -> set[str]:
    """Return ids of the logs that are in a run and have modules with counters."""
    logs = record.tables["darshan_logs"].select(["log", "modules"]).to_pylist()
    return {row["log"] for row in logs if set(json.loads(row["modules"] or "[]")) - set(DXT)}


def _countable(log: DarshanLog) -> tuple[str, ...]:
    """Return the modules that PyDarshan has counters of."""
    known = {"POSIX", "STDIO", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "LUSTRE"}
    known |= {"HEATMAP", "DFS", "DAOS", "BG/Q"}
    return tuple(m for m, region in log.modules.items() if m in known and not log.cut(region))

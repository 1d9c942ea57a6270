"""Add Darshan's logs to a run.

Each log is read twice: first for the facts that match it to a Dask process, then for its rows.
PyDarshan reads the counters; `dxt` reads the traces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.importers.darshan.clock_fit import Shift, estimate_shift
from dask_strata.importers.darshan.counters import Wanted, available, read_counters
from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import DXT, DarshanLog, LogError, open_log
from dask_strata.importers.darshan.rows import counter_rows, log_row, segment_rows
from dask_strata.importers.darshan.survey import ID_CHARACTERS, Survey, survey
from dask_strata.importers.darshan.time_match import match_by_time
from dask_strata.importers.dask_processes import read_recorded_processes
from dask_strata.importers.process_match import ProcessMatch, match_process, overlaps_run
from dask_strata.importers.results import (
    ImportLog,
    ImportResult,
    ImportTarget,
    file_digest,
    imported_digests,
)
from dask_strata.schema.values import LOST_COUNTERS
from dask_strata.store.reader import Record

KIND = "darshan"

#: A clock that is off by more is reported.
_REPORTED_SHIFT_SECONDS = 60


def add_logs(files: Sequence[Path], target: ImportTarget) -> ImportResult:
    """Add the rows of some logs to a run.

    Parameters
    ----------
    files : sequence of Path
        The logs.
    target : ImportTarget
        The run.

    Returns
    -------
    ImportResult
        Counts, and the logs that could not be read.

    Raises
    ------
    OSError
        The run's folder cannot be written.
    """
    work = _Import(target)
    total = sum(_size(path) for path in files)
    done = 0
    for path in files:
        work.survey(path)
        done += _size(path)
        target.progress(done // 2, total)
    work.match()
    work.write(total)
    return work.result


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _KnownLogs:
    """The logs that a run has already.

    Attributes
    ----------
    logs, traced, counted : set of str
        Ids of the logs with a row in ``darshan_logs``, with traces, and with counters.
    files : set of str
        SHA-256 of the imported files.
    workers : set of str
        Workers with a log.
    """

    def __init__(self, record: Record) -> None:
        names = ["log", "n_segments", "modules", "worker"]
        rows = record.tables["darshan_logs"].select(names).to_pylist()
        self.logs = {row["log"] for row in rows}
        self.workers = {row["worker"] for row in rows}
        self.traced = _ids(record, "darshan_segments")
        self.counted = _ids(record, "darshan_counters")
        self.files = imported_digests(record)
        lacking_traces = {row["log"] for row in rows if row["n_segments"]} - self.traced
        self._complete = self.logs - lacking_traces
        self._countable = {
            row["log"] for row in rows if set(json.loads(row["modules"] or "[]")) - set(DXT)
        }

    def complete(self, log: str) -> bool:
        """Return whether the run has a log and its traces."""
        return log in self._complete

    def lacks_counters(self, log: str) -> bool:
        """Return whether a log of the run has counters that the run lacks."""
        return log in self._countable - self.counted


def _ids(record: Record, table: str) -> set[str]:
    return set(pc.unique(record.tables[table]["log"].cast(pa.string())).to_pylist())


def _survey(path: Path, digest: str) -> Survey:
    """Return the survey of a log; raise now if its numbers are too large for facts or sample."""
    found = survey(path, digest)
    _ = found.facts, found.sample
    return found


class _Import:
    """One import: surveys logs, matches them to processes, writes their rows."""

    def __init__(self, target: ImportTarget) -> None:
        self.result = ImportResult()
        self._target = target
        self._log = ImportLog(KIND, target, self.result)
        self._recorded = read_recorded_processes(target.record)
        self._known = _KnownLogs(target.record)
        self._digests: set[str] = set()
        self._surveys: list[Survey] = []
        self._kept: list[tuple[Survey, ProcessMatch | None]] = []
        self._shifts: dict[str, Shift] = {}
        #: Logs that the run has already, but without their counters.
        self._only_counters: list[Survey] = []

    def survey(self, path: Path) -> None:
        """Survey a log, unless the run has it already."""
        digest = None
        try:
            digest = file_digest(path)
            if digest in self._digests or self._known.complete(digest[:ID_CHARACTERS]):
                self._skip_known(path, digest)
            else:
                self._surveys.append(_survey(path, digest))
            self._digests.add(digest)
        except LogError as error:
            self._log.refuse_file(path, str(error), digest)
        except OSError as error:
            self._log.refuse_file(path, f"cannot be read: {error.strerror or error}", None)
        except Exception as error:  # noqa: BLE001  one damaged log must not stop the other logs
            reason = str(error) or type(error).__name__
            self._log.refuse_file(path, f"cannot be understood: {reason}", digest)

    def _skip_known(self, path: Path, digest: str) -> None:
        self.result.already_imported += 1
        log = digest[:ID_CHARACTERS]
        if digest not in self._digests and self._known.lacks_counters(log) and available():
            self._only_counters.append(Survey(path, digest, open_log(path), {}))

    def match(self) -> None:
        """Match the surveyed logs to processes, and leave out the logs of other runs."""
        n_others = 0
        unmatched = {}
        for found in self._surveys:
            matched = match_process(found.facts, self._recorded)
            if matched is None and not overlaps_run(found.facts, self._recorded):
                n_others += 1
                if not self._target.keep_others:
                    continue
            elif matched is None:
                unmatched[found.id] = found.facts, found.sample_of_tasks
            self._kept.append((found, matched))
        taken = {match.worker for _, match in self._kept if match} | self._known.workers
        by_time, not_compared = match_by_time(unmatched, taken, self._recorded)
        for number, (found, _) in enumerate(self._kept):
            if found.id in by_time:
                match, self._shifts[found.id] = by_time[found.id]
                self._kept[number] = found, match
        n_matched = sum(1 for _, match in self._kept if match)
        n_others_kept = n_others if self._target.keep_others else 0
        n_meanwhile = len(self._kept) - n_matched - n_others_kept
        notes = self.result.notes
        self.result.files += len(self._kept)
        if n_matched:
            by_times = f", {len(by_time):,} by the times of their operations" if by_time else ""
            notes.append(f"{_count(n_matched)} of processes of this run{by_times}")
        if n_meanwhile:
            unclear = "" if not not_compared else " or of processes that could not be determined"
            notes.append(
                f"{_count(n_meanwhile)} of other programs that ran at the same time{unclear}, kept"
            )
        for why, n in Counter(not_compared.values()).items():
            notes.append(f"{_count(n)} not matched by the times of operations: {why}")
        if n_others:
            outcome = "kept" if n_others_kept else "left out (--others keeps them)"
            notes.append(
                f"{_count(n_others)} that match neither this run's processes nor its time: "
                f"{outcome}"
            )

    def write(self, total: int) -> None:
        """Write the rows of the logs, which have `total` bytes. Raises OSError."""
        n_shifted = 0
        done = total // 2
        for found, matched in self._kept:
            shift = self._shifts.get(found.id)
            if matched is not None and shift is None:
                executions = self._recorded.executions_in(matched.process, matched.worker)
                shift = estimate_shift(found.sample, executions)
            if shift is not None and abs(shift.seconds) > _REPORTED_SHIFT_SECONDS:
                n_shifted += 1
            self.result.rows += self._write_log(found, matched, shift)
            done += found.log.size // 2
            self._target.progress(done, total)
        if n_shifted:
            self.result.notes.append(
                f"{_count(n_shifted)} with a clock more than a minute off: shifted to fit the tasks"
            )
        self._write_counters()

    def _write_log(self, found: Survey, matched: ProcessMatch | None, shift: Shift | None) -> int:
        """Write the rows of a log, except its counters, and return how many."""
        # The run has some tables of this log already if the Parquet of others is damaged.
        n_rows = 0 if found.id in self._known.traced else self._write_traces(found)
        if found.id not in self._known.logs:
            self._target.addition.write_rows("darshan_logs", [log_row(found, matched, shift)])
            n_rows += 1
        for problem in found.problems:
            self.result.problems.append(f"{found.path}: {problem}")
            self._log.add_loss(found.path, found.path.name, problem)
        if found.sha256 not in self._known.files:
            self._log.add_file(found.path, found.sha256, n_rows)
        return n_rows

    def _write_traces(self, found: Survey) -> int:
        n_rows = 0
        names = pa.array(found.names.values(), pa.string())
        ids = np.array(list(found.names), np.uint64)
        order = np.argsort(ids)
        for module in found.traces:
            try:
                for operations in Trace(found.log, module, found.names):
                    codes = order[np.searchsorted(ids[order], operations.file)]
                    uri = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)
                    rows = segment_rows(operations, found, module, uri, n_rows)
                    self._target.addition.write("darshan_segments", rows)
                    n_rows += len(rows)
            except LogError:
                continue  # the survey reported it
        return n_rows

    def _write_counters(self) -> None:
        logs = [found for found, _ in self._kept if found.id not in self._known.counted]
        logs += self._only_counters
        wanted = [(found, Wanted(found.path, _countable(found.log))) for found in logs]
        wanted = [(found, w) for found, w in wanted if w.modules]
        if wanted and not available():
            self.result.problems.append(
                "PyDarshan is not installed: counters are left out. Run pip install "
                "'dask-strata[darshan]' (Python up to 3.12), then import again."
            )
            self._log.add_loss(None, LOST_COUNTERS, "PyDarshan is not installed here", len(wanted))
            return
        answers = read_counters([w for _, w in wanted])
        for (found, _), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, str):
                self.result.problems.append(f"{found.path}: no counters: {answer}")
                self._log.add_loss(found.path, f"counters of {found.path.name}", answer)
                continue
            self.result.rows += len(answer)
            self._target.addition.write("darshan_counters", counter_rows(answer, found.id))


def _count(n: int) -> str:
    return f"{n:,} log" if n == 1 else f"{n:,} logs"


def _countable(log: DarshanLog) -> tuple[str, ...]:
    """Return the modules of a log whose counters PyDarshan can read, without those cut off."""
    readable = {"POSIX", "STDIO", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "LUSTRE"}
    readable |= {"HEATMAP", "DFS", "DAOS", "BG/Q"}
    return tuple(m for m, region in log.modules.items() if m in readable and not log.cut(region))

"""The summary of a run from its folder, or computed and then stored there.

A finalised run has all rows in Parquet, so that its answers stay the same as long as its files
do. A summary belongs to the files of a run by their sizes and checksums: after any change or
damage the answers are computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dask_strata.analysis.breakdown import KINDS, PREFIX_KINDS
from dask_strata.analysis.critical_path.walk import CAUSES as PATH_CAUSES
from dask_strata.analysis.critical_path.walk import CriticalPath, critical_path
from dask_strata.analysis.jobs.absent_workers import CAUSES
from dask_strata.analysis.outcome import OUTCOMES
from dask_strata.analysis.overview.comparable import Comparable
from dask_strata.analysis.overview.compute_comparable import compute_comparable
from dask_strata.analysis.overview.growing import summary_of_growing
from dask_strata.analysis.overview.row import ENDED, PART, RunRow, compute_row
from dask_strata.analysis.summary import Summary, summarize
from dask_strata.errors import InterruptedQueryError, StrataError
from dask_strata.run import open_run
from dask_strata.store.index import read_index
from dask_strata.store.manifest import ADDITIONS, INDEX, PARQUET, SEGMENTS
from dask_strata.store.segments.read import segment_state
from dask_strata.store.summaries.files import OLD, RunFiles, list_files
from dask_strata.store.summaries.summary_file import (
    StoredSummary,
    checksums,
    read_summary,
    write_summary,
)
from dask_strata.store.summaries.typed_json import from_json, to_json

if TYPE_CHECKING:
    from dask_strata.run import Run

T = TypeVar("T")

_SUMMARY, _COMPARE = "summary", "compare"

#: Largest share of a breakdown that is not nonsense, with a margin for rounding.
_LARGEST_SHARE = 2.0

#: Largest number that is shown or compared, so that sums and products stay in range.
_LARGEST_NUMBER = 1e17


def store_summary(folder: Path) -> bool:
    """Store the summary of a finalised run in its folder.

    A summary for the present files of the run stays as it is.

    Parameters
    ----------
    folder : Path
        The run's folder.

    Returns
    -------
    bool
        Whether the folder has a summary now. False if the run is not finalised, is damaged or
        still recorded, or if the folder cannot be written.
    """
    files = list_files(folder)
    stored = read_summary(files, verify=True)
    if stored is not None and _summary_in(stored) is not None:
        return True
    try:
        return _store(open_run(folder), files)
    except InterruptedQueryError:
        raise
    except StrataError:
        return False


def summary_of(run: Run) -> Summary:
    """Return the summary of a run: the stored one if all files are as they were, or a new one.

    Parameters
    ----------
    run : Run
        The run.
    """
    if not _is_whole_run(run):
        return summarize(run)
    if run.is_growing:
        return summary_of_growing(run)
    files = list_files(run.path)
    stored = read_summary(files, verify=True)
    summary = None if stored is None else _summary_in(stored)
    if summary is None:
        may_store = not run.is_read  # tables that were read before may be older than the files
        path = critical_path(run)
        summary = summarize(run, path)
        if may_store:
            _store(run, files, summary, path)
    return replace(summary, path=run.location)


def row_of(folder: Path, files: RunFiles) -> RunRow:
    """Compute the row of a run in a list; store the summary of a finalised run.

    Parameters
    ----------
    folder : Path
        The run's folder.
    files : RunFiles
        The files of the run.

    Raises
    ------
    StrataError
        The run cannot be read.
    """
    run = open_run(folder)
    found = _computed(run, files) if _may_store(run, files) else None
    if found is None:
        return compute_row(run)
    with suppress(OSError, ValueError):  # a later reader computes it
        write_summary(files, *found)
    return from_json(RunRow, found[1][PART])


def compared(run: Run) -> tuple[Summary, Comparable]:
    """Return the summary of a run and the values that are compared: stored, or computed.

    Parameters
    ----------
    run : Run
        The run.
    """
    files = None
    if _is_whole_run(run) and not run.is_growing:
        files = list_files(run.path)
        stored = read_summary(files, verify=False)
        summary = None if stored is None else _summary_in(stored)
        values = None if stored is None else _values_in(stored)
        if summary is not None and values is not None:
            return replace(summary, path=run.location), values
    may_store = not run.is_read
    path = critical_path(run)
    summary, values = summarize(run, path), compute_comparable(run, path)
    if files is not None and may_store:
        _store(run, files, summary, path, values)
    return summary, values


def _is_whole_run(run: Run) -> bool:
    """Return whether all tasks of a run are shown, with aligned times."""
    return run.client is None and run.align


def _summary_in(stored: StoredSummary) -> Summary | None:
    summary = _read(stored, _SUMMARY, Summary)
    return None if summary is None or not _is_consistent(summary) else summary


def _values_in(stored: StoredSummary) -> Comparable | None:
    values = _read(stored, _COMPARE, Comparable)
    return None if values is None or not _can_be_compared(values) else values


def _read(stored: StoredSummary, name: str, kind: type[T]) -> T | None:
    try:
        return from_json(kind, stored.part(name))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _is_consistent(summary: Summary) -> bool:
    """Return whether views can show a summary: texts that they look up, lengths of bars."""
    seconds = summary.breakdown.seconds
    return (
        summary.state in ENDED
        and summary.outcome in OUTCOMES
        and seconds.keys() == set(KINDS)
        and all(abs(summary.breakdown.share(kind)) <= _LARGEST_SHARE for kind in KINDS)
        and all(p.seconds.keys() == set(PREFIX_KINDS) for p in summary.breakdown.prefixes)
        and all(absent.cause in CAUSES for absent in summary.absent_workers)
        and all(
            abs(number) <= _LARGEST_NUMBER
            for number in _numbers(to_json(summary))
            if isinstance(number, float)  # whole numbers may be times in nanoseconds
        )
    )


def _can_be_compared(values: Comparable) -> bool:
    """Return whether a comparison can compute with values: sums of some tasks, no negative time."""
    sample = values.sample
    known = range(len(sample.ids))
    return (
        all(used.tasks > 0 and used.attempts >= 0 for used in values.prefixes.values())
        and all(p.nanoseconds >= 0 and p.cause in PATH_CAUSES for p in values.path)
        and all(place.n > 0 and place.seconds > 0 for place in values.places)
        and all(sums.n > 0 for sums in values.sizes)
        and len(sample.ids) == len(sample.workers) == len(sample.order)
        and all(number in known for number in (*sample.workers, *sample.order))
        and values.lost_workers >= 0
        and all(abs(number) <= _LARGEST_NUMBER for number in _numbers(to_json(values)))
    )


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a value of JSON."""
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)


def stored_parts(run: Run) -> dict[str, Any] | None:
    """Return the parts of the summary of a finalised run: stored ones, or computed ones.

    Nothing is written.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    dict or None
        The parts as values that JSON can represent; None if the run is not finalised, is damaged
        or still recorded.
    """
    files = list_files(run.path)
    stored = read_summary(files, verify=True)
    if stored is not None and _summary_in(stored) and _values_in(stored):
        return {name: stored.part(name) for name in stored.lines}
    found = _computed(run, files)
    return None if found is None else found[1]


def _store(
    run: Run,
    files: RunFiles,
    summary: Summary | None = None,
    path: CriticalPath | None = None,
    values: Comparable | None = None,
) -> bool:
    """Store the summary of a run, unless it may change without a change of the files."""
    if not _may_store(run, files):
        return False
    try:
        found = _computed(run, files, summary, path, values)
        if found is None:
            return False
        write_summary(files, *found)
    except InterruptedQueryError:
        raise
    except (OSError, ValueError, StrataError):
        return False  # a later reader computes it
    return True


def _may_store(run: Run, files: RunFiles) -> bool:
    """Return whether a summary can be written; a bundle is only read."""
    return files.folder == run.path and os.access(run.path / PARQUET, os.W_OK)


def _computed(
    run: Run,
    files: RunFiles,
    summary: Summary | None = None,
    path: CriticalPath | None = None,
    values: Comparable | None = None,
) -> tuple[dict[str, int], dict[str, Any]] | None:
    """Return the checksums of a run's files and the parts of its summary.

    Return None if the answers may change without a change of the files, or cannot be stored.
    """
    try:
        if not _is_final(run, files):
            return None
        crcs = checksums(files)
        if not _is_indexed(run, crcs):
            return None
        path = critical_path(run) if path is None else path
        found = summarize(run, path) if summary is None else summary
        parts: dict[str, Any] = {
            PART: compute_row(run, found.insights),
            _SUMMARY: replace(found, path=""),  # where the folder was is nobody's business later
            _COMPARE: compute_comparable(run, path) if values is None else values,
        }
        stored = {name: to_json(part) for name, part in parts.items()}
        if run.record.failed or not _is_readable(stored, parts):
            return None
    except InterruptedQueryError:
        raise
    except (OSError, ValueError, TypeError, ArithmeticError, StrataError):
        return None
    return crcs, stored


def _is_readable(stored: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Return whether reading returns the same answers."""
    return all(
        from_json(type(part), json.loads(json.dumps(stored[name]))) == part
        for name, part in parts.items()
    )


def _is_final(run: Run, files: RunFiles) -> bool:
    """Return whether all rows of a run are in its Parquet, or in segments that have ended."""
    top = {name.partition("/")[0] for name in files.files}
    index = f"{PARQUET}/{INDEX}"
    if not _is_whole_run(run) or not files.regular or index not in files.files:
        return False
    if top & {OLD, ADDITIONS}:
        return False
    record = run.record
    known = {f"{SEGMENTS}/{s.path.name}": s.size for s in read_index(run.path, PARQUET).segments}
    present = {n: s.size for n, s in files.files.items() if n.startswith(f"{SEGMENTS}/")}
    return (
        present.items() <= known.items()
        and not (record.damaged or record.refused or record.failed)
        and all(segment_state(segment) != "recording" for segment in record.segments)
    )


def _is_indexed(run: Run, crcs: dict[str, int]) -> bool:
    """Return whether the files of the Parquet are those that its index has checksums of."""
    found: dict[str, list[int]] = {}
    for name, crc in crcs.items():
        top, _, rest = name.partition("/")
        if top == PARQUET and rest != INDEX:
            found.setdefault(rest.partition("/")[0], []).append(crc)
    expected = read_index(run.path, PARQUET).checksums
    return {n: sorted(c) for n, c in found.items()} == {n: sorted(c) for n, c in expected.items()}

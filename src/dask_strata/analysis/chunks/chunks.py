"""Chunks of data: sums by dataset, file and worker, slow and failed chunks, bytes read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.chunks.file_reads import (
    Advice,
    Reading,
    advise,
    divided_trees,
    read_files,
)
from dask_strata.analysis.tasks import only, ordered
from dask_strata.errors import UsageError
from dask_strata.run.table_view import microseconds
from dask_strata.schema import NO_USER, REDACTED

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: Columns of the table on a terminal; the other formats have all columns.
BRIEF = (
    "dataset",
    "uri",
    "first",
    "last",
    "worker",
    "n_attempts",
    "seconds",
    "open_seconds",
    "build_seconds",
    "process_seconds",
    "read_bytes",
    "state",
    "key",
)

#: The most important columns first, where there is no space for all.
IMPORTANT = ("uri", "state", "seconds", "first", "last", "worker", "read_bytes")

#: States of chunks whose result is complete.
DONE = ("done", "retried")

#: States of chunks that must be processed again.
TO_RUN_AGAIN = ("failed", "skipped", "lost")


@dataclass(frozen=True)
class Share:
    """Sums over chunks with the same dataset, file or worker.

    Attributes
    ----------
    name : str
        The dataset, file or worker.
    chunks, done : int
        Number of chunks, and of those with a result.
    events : int or None
        Events of chunks with a result; None if unknown for all of them.
    read_bytes : int or None
        Bytes read; None if unknown for all chunks.
    seconds : float
        Time in the tasks.
    unread, uncounted : int
        Number of chunks whose bytes read are unknown, and of those with a result whose events
        are.
    """

    name: str
    chunks: int
    done: int
    events: int | None
    read_bytes: int | None
    seconds: float
    unread: int
    uncounted: int

    @property
    def events_per_second(self) -> float | None:
        """Events per second of the tasks' time; None if unknown."""
        return self.events / self.seconds if self.seconds and self.events is not None else None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read per second of the tasks' time; None if unknown."""
        if self.read_bytes is None or not self.seconds:
            return None
        return self.read_bytes / self.seconds


@dataclass(frozen=True)
class Rerun:
    """A fileset of chunks to process again, and the chunks whose file or entries are unknown."""

    fileset: dict[str, Any]
    left_out: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Compared:
    """A number in coffea's own report, and the same number in the record; None if unknown."""

    name: str
    reported: float
    recorded: float | None

    @property
    def equal(self) -> bool:
        """Whether both are exactly equal."""
        return self.reported == self.recorded


@dataclass(frozen=True)
class Chunks:
    """The chunks of a run, or a selection of them.

    Attributes
    ----------
    total : Share
        Sums over all chunks.
    states : mapping
        Number of chunks by state.
    elapsed_seconds : float or None
        Time from the first start to the last end.
    phases : mapping
        Seconds by phase: open, build, process, other.
    by_dataset, by_file, by_worker : sequence of Share
        Sums, those with most seconds first.
    slowest : sequence of mapping
        Rows of the five slowest chunks.
    troubled : sequence of mapping
        Rows of chunks that failed, were skipped or lost, or needed several attempts.
    lost_files : sequence of mapping
        Files of which no chunk is on record because they could not be opened.
    begun_files : frozenset
        Dataset, uri and tree of files with a chunk that has a result or may still get one.
    reading : sequence of Reading
        Bytes requested by file.
    advice : sequence of Advice
        Advice on the size of chunks.
    compared : sequence of Compared
        Comparison with coffea's own report, if one was given.
    """

    total: Share
    states: Mapping[str, int]
    elapsed_seconds: float | None
    phases: Mapping[str, float]
    by_dataset: Sequence[Share]
    by_file: Sequence[Share]
    by_worker: Sequence[Share]
    slowest: Sequence[Mapping[str, Any]]
    troubled: Sequence[Mapping[str, Any]]
    lost_files: Sequence[Mapping[str, Any]]
    begun_files: frozenset[tuple[Any, ...]]
    reading: Sequence[Reading]
    advice: Sequence[Advice]
    compared: Sequence[Compared] = ()


def select_chunks(
    run: Run, *, dataset: str | None = None, state: str | None = None, sort: str | None = None
) -> pa.Table:
    """Return selected rows of the table ``chunks``.

    Parameters
    ----------
    run : Run
        The run.
    dataset, state : str, optional
        Only chunks of this dataset, or in this state.
    sort : str, optional
        Column to sort by, largest first; smallest first if the name begins with ``-``.

    Raises
    ------
    UsageError
        There is no such dataset, state or column.
    """
    table = run["chunks"].to_arrow()
    for column, wanted in (("dataset", dataset), ("state", state)):
        if wanted is not None:
            table = only(table, column, wanted, "chunk")
    return ordered(table, sort) if sort else table


def summarize_chunks(
    run: Run,
    *,
    dataset: str | None = None,
    state: str | None = None,
    report: Mapping[str, Any] | None = None,
    size_of: Callable[[str], int | None] | None = None,
) -> Chunks:
    """Return the chunks of a run with sums, speeds and advice.

    Parameters
    ----------
    run : Run
        The run.
    dataset, state : str, optional
        Only chunks of this dataset, or in this state.
    report : mapping, optional
        coffea's own report on the run, to compare with the record.
    size_of : callable, optional
        Function that returns the size of a file, or None if it is unknown; `file_size` by
        default.

    Raises
    ------
    UsageError
        There is no such dataset or state.
    """
    table = select_chunks(run, dataset=dataset, state=state)
    rows: list[dict[str, Any]] = microseconds(table).to_pylist()
    names = {r["worker"]: r["name"] for r in run.rows("select worker, name from workers")}
    starts = [row["start"] for row in rows if row["start"] is not None]
    stops = [row["stop"] for row in rows if row["stop"] is not None]
    divided = divided_trees(run)
    reading = read_files(run, rows, divided, size_of or file_size)
    lost = [f for f in run.rows("select * from _skipped_files") if dataset in (None, f["dataset"])]
    timed = [row for row in rows if row["seconds"] is not None]
    return Chunks(
        total=_share("all", rows),
        states=_counted(row["state"] for row in rows),
        elapsed_seconds=(max(stops) - min(starts)).total_seconds() if starts and stops else None,
        phases=_phases(rows),
        by_dataset=_shares(rows, lambda row: row["dataset"] or "(no name)"),
        by_file=_shares(rows, lambda row: row["uri"] or "(unknown)"),
        by_worker=_shares(
            (row for row in rows if row["worker"]),
            lambda row: f"{row['worker']} ({names.get(row['worker'])})",
        ),
        slowest=sorted(timed, key=lambda row: -row["seconds"])[:5],
        troubled=[row for row in rows if row["state"] not in ("done", "running")],
        lost_files=lost if state is None else [],
        begun_files=frozenset(
            (row["dataset"], row["uri"], row["tree"])
            for row in run.rows("select distinct dataset, uri, tree, state from chunks")
            if row["state"] not in TO_RUN_AGAIN
        ),
        reading=reading,
        advice=advise(rows, divided, reading),
        compared=() if report is None else _compare(report, rows),
    )


def file_size(uri: str) -> int | None:
    """Return the size of a file in bytes; None if this machine cannot see it.

    Parameters
    ----------
    uri : str
        Path or address of the file.
    """
    try:
        return os.stat(uri).st_size  # noqa: PTH116  an address is not a path
    except (OSError, ValueError):
        return None


def fileset_to_run_again(chunks: Chunks) -> Rerun:
    """Return the chunks without a result, as a fileset in the form of coffea's dataset tools.

    ``apply_to_fileset`` and ``uproot.dask`` accept the fileset unchanged. The Runner's ``run``
    needs work items: ``[WorkItem(dataset, file, spec["object_path"], *step, b"") for …]``. A file
    without steps must be processed as a whole, because none of its chunks has a result.

    Parameters
    ----------
    chunks : Chunks
        The chunks.
    """
    found: dict[str, Any] = {}
    left_out: list[Mapping[str, Any]] = []
    whole = {_file_of(row) for row in chunks.lost_files}
    vague = {_file_of(row) for row in chunks.troubled if row["first"] is None}
    whole |= vague - chunks.begun_files
    for row in (*chunks.lost_files, *(r for r in chunks.troubled if r["state"] in TO_RUN_AGAIN)):
        uri, file = row["uri"], _file_of(row)
        entries = file not in whole
        # An address with redacted parts cannot be opened again.
        if uri is None or NO_USER in uri or REDACTED in uri or (entries and row["first"] is None):
            left_out.append(row)
            continue
        files = found.setdefault(row["dataset"] or "", {"files": {}})["files"]
        spec: dict[str, Any] = files.setdefault(uri, {"object_path": row["tree"]})
        if entries:
            spec.setdefault("steps", []).append([row["first"], row["last"]])
    for dataset in found.values():
        for spec in dataset["files"].values():
            if "steps" in spec:
                spec["steps"] = sorted([*step] for step in {(*step,) for step in spec["steps"]})
    return Rerun(found, left_out)


def _file_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["dataset"], row["uri"], row["tree"]


def read_report(path: Path) -> dict[str, Any]:
    """Return coffea's own report from a JSON file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    UsageError
        The file cannot be read or is not such a report.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(found, dict) or not any(_is_number(found.get(n)) for n in _REPORTED):
        raise UsageError(
            f"{path} is not a report of coffea's: it has none of {', '.join(_REPORTED)}.",
            hint="Run the Runner with savemetrics=True, then "
            "json.dump({k: report[k] for k in ('bytesread', 'entries', 'chunks')}, file)",
        )
    return found


def _compare(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Compared]:
    done = [row for row in rows if row["state"] in DONE]
    return [
        Compared(name, report[name], recorded(rows, done))
        for name, recorded in _REPORTED.items()
        if _is_number(report.get(name))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


#: Numbers of coffea's report: bytes and events of chunks with a result, and number of chunks.
_REPORTED: dict[str, Callable[[Sequence[Any], Sequence[Any]], float | None]] = {
    "bytesread": lambda _, done: _sum(done, "read_bytes"),
    "entries": lambda _, done: _sum(done, "events") if done else 0,
    "chunks": lambda rows, _: len(rows),
}


def _sum(rows: Sequence[Mapping[str, Any]], column: str) -> Any:
    """Return the sum of a column without its unknown values; None if all are unknown."""
    known = [row[column] for row in rows if row[column] is not None]
    return sum(known) if known else None


def _share(name: str, rows: Sequence[Mapping[str, Any]]) -> Share:
    done = [row for row in rows if row["state"] in DONE]
    # Several chunks can share a task: count its seconds once.
    seconds = {(row["key"], row["attempt"]): row["seconds"] or 0.0 for row in rows}
    return Share(
        name,
        len(rows),
        len(done),
        _sum(done, "events") if done else 0,
        _sum(rows, "read_bytes"),
        sum(seconds.values()),
        sum(row["read_bytes"] is None for row in rows),
        sum(row["events"] is None for row in done),
    )


def _shares(rows: Any, name: Callable[[Mapping[str, Any]], str]) -> list[Share]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return sorted((_share(n, g) for n, g in groups.items()), key=lambda s: (-s.seconds, s.name))


def _phases(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    sums = {name: _sum(rows, f"{name}_seconds") for name in ("open", "build", "process", "other")}
    return {name: seconds for name, seconds in sums.items() if seconds is not None}


def _counted(values: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))

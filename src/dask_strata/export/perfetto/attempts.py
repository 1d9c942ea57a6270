"""Attempts with their phases as slices of the threads that ran them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_strata.export.perfetto.dependencies import Dependencies
from dask_strata.export.perfetto.trace import TraceFile
from dask_strata.export.perfetto.tracks import Lanes, Tracks
from dask_strata.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

#: Attempts that are sorted together, and rows that are in memory as Python's objects.
WINDOW_ROWS, PART_ROWS = 1 << 17, 1 << 12

#: Actions of phases that happen on the event loop: transfers have tracks of their own.
_ELSEWHERE = "transfer"

# An attempt is on its thread from its first phase there to its last one.
_BLOCKS = f"""
    select t.attempt, coalesce(p.a, epoch_ns(t.start)) as block_start,
           coalesce(greatest(p.a, p.b), epoch_ns(t.stop)) as block_stop,
           p.attempt is not null as executed
    from attempts t left join (
        select attempt, min(epoch_ns(start)) as a, max(epoch_ns(stop)) as b from phases
        where action is distinct from '{_ELSEWHERE}' and start is not null and stop is not null
        group by attempt
    ) p using (attempt)
"""  # noqa: S608  no value of the record

_WINDOW = f"""
    with blocks as materialized (
        select * from ({_BLOCKS}) where block_start >= $1 and block_start < $2
    ), within as (
        select attempt, list({{action: action, a: epoch_ns(start), b: epoch_ns(stop)}}
                             order by start, stop desc, action) as phases
        from phases semi join blocks using (attempt)
        where action is distinct from '{_ELSEWHERE}' and start is not null and stop is not null
        group by attempt
    )
    select b.attempt, b.block_start, b.block_stop, b.executed, t.key, t.key_type, t.prefix,
           t.worker, t.thread, t.outcome, t.nbytes, epoch_ns(t.start) as assigned, w.phases
    from blocks b join attempts t using (attempt) left join within w using (attempt)
    order by b.block_start, b.attempt
"""  # noqa: S608  no value of the record

#: Numbers of rows that the trace cannot contain as they are recorded.
_ODDITIES = f"""
    select (select count(*) from ({_BLOCKS}) where block_start is null or block_start < 0)
           as without_time,
           (select count(*) from phases where action is distinct from '{_ELSEWHERE}'
            and (start is null or stop is null)) as phases_without_time,
           (select count(*) from phases where action = '{_ELSEWHERE}') as elsewhere
"""  # noqa: S608  no value of the record


class _Phase(NamedTuple):
    name: str
    start: int
    stop: int


@dataclass
class Oddities:
    """Numbers of slices that differ from the record."""

    backwards: int = 0
    crowded: int = 0
    overlapping: int = 0
    #: Phases of attempts that are events.
    without_place: int = 0


@dataclass(frozen=True)
class Blocks:
    """Attempts by the time at which they begin on their thread.

    Attributes
    ----------
    windows : tuple of pairs
        Times from which and before which about as many attempts begin.
    attempts : numpy array
        Numbers of the attempts, sorted.
    starts : numpy array
        When each of them begins.
    """

    windows: tuple[tuple[int, int], ...]
    attempts: Any
    starts: Any

    @property
    def first(self) -> int | None:
        """The earliest start."""
        return self.windows[0][0] if self.windows else None


def read_blocks(run: Run, *, keep: bool) -> Blocks:
    """Return when attempts begin on their threads.

    Parameters
    ----------
    run : Run
        The run.
    keep : bool
        Whether the start of each attempt is needed, and not the windows alone.
    """
    numbers, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    query = f"select attempt, block_start from ({_BLOCKS}) where block_start >= 0"  # noqa: S608
    for batch in run.batches(query):
        numbers.append(np.asarray(batch.column(0), np.int64))
        starts.append(np.asarray(batch.column(1), np.int64))
    all_starts = np.concatenate(starts)
    ordered = np.sort(all_starts)
    edges = np.unique(ordered[::WINDOW_ROWS]).tolist()
    windows = zip(edges, [*edges[1:], int(ordered[-1]) + 1], strict=True) if edges else ()
    if not keep:
        return Blocks(tuple(windows), None, None)
    all_numbers = np.concatenate(numbers)
    order = np.argsort(all_numbers, kind="stable")
    return Blocks(tuple(windows), all_numbers[order], all_starts[order])


class AttemptWriter:
    """Writes attempts and their phases.

    Parameters
    ----------
    trace : TraceFile
        The trace.
    tracks : Tracks
        Its tracks.
    dependencies : Dependencies
        Flows between attempts.
    """

    def __init__(self, trace: TraceFile, tracks: Tracks, dependencies: Dependencies) -> None:
        self._trace, self._tracks, self._dependencies = trace, tracks, dependencies
        self.attempts = self.phases = 0
        self.odd = Oddities()

    def write(
        self, run: Run, windows: Sequence[tuple[int, int]], progress: Callable[[int], None]
    ) -> None:
        """Write all attempts, a window of time after the other."""
        for begin, before in windows:
            for batch in run.batches(_WINDOW, begin, before):
                for start in range(0, len(batch), PART_ROWS):
                    part = batch.slice(start, PART_ROWS)
                    self._write_part(part)
                    progress(self.attempts)

    def _write_part(self, part: pa.RecordBatch) -> None:
        numbers = np.asarray(part["attempt"], np.int64)
        flows = self._dependencies.of(numbers)
        columns = [part[name].to_pylist() for name in part.schema.names[:-1]]
        for row, phases, (sent, received) in zip(
            zip(*columns, strict=True), _phases(part["phases"]), flows, strict=True
        ):
            self._write_attempt(row, phases, sent, received)

    def _write_attempt(
        self,
        row: tuple[Any, ...],
        phases: list[_Phase],
        sent: Sequence[int],
        received: Sequence[int],
    ) -> None:
        (attempt, start, stop, executed, key, key_type, prefix) = row[:7]
        (worker, thread, outcome, nbytes, assigned) = row[7:]
        self.attempts += 1
        stop = self._forwards(start, stop)
        lanes = self._lanes(worker, thread if executed else None)
        args = (
            ("key", key),
            ("key type", key_type),
            ("attempt", attempt),
            ("outcome", outcome),
            ("result bytes", nbytes),
            (
                "seconds before",
                (start - assigned) / 1e9 if executed and assigned is not None else None,
            ),
        )
        name = prefix or "(unknown)"
        track = lanes.place(start, stop)
        if track is None:
            self._write_crowded(lanes, name, start, stop, args)
            self.odd.without_place += len(phases)
            return
        self._trace.begin(track, name, "attempt", start, stop, args, sent=sent, received=received)
        if phases:
            self._write_phases(lanes, track, phases)
        if stop is not None:
            self._trace.end(track, stop)

    def _lanes(self, worker: str | None, thread: int | None) -> Lanes:
        if thread is not None:
            return self._tracks.lanes_of_thread(worker, thread)
        return self._tracks.lanes(self._tracks.worker(worker), "without phases")

    def _write_phases(self, lanes: Lanes, track: int, phases: list[_Phase]) -> None:
        """Write phases within their attempt; one that overlaps another gets a track of its own."""
        open_until: list[int] = []
        overlapping = []
        for phase in phases:
            name, start, stop = phase[0], phase[1], self._forwards(phase[1], phase[2])
            while open_until and open_until[-1] <= start:
                self._trace.end(track, open_until.pop())
            if open_until and stop is not None and stop > open_until[-1]:
                overlapping.append(_Phase(name, start, stop))
                continue
            self._trace.begin(track, name, "phase", start, stop)
            open_until.append(stop if stop is not None else start)
        while open_until:
            self._trace.end(track, open_until.pop())
        self.phases += len(phases)
        self.odd.overlapping += len(overlapping)
        for name, start, stop in overlapping:
            own = lanes.place(start, stop)
            if own is None:
                self._write_crowded(lanes, name, start, stop, (), category="phase")
            else:
                self._trace.slice(own, name, "phase", start, stop)

    def _write_crowded(  # noqa: PLR0913, PLR0917  the parts of a slice
        self,
        lanes: Lanes,
        name: str,
        start: int,
        stop: int | None,
        args: Sequence[tuple[str, Any]],
        category: str = "attempt",
    ) -> None:
        """Write a slice for which there is no track as an event."""
        self.odd.crowded += 1
        seconds = None if stop is None else (stop - start) / 1e9
        self._trace.instant(lanes.crowded(), name, category, start, (*args, ("seconds", seconds)))

    def _forwards(self, start: int, stop: int | None) -> int | None:
        """Return the stop of a slice: its start if it is before that."""
        if stop is not None and stop < start:
            self.odd.backwards += 1
            return start
        return stop


def _phases(column: pa.ListArray) -> Iterator[list[_Phase]]:
    """Yield the phases of each row."""
    values = column.flatten()
    rows = [
        *map(
            _Phase,
            [name or "(unknown)" for name in values.field("action").to_pylist()],
            values.field("a").to_pylist(),
            values.field("b").to_pylist(),
        )
    ]
    first = 0
    for length in column.value_lengths().to_pylist():
        yield rows[first : first + (length or 0)]
        first += length or 0


def note_oddities(run: Run, writer: AttemptWriter, note: Callable[[str], None]) -> None:
    """Note which rows are not in the trace, or differ from the record."""
    row = run.rows(_ODDITIES)[0]
    odd = writer.odd
    for number, what in (
        (row["without_time"], "Attempts without a time on record, not in the trace"),
        (row["phases_without_time"], "Phases without a time on record, not in the trace"),
        (
            row["elsewhere"],
            "Transfer phases of attempts, shown as their workers' transfers instead",
        ),
        (odd.backwards, "Slices that end before they start, as clocks differ, without duration"),
        (odd.overlapping, "Phases that overlap others of their attempt, on further tracks"),
        (odd.crowded, "Slices shown as events, as more than 100 overlap on their thread"),
        (odd.without_place, "Phases of attempts that are shown as events, not in the trace"),
    ):
        if number:
            note(f"{what}: {number:,}.")

"""What a trace shows besides attempts: transfers, failures, spans and the critical path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dask_strata.analysis.critical_path import critical_path
from dask_strata.export.perfetto.trace import TraceFile
from dask_strata.export.perfetto.tracks import Lanes, Tracks
from dask_strata.run import Run

#: Most characters of an exception's text.
MOST_CHARACTERS = 2000

_TRANSFERS = """
    select transfer, epoch_ns(start) as a, epoch_ns(stop) as b, source, destination, total_bytes,
           compressed_bytes, n_keys
    from transfers where start is not null and epoch_ns(start) >= 0 order by start, transfer
"""

_BLOCKED = """
    select worker, start_ns as a, stop_ns as b from _loop_blocks
    where start_ns >= 0 and stop_ns is not null order by start_ns, stop_ns, worker
"""

_FAILURES = """
    select epoch_ns(stop) as t, worker, key, attempt, prefix, outcome, exception, worker_end
    from attempts where outcome in ('erred', 'retried', 'lost') and epoch_ns(stop) >= 0
    order by stop, attempt
"""

_WORKER_ENDS = """
    select epoch_ns(stop) as t, worker, cause, signal, exit_status, ended, reason
    from worker_ends where epoch_ns(stop) >= 0 order by stop, worker
"""

_SPANS = """
    select n.name, n.tags, least(epoch_ns(n.enqueued), a.first) as a, a.last as b
    from (select name, any_value(tags) as tags, min(enqueued) as enqueued
          from spans group by name) n
    left join (select span as name, min(epoch_ns(start)) as first, max(epoch_ns(stop)) as last
               from attempts where span is not null group by span) a using (name)
    order by n.name
"""

_UNTIMED = """
    select (select count(*) from transfers where start is null or epoch_ns(start) < 0) as transfers,
           (select count(*) from attempts where outcome in ('erred', 'retried', 'lost')
            and (stop is null or epoch_ns(stop) < 0)) as failures,
           (select count(*) from worker_ends where stop is null or epoch_ns(stop) < 0)
               as worker_ends,
           (select count(*) from _loop_blocks where not coalesce(start_ns >= 0, false)
            or stop_ns is null) as blocks
"""


class ActivityWriter:
    """Writes what happened besides attempts.

    Parameters
    ----------
    trace : TraceFile
        The trace.
    tracks : Tracks
        Its tracks.
    """

    def __init__(self, trace: TraceFile, tracks: Tracks) -> None:
        self._trace, self._tracks = trace, tracks
        self.backwards = self.crowded = 0

    def transfers(self, run: Run) -> tuple[int, int]:
        """Write transfers at both ends; return their number, and that of the flows."""
        number = flows = 0
        for row in _rows(run, _TRANSFERS):
            transfer, start, _, source, destination = row[:5]
            args = (
                ("from", source),
                ("to", destination),
                ("bytes", row[5]),
                ("compressed bytes", row[6]),
                ("results", row[7]),
                ("transfer", transfer),
            )
            stop = self._forwards(start, row[2])
            ends = []
            if source is not None:
                ends.append((self._tracks.worker(source), "transfers out", "send"))
            if destination is not None:
                ends.append((self._tracks.worker(destination), "transfers in", "receive"))
            elif source is not None:
                ends.append((self._tracks.process("clients"), "transfers in", "receive"))
            # A flow leads from a slice to another one.
            flow = [transfer] if len(ends) == 2 else []  # noqa: PLR2004
            places = [self._tracks.lanes(pid, name).place(start, stop) for pid, name, _ in ends]
            if None in places:
                flow = []
            for (pid, name, kind), track in zip(ends, places, strict=True):
                category = f"transfer {kind}"
                if track is None:
                    self._crowd(self._tracks.lanes(pid, name), kind, category, start, args)
                    continue
                sent = flow if kind == "send" else []
                received = flow if kind == "receive" else []
                self._trace.slice(
                    track, kind, category, start, stop, args, sent=sent, received=received
                )
            number += 1
            flows += len(flow)
        return number, flows

    def _crowd(self, lanes: Lanes, name: str, category: str, start: int, args: Any) -> None:
        self.crowded += 1
        self._trace.instant(lanes.crowded(), name, category, start, args)

    def _forwards(self, start: int, stop: int | None) -> int | None:
        if stop is not None and stop < start:
            self.backwards += 1
            return start
        return stop

    def blocked_loops(self, run: Run) -> int:
        """Write blocks of event loops; return their number."""
        number = 0
        for worker, start, seen_stop in _rows(run, _BLOCKED):
            pid = (
                self._tracks.process("scheduler") if worker is None else self._tracks.worker(worker)
            )
            lanes = self._tracks.lanes(pid, "event loop")
            stop = self._forwards(start, seen_stop)
            track = lanes.place(start, stop)
            if track is None:
                self._crowd(lanes, "blocked", "event loop", start, ())
            else:
                self._trace.slice(track, "blocked", "event loop", start, stop)
            number += 1
        return number

    def failures(self, run: Run) -> int:
        """Write failed attempts as events of their workers; return their number."""
        number = 0
        for time, worker, key, attempt, prefix, outcome, exception, end in _rows(run, _FAILURES):
            pid = self._tracks.worker(worker)
            track = self._event_track(pid)
            args = (
                ("key", key),
                ("attempt", attempt),
                ("prefix", prefix),
                ("exception", None if exception is None else exception[:MOST_CHARACTERS]),
                ("worker end", end),
            )
            self._trace.instant(track, f"attempt {outcome}", "failure", time, args)
            number += 1
        return number

    def worker_ends(self, run: Run) -> int:
        """Write the ends of workers as events; return their number."""
        number = 0
        for time, worker, cause, signal, status, ended, reason in _rows(run, _WORKER_ENDS):
            args = (
                ("cause", cause),
                ("signal", signal),
                ("exit status", status),
                ("ended", ended),
                ("reason", None if reason is None else reason[:MOST_CHARACTERS]),
            )
            name = "worker end" if cause is None else f"worker end: {cause}"
            track = self._event_track(self._tracks.worker(worker))
            self._trace.instant(track, name, "worker end", time, args)
            number += 1
        return number

    def _event_track(self, pid: int) -> int:
        return self._tracks.single(pid, "failures")

    def spans(self, run: Run) -> tuple[int, int]:
        """Write spans, the inner ones below; return their number and that of those without time."""
        times: dict[tuple[str, ...], tuple[int | None, int | None]] = {}
        own = {_tags(tags, name): (start, stop) for name, tags, start, stop in _rows(run, _SPANS)}
        for tags, (start, stop) in own.items():
            for depth in range(1, len(tags) + 1):
                outer = times.get(tags[:depth], (None, None))
                times[tags[:depth]] = (
                    min((t for t in (outer[0], start) if t is not None), default=None),
                    max((t for t in (outer[1], stop) if t is not None), default=None),
                )
        known = sorted(
            (start, stop, tags)
            for tags, (start, stop) in times.items()
            if tags in own and start is not None and stop is not None and start >= 0
        )
        pid = self._tracks.process("run")
        for start, stop, tags in known:
            name = "spans" if len(tags) == 1 else f"spans, level {len(tags)}"
            lanes = self._tracks.lanes(pid, name)
            track = lanes.place(start, max(start, stop))
            if track is None:
                self._crowd(lanes, tags[-1], "span", start, ())
            else:
                self._trace.slice(
                    track,
                    tags[-1],
                    "span",
                    start,
                    max(start, stop),
                    (("span", " / ".join(tags)),),
                )
        return len(known), len(own) - len(known)

    def critical_path(self, run: Run) -> int:
        """Write the critical path; return the number of its segments."""
        segments = critical_path(run).segments
        pid = self._tracks.process("run")
        for each in segments:
            args = (
                ("key", each.key),
                ("attempt", each.attempt),
                ("prefix", each.prefix),
                ("worker", each.worker),
                ("code", each.code),
            )
            track = self._tracks.single(pid, "critical path")
            self._trace.slice(
                track, each.cause, "critical path", each.start, max(each.start, each.stop), args
            )
        return len(segments)

    def notes(self, notes: list[str]) -> None:
        """Write notes on the trace as events at its beginning."""
        for note in notes:
            track = self._tracks.single(self._tracks.process("run"), "notes")
            self._trace.instant(track, note, "note", self._trace.origin)

    @staticmethod
    def untimed(run: Run) -> tuple[tuple[int, str], ...]:
        """Return numbers of rows that are not in the trace, and their description."""
        row = run.rows(_UNTIMED)[0]
        return (
            (row["transfers"], "Transfers without a time on record, not in the trace"),
            (row["failures"], "Failures without a time on record, not in the trace"),
            (row["worker_ends"], "Ends of workers without a time on record, not in the trace"),
            (row["blocks"], "Blocks of event loops without times on record, not in the trace"),
        )


def _rows(run: Run, query: str) -> Iterator[tuple[Any, ...]]:
    for batch in run.batches(query):
        for start in range(0, len(batch), 1 << 12):
            part = batch.slice(start, 1 << 12)
            yield from zip(*(column.to_pylist() for column in part.columns), strict=True)


def _tags(tags: str | None, name: str) -> tuple[str, ...]:
    """Return the tags of a span; its name alone if they are left out."""
    try:
        found = tuple(str(tag) for tag in json.loads(tags or ""))
    except (ValueError, TypeError):
        return (name,)
    return found or (name,)

"""The spans of a run, as requests of bounded size in OTLP's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Names
from dask_strata.export.exporter import Job
from dask_strata.export.json_text import dumps, joined
from dask_strata.export.telemetry.otlp.ids import (
    ATTEMPT,
    PHASE,
    RUN,
    SUBMISSION,
    attributes,
    double_sql,
    int_sql,
    span_id,
    span_id_sql,
    span_ids,
    text_sql,
    trace_id,
)
from dask_strata.export.telemetry.otlp.relations import SPANS, Relations
from dask_strata.export.telemetry.otlp.requests import Requests
from dask_strata.export.telemetry.otlp.resources import Resources

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most links of a span, as in OpenTelemetry's own libraries.
MOST_LINKS = 128

#: Rows that are made into text at once: a span has about a kilobyte.
_ROWS = 4_096

#: Attempts that are sorted at once, and SQL for them.
_SORTED = 1 << 16
_PART = "attempt >= $1 and attempt < $2"

#: Longest texts of an exception and of its traceback, in characters.
_LONGEST = 4_096
_LONGEST_TRACEBACK = 16_384

_TIMES = """
    ',"kind":1,"startTimeUnixNano":"' || epoch_ns(start) || '","endTimeUnixNano":"'
    || greatest(epoch_ns(start), epoch_ns(stop)) || '","attributes":[' ||
"""

#: An error for attempts whose function failed, or whose worker was lost.
_STATUS = f"""
    case when outcome in ('erred', 'retried') or (outcome = 'lost' and worker_end is not null)
         then ',"status":{{"code":2,"message":' || to_json(left(coalesce(
                  exception, worker_end, outcome), {_LONGEST})) || '}}'
         when outcome = 'lost' then ',"status":{{"code":2,"message":"the worker was lost"}}'
         when outcome = 'memory' then ',"status":{{"code":1}}' else '' end
"""

_EVENTS = f"""
    case when exception is not null then
        ',"events":[{{"timeUnixNano":"' || epoch_ns(stop) || '","name":"exception","attributes":['
        || ltrim({text_sql("exception.message", f"left(exception, {_LONGEST})")}
                 || {text_sql("exception.stacktrace", f"left(traceback, {_LONGEST_TRACEBACK})")},
                 ',')
        || ']}}]' else '' end
"""

_ATTEMPT_ATTRIBUTES = " || ".join(
    [
        text_sql("dask.key", "key"),
        text_sql("dask.key_type", "key_type"),
        text_sql("dask.prefix", "prefix"),
        text_sql("dask.group", '"group"'),
        text_sql("dask.outcome", "outcome"),
        text_sql("dask.type", "typename"),
        text_sql("dask.span", "span"),
        int_sql("dask.attempt", "attempt"),
        int_sql("dask.nbytes", "nbytes"),
        int_sql("thread.id", "thread"),
        double_sql("dask.compute_seconds", "compute_seconds"),
        double_sql("dask.transfer_seconds", "transfer_seconds"),
        double_sql("dask.deserialize_seconds", "deserialize_seconds"),
        double_sql("dask.disk_seconds", "disk_seconds"),
        double_sql("dask.cpu_seconds", "cpu_seconds"),
    ]
)

_PHASE_ATTRIBUTES = " || ".join(
    [
        text_sql("dask.key", "key"),
        text_sql("dask.action", "action"),
        text_sql("dask.source", "source"),
        int_sql("thread.id", "thread"),
    ]
)

_SUBMISSIONS = """
    select s.submission, epoch_ns(s.time) as time, s.client, s.n_tasks, s.n_keys, g.file, g.line,
           g.code, g.collection
    from submissions s left join graphs g using (submission)
    where s.time is not null order by s.time, s.submission
"""

_BOUNDS = """
    select min(epoch_ns(time)) as start, max(epoch_ns(time)) as stop from (
        select start as time from processes union all select stop from processes
        union all select time from submissions
        union all select start from attempts union all select stop from attempts
    )
"""

_UNKNOWN = f"""
    select count(*) filter (not coalesce({SPANS}, false)) as attempts from attempts
"""  # noqa: S608  no value of the record


class Trace:
    """The trace of a run.

    Parameters
    ----------
    run : Run
        The run.
    job : Job
        Its notes and counts are completed with the last request.
    """

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job
        self._id = trace_id(run.manifest.run_id)
        self._resources = Resources(run)
        self._requests = Requests()
        self._relations = Relations(run, self._id, MOST_LINKS)
        pa.default_memory_pool().release_unused()
        self._counts = {"spans": 0, "attempts": 0, "phases": 0, "submissions": 0}
        self._total = len(self._relations) + run.rows("select count(*) as n from phases")[0]["n"]

    def requests(self) -> Iterator[bytes]:
        """Yield requests with all spans: one line each. The span of the run is in the last one."""
        self._note_attempts()
        yield from self._attempts()
        yield from self._phases()
        self._note_phases()
        yield from self._submissions()
        root = pa.array([self._root()])
        yield from self._requests.add(self._resources.scheduler, root, 0, 1)
        yield self._requests.flush()
        self._counts["links"] = self._relations.n_links
        self._job.counts.update(self._counts)

    def _note_attempts(self) -> None:
        relations = self._relations
        unknown = self._run.rows(_UNKNOWN)[0]["attempts"]
        for n, text in (
            (unknown, "{n:,} attempts without a known begin or end are left out."),
            (
                relations.unlinked,
                "{n:,} dependencies have no link: no attempt on record had made the result before.",
            ),
            (
                relations.dropped,
                "{n:,} links beyond 128 of a span are left out: see droppedLinksCount.",
            ),
        ):
            if n:
                self._job.note(text.format(n=n))

    def _note_phases(self) -> None:
        n = self._total - len(self._relations) - self._counts["phases"]
        if n:
            self._job.note(
                f"{n:,} phases without a known begin or end, or of such attempts, are left out."
            )

    def _attempts(self) -> Iterator[bytes]:
        query = f"""
            select attempt, worker, '{{"traceId":"{self._id}","spanId":"'
                   || {span_id_sql(ATTEMPT, "attempt")} || '","parentSpanId":"' as head,
                   '","name":' || to_json(coalesce(prefix, 'attempt')) || {_TIMES}
                   ltrim({_ATTEMPT_ATTRIBUTES}, ',') || ']' || {_STATUS} || {_EVENTS} as rest
            from (from attempts where {SPANS} and {_PART} order by attempt)
        """  # noqa: S608  no value of the record
        parents = self._parents()
        for batch in self._batches(query):
            index = self._relations.find(batch.column("attempt").to_numpy())
            links, dropped = self._relations.links(index)
            has_links = pc.greater(pc.binary_length(links), 0)
            more = joined(',"droppedLinksCount":', pa.array(dropped).cast(pa.string()))
            text = joined(
                batch.column("head"),
                parents.take(pa.array(self._relations.submission(index) % len(parents))),
                batch.column("rest"),
                pc.if_else(has_links, joined(',"links":[', links, "]"), ""),
                pc.if_else(pa.array(dropped > 0), more, ""),
                "},",
            )
            yield from self._by_worker(batch.column("worker"), text, "attempts")

    def _parents(self) -> pa.Array:
        """Return the id of the span of each submission, then that of the run."""
        n = len(self._relations.submissions)
        numbers = span_ids(SUBMISSION, np.arange(n))
        return pa.concat_arrays([numbers.cast(pa.string()), pa.array([span_id(RUN, 0)])])

    def _phases(self) -> Iterator[bytes]:
        query = f"""
            select attempt, worker, '{{"traceId":"{self._id}","spanId":"' as head,
                   '","parentSpanId":"' || {span_id_sql(ATTEMPT, "attempt")} || '","name":'
                   || to_json(coalesce(action, 'phase')) || {_TIMES}
                   ltrim({_PHASE_ATTRIBUTES}, ',') || ']}},' as rest
            from (from phases where start is not null and stop is not null and {_PART}
                  order by attempt, start, stop, action, source)
        """  # noqa: S608  no value of the record
        n = 0
        for batch in self._batches(query):
            numbers = np.arange(n, n + len(batch))
            n += len(batch)
            text = joined(batch.column("head"), span_ids(PHASE, numbers), batch.column("rest"))
            chosen = np.flatnonzero(self._relations.find(batch.column("attempt").to_numpy()) >= 0)
            rows = pa.array(chosen)
            yield from self._by_worker(batch.column("worker").take(rows), text.take(rows), "phases")

    def _batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, which sorts the rows of some attempts at once."""
        numbers = self._relations.numbers
        for first in numbers[::_SORTED]:
            bounds = (first, first + _SORTED)
            yield from self._run.batches(query, *bounds, batch_rows=_ROWS)

    def _by_worker(self, worker: pa.Array, text: pa.Array, what: str) -> Iterator[bytes]:
        """Yield requests with the spans of each worker."""
        names = Names()
        codes = names.codes(worker)
        order = np.argsort(codes, kind="stable")
        text = text.take(pa.array(order))
        bounds = np.flatnonzero(np.diff(codes[order], prepend=-2, append=-2))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            code = int(codes[order[first]])
            head = self._resources.worker(None if code < 0 else names.names[code])
            yield from self._requests.add(head, text, first, last)
        self._count(what, len(text))

    def _count(self, what: str, n: int) -> None:
        self._counts[what] += n
        self._counts["spans"] += n
        self._job.progress(self._counts["spans"], self._total)

    def _submissions(self) -> Iterator[bytes]:
        numbers = {name: n for n, name in enumerate(self._relations.submissions)}
        spans = []
        for row in self._run.rows(_SUBMISSIONS):
            start = row["time"]
            spans.append(
                self._span(
                    SUBMISSION,
                    numbers[row["submission"]],
                    row["collection"] or "submission",
                    (start, max(start, self._relations.ends.get(row["submission"], start))),
                    {
                        "dask.submission": row["submission"],
                        "dask.client": row["client"],
                        "dask.n_tasks": row["n_tasks"],
                        "dask.n_keys": row["n_keys"],
                        "code.file.path": row["file"],
                        "code.line.number": row["line"],
                        "dask_strata.code": row["code"],
                    },
                    span_id(RUN, 0),
                )
                + ","
            )
        text = pa.array(spans, pa.string())
        yield from self._requests.add(self._resources.scheduler, text, 0, len(spans))
        self._count("submissions", len(spans))

    def _root(self) -> str:
        bounds = self._run.rows(_BOUNDS)[0]
        start = bounds["start"] or self._run.manifest.created_ns
        manifest = self._run.manifest
        span = self._span(
            RUN,
            0,
            self._run.name or "run",
            (start, max(start, bounds["stop"] or start)),
            {
                "dask_strata.run_id": manifest.run_id,
                "dask_strata.state": self._run.state,
                "dask_strata.notes": self._job.notes or None,
            },
            None,
        )
        self._count("spans", 0)
        self._counts["spans"] += 1
        return f"{span},"

    def _span(  # noqa: PLR0913, PLR0917  the fields of a span
        self,
        kind: str,
        number: int,
        name: str,
        times: tuple[int, int],
        values: dict[str, Any],
        parent: str | None,
    ) -> str:
        span = {"traceId": self._id, "spanId": span_id(kind, number)}
        if parent is not None:
            span["parentSpanId"] = parent
        return dumps(
            {
                **span,
                "name": name,
                "kind": 1,
                "startTimeUnixNano": str(times[0]),
                "endTimeUnixNano": str(times[1]),
                "attributes": attributes(values),
            }
        )

"""The formats `perfetto` and `chrome`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from dask_strata.export.exporter import Exporter, Job, Option
from dask_strata.export.perfetto.activity import ActivityWriter
from dask_strata.export.perfetto.attempts import AttemptWriter, note_oddities, read_blocks
from dask_strata.export.perfetto.chrome import ChromeTrace
from dask_strata.export.perfetto.dependencies import Dependencies, read_dependencies
from dask_strata.export.perfetto.protobuf import ProtobufTrace
from dask_strata.export.perfetto.samples import write_samples
from dask_strata.export.perfetto.trace import TraceFile
from dask_strata.export.perfetto.tracks import Tracks
from dask_strata.run import Run

_DEPENDENCIES = Option("dependencies", "arrows from each task to those that use its result")

#: The first time in a trace is the earliest of these.
_ORIGIN = """
    select min(t) as t from (
        select min(epoch_ns(first)) as t from _bounds
        union all select min(epoch_ns(start)) from transfers
        union all select min(epoch_ns(time)) from worker_samples
        union all select min(epoch_ns(start)) from attempts
        union all select min(epoch_ns(start)) from phases
        union all select min(epoch_ns(enqueued)) from spans
        union all select min(start_ns) from _loop_blocks
    ) where t >= 0
"""

_WORKERS = """
    select w.worker, any_value(w.name) as name,
           any_value(case when p.pid > 0 then 'pid ' || p.pid || coalesce(' on ' || p.host, '') end)
               as label
    from (from workers order by start, name) w left join processes p using (process)
    where w.worker is not null group by w.worker
"""


class _Trace(Exporter):
    """What both formats have in common."""

    options: ClassVar[tuple[Option, ...]] = (_DEPENDENCIES,)
    trace_class: ClassVar[type[TraceFile]]

    def write(self, run: Run, path: Path, job: Job) -> None:
        """See `Exporter`."""
        wanted = _DEPENDENCIES.name in job.options
        blocks = read_blocks(run, keep=wanted)
        dependencies = Dependencies()
        if wanted:
            dependencies = read_dependencies(run, blocks.attempts, blocks.starts)
            job.counts["dependencies"] = dependencies.number
            if dependencies.without:
                job.note(
                    "Uses of a dependency without an arrow, as no attempt that made its result "
                    f"before is on record: {dependencies.without:,}."
                )
        workers = {row["worker"]: (row["name"], row["label"]) for row in run.rows(_WORKERS)}
        total = run.n_rows("attempts")
        with path.open("wb") as file:
            trace = self.trace_class(file, run.rows(_ORIGIN)[0]["t"] or 0)
            tracks = Tracks(trace, workers)
            activity = ActivityWriter(trace, tracks)
            _write_overview(run, tracks, activity, job)
            attempts = AttemptWriter(trace, tracks, dependencies)
            attempts.write(run, blocks.windows, lambda done: job.progress(done, total))
            job.counts["attempts"], job.counts["phases"] = attempts.attempts, attempts.phases
            note_oddities(run, attempts, job.note)
            _write_activity(run, activity, job)
            _write_counters(run, trace, tracks, job)
            if tracks.displaced:
                job.note(
                    "Slices that overlap others of their thread, on further tracks whose names end "
                    f"with a number: {tracks.displaced:,}."
                )
            activity.notes(job.notes)
            trace.finish({"run": run.name, "run_id": run.manifest.run_id}, job.notes)


def _write_overview(run: Run, tracks: Tracks, activity: ActivityWriter, job: Job) -> None:
    """Write what concerns the whole run."""
    tracks.process("run")
    tracks.process("scheduler")
    job.counts["segments of the critical path"] = activity.critical_path(run)
    job.counts["spans"], without = activity.spans(run)
    if without:
        job.note(f"Spans without a finished attempt, not in the trace: {without:,}.")


def _write_activity(run: Run, activity: ActivityWriter, job: Job) -> None:
    """Write transfers and events."""
    job.counts["transfers"], job.counts["flows"] = activity.transfers(run)
    job.counts["event loop blocks"] = activity.blocked_loops(run)
    job.counts["failures"] = activity.failures(run)
    job.counts["worker ends"] = activity.worker_ends(run)
    job.counts["flows"] += job.counts.get("dependencies", 0)
    for number, what in (
        *activity.untimed(run),
        (activity.backwards, "Transfers that end before they start, shown without duration"),
        (activity.crowded, "Transfers, blocks and spans shown as events, as more than 100 overlap"),
    ):
        if number:
            job.note(f"{what}: {number:,}.")


def _write_counters(run: Run, trace: TraceFile, tracks: Tracks, job: Job) -> None:
    job.counts["counter values"], step = write_samples(run, trace, tracks)
    if step:
        job.note(f"Counters have the last sample of each {step / 1e9:.3g} s of each worker.")


class Perfetto(_Trace):
    """Perfetto's own format."""

    name = "perfetto"
    summary = "timeline for ui.perfetto.dev: threads, transfers, counters, critical path"
    suffix = ".pftrace"
    media_type = "application/octet-stream"
    trace_class = ProtobufTrace


class Chrome(_Trace):
    """Chrome's JSON."""

    name = "chrome"
    summary = "the same timeline as JSON, in the older format of chrome://tracing"
    suffix = ".json"
    media_type = "application/json"
    trace_class = ChromeTrace

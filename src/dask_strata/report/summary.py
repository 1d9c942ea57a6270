"""The first screen, on a terminal and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.breakdown import Breakdown, PrefixUse
from dask_strata.analysis.check import MISSING, WHOLE, WHOLE_FOR_TASKS
from dask_strata.analysis.measured.spans import SpanUse
from dask_strata.analysis.summary import Analysed, InputOutput, Summary
from dask_strata.report.io import io_lines, moved_sentence
from dask_strata.report.profile import profile_lines
from dask_strata.report.terminal.stuck import print_stuck, stuck_json
from dask_strata.report.terminal.text_table import print_texts
from dask_strata.report.words import count, duration, number, percent, size, visible

if TYPE_CHECKING:
    from rich.console import Console

    from dask_strata.analysis.overview.stuck import Stuck

#: Size of segments from which compacting them is suggested.
_LARGE_BYTES = 32 << 20

#: CPU time of a run below which the recorder's overhead is shown in seconds.
_SHORT_RUN_CPU_SECONDS = 30

#: Characters of an exception on the screen.
_MESSAGE = 400

#: Most prefixes, spans, insights, kinds of failures and next commands on the screen.
_PREFIXES = 3
_SPANS = 6
_INSIGHTS = 3
_FAILURES = 1
_COMMANDS = 2

#: Deepest span that is indented further than the one around it.
_DEEPEST = 6

#: Width of wrapped sentences on wider terminals, and without a terminal.
_WIDEST = 100
_WIDTH = 80

#: Least share of the thread-seconds that the first screen shows.
_LEAST_SHARE = 0.005

_COLORS = {
    "finished": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "cut off": "red",
    "recording": "cyan",
    "imported": "blue",
}


def headline(s: Summary) -> Text:
    """Return the outcome and the numbers of a run in one line.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    """
    status = f" (exit {s.exit_status})" if s.exit_status else ""
    before = f"{s.n_finished_before:,} finished before the recording"
    parts = [
        count(s.n_tasks, "task"),
        before if s.n_finished_before else "",
        duration(s.duration_seconds),
        _cluster(s),
        _failed(s),
        _unfinished(s),
    ]
    return Text.assemble(
        (visible(s.script or s.name), "bold"),
        "  ",
        (visible(s.outcome), _COLORS.get(s.outcome, "")),
        f"{status}  ",
        "  ".join(filter(None, parts)),
    )


def _cluster(s: Summary) -> str:
    """Return the size of the cluster; workers that replaced others are not counted twice.

    Threads a worker are a number only if each worker has as many.
    """
    threads = ""
    if s.n_threads and s.n_workers:
        each, rest = divmod(s.n_threads, s.n_workers)
        threads = f" × {count(each, 'thread')}" if not rest else f", {count(s.n_threads, 'thread')}"
    replaced = f" ({s.n_replaced:,} more came later)" if s.n_replaced > 0 else ""
    hosts = f" on {count(s.n_hosts, 'host')}" if s.n_hosts > 1 else ""
    return f"{count(s.n_workers, 'worker')}{threads}{hosts}{replaced}"


def _failed(s: Summary) -> str:
    if s.n_erred is None:
        return "failures not on record"
    return f"{s.n_erred:,} failed" if s.n_erred else ""


def _unfinished(s: Summary) -> str:
    if not s.n_unfinished:
        return ""
    return f"{s.n_unfinished:,} {'unfinished' if s.state == 'recording' else 'never finished'}"


def _overhead(s: Summary, share: float) -> str:
    # In a short run the share is mostly the recorder's start, which a longer run has only once.
    if s.process_cpu_seconds < _SHORT_RUN_CPU_SECONDS:
        return duration(s.recorder_cpu_seconds)
    return percent(share, 1)


def print_summary(s: Summary, out: Console, stuck: Stuck | None = None) -> None:
    """Print the first screen of a run.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    out : Console
        The console.
    stuck : Stuck, optional
        Its stuck tasks and workers.
    """
    _print_headline(s, out)
    print_stuck(stuck, out, _wrapped_width(out))
    if s.analysed is not None:
        out.print(Text(_analysed(s.analysed), style="dim"), soft_wrap=True)
    _print_failures(s, out)
    _print_jobs(s, out)
    if s.client:
        shown = f"tasks of the client {visible(s.client)}, and all that they depend on"
        out.print(Text(shown, style="dim"), soft_wrap=True)
    if s.n_tasks:
        out.print()
        _print_insights(s, out)
        _print_time(s, out)
        _print_prefixes(s.prefixes, out)
        if s.spans:
            _print_spans(s.spans, out)
    if s.memory is not None and s.memory.above:
        _print_wrapped(out, "memory", Text(visible(s.memory.sentence)))
    if s.scaling is not None:
        _print_wrapped(out, "scaling", Text(visible(s.scaling.sentence)))
    _print_io(s, out)
    if s.profile is not None:
        out.print(profile_lines(s.profile), soft_wrap=True)
    _print_wrapped(out, "record", Text(visible(_record(s))))
    out.print(next_commands(s.path, s), soft_wrap=True)


def _print_headline(s: Summary, out: Console) -> None:
    """Print the headline; a long one is wrapped between its parts, not within them."""
    line, *parts = headline(s).split("  ")
    for part in parts:
        longer = Text("  ").join([line, part])
        if longer.cell_len <= _wrapped_width(out):
            line = longer
        else:
            out.print(line, soft_wrap=True)
            line = part
    out.print(line, soft_wrap=True)


def _record(s: Summary) -> str:
    overhead = "" if s.overhead is None else f"; recorder {_overhead(s, s.overhead)} of CPU"
    return f"{_COMPLETENESS.get(s.check.grade, '')}{s.check.sentence}{overhead}"


#: How complete a record is, by its grade.
_COMPLETENESS = {
    WHOLE: "nothing missing; ",
    WHOLE_FOR_TASKS: "every task complete; ",
    MISSING: "record incomplete; ",
}


def _print_insights(s: Summary, out: Console) -> None:
    """Print what cost time, with the cure: the exception of a failed run is above already."""
    chosen = [insight for insight in s.insights if insight.cause not in _EXCEPTIONS]
    if not chosen:
        _print_wrapped(out, "why", Text(nothing_stands_out(s)))
        return
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column(width=7)
    grid.add_column(width=3, justify="center")
    grid.add_column()
    grid.add_column(justify="right", no_wrap=True)
    for number_, insight in enumerate(chosen[:_INSIGHTS], 1):
        head = Text("why" if number_ == 1 else "", style="bold")
        cost = Text(duration(insight.seconds) if insight.seconds else "")
        grid.add_row(head, f"{number_}", Text(visible(insight.text)), cost)
        if insight.advice:
            grid.add_row("", "", Text(visible(insight.advice), style="dim"), "")
    if len(chosen) > _INSIGHTS:
        more = count(len(chosen) - _INSIGHTS, "more insight")
        grid.add_row("", "", Text(f"{more}: in the report, or with --json", style="dim"), "")
    out.print(grid, width=_wrapped_width(out))


def _wrapped_width(out: Console) -> int:
    return min(out.width, _WIDEST) if out.is_terminal else _WIDTH


#: Causes that the line below the headline names.
_EXCEPTIONS = ("exception", "killed-task")


def nothing_stands_out(s: Summary) -> str:
    """Return the sentence of a run without a finding that is worth an insight.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    """
    if not s.breakdown.total_seconds:
        return "Nothing stands out; no execution is on record"
    return f"Nothing stands out: {_share(s, 'compute')} of thread-seconds were compute"


def _analysed(part: Analysed) -> str:
    """Return which part of a run that grows its times and insights are about."""
    until = ""
    if part.start is not None:
        with suppress(OverflowError, ValueError):  # a stored summary may have any numbers
            moment = part.start + timedelta(seconds=part.duration_seconds)
            until = f", until {moment:%H:%M:%S} UTC"
    return f"times and insights are those of the first {count(part.n_tasks, 'task')}{until}"


def _print_jobs(s: Summary, out: Console) -> None:
    lines = [] if s.jobs is None else [("jobs", s.jobs.sentence)]
    lines += [("absent", absent.sentence) for absent in s.absent_workers]
    for head, line in lines:
        out.print(Text.assemble((f"{head:<11}", "bold"), visible(line)), soft_wrap=True)


def _print_failures(s: Summary, out: Console) -> None:
    found = [insight for insight in s.insights if insight.cause in _EXCEPTIONS]
    for insight in found[:_FAILURES]:
        out.print(Text(_shortened(visible(insight.text)), style="red"), width=_wrapped_width(out))
        if insight.evidence:
            out.print(Text(visible(insight.evidence), style="dim"), width=_wrapped_width(out))
    if len(found) > _FAILURES:
        out.print(Text(f"and {count(len(found) - _FAILURES, 'other exception')}", style="dim"))


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}… ({len(text):,} characters)"


def _print_io(s: Summary, out: Console) -> None:
    lines = [("files", line)] if (line := _tasks_files(s.files)) else []
    between_workers = moved_sentence(s.moved)
    if between_workers and (s.moved.transfer_bytes or 0) + (s.moved.shuffle_bytes or 0) >= _SOME:
        lines.append(("moved", between_workers))
    if s.io is not None:
        for number, line in enumerate(io_lines(s.io)):
            lines.append(("" if number else "Darshan", line))
    for head, line in lines:
        _print_wrapped(out, head, Text(line))


#: Bytes from which files and transfers are on the first screen.
_SOME = 1 << 20


def _tasks_files(io: InputOutput) -> str:
    """Return the bytes that tasks read and wrote; nothing if that is next to nothing."""
    libraries = io.library_read_bytes or 0
    if (io.task_read_bytes or 0) + (io.task_write_bytes or 0) + libraries < _SOME:
        return ""
    more = f" (libraries {size(libraries)} more for them)" if libraries else ""
    return f"tasks read {size(io.task_read_bytes)}{more} · wrote {size(io.task_write_bytes)}"


def io_sentence(io: InputOutput) -> str:
    """Return the bytes that tasks and workers read and wrote, in one line.

    Parameters
    ----------
    io : InputOutput
        The bytes.
    """
    by_libraries = io.library_read_bytes
    read, written = size(io.unattributed_read_bytes), size(io.unattributed_write_bytes)
    parts = [
        f"tasks read {size(io.task_read_bytes)}",
        f"libraries read {size(by_libraries)} more for them" if by_libraries else "",
        f"tasks wrote {size(io.task_write_bytes)}",
        _others(io),
        f"not attributed to a task: {read} read, {written} written",
    ]
    return " · ".join(filter(None, parts))


def _others(io: InputOutput) -> str:
    """Return the bytes of other threads while one task ran; nothing if they are next to none."""
    read, written = io.other_read_bytes or 0, io.other_write_bytes or 0
    if read + written < ((io.task_read_bytes or 0) + (io.task_write_bytes or 0)) / 100:
        return ""
    return f"other threads while one task ran: {size(read)} read, {size(written)} written"


def _print_time(s: Summary, out: Console) -> None:
    total = s.breakdown.total_seconds
    if not total:
        out.print(Text("time       no execution is on record", style="bold"))
        return
    parts = [
        f"{kind} {_share(s, kind)}"
        for kind in s.breakdown.shown
        if kind in _ALWAYS or s.breakdown.share(kind) >= _LEAST_SHARE
    ]
    line = f"{' · '.join(parts)} of {number(total)} thread-seconds"
    note = unknown_note(s.breakdown)
    _print_wrapped(out, "time", Text(line), *([Text(note, style="dim")] if note else []))


def _print_wrapped(out: Console, head: str, *texts: Text) -> None:
    """Print texts below each other beside a head."""
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column(width=10)
    grid.add_column()
    for number_, text in enumerate(texts):
        grid.add_row(Text("" if number_ else head, style="bold"), text)
    out.print(grid, width=_wrapped_width(out))


def _share(s: Summary, kind: str) -> str:
    known = s.breakdown.seconds[kind] is not None
    return percent(s.breakdown.share(kind)) if known else "–"


#: Kinds of thread-seconds that the first screen always shows.
_ALWAYS = ("compute", "idle")


def unknown_note(breakdown: Breakdown) -> str:
    """Return a sentence on the kinds of thread-seconds that are not on record; empty without.

    Parameters
    ----------
    breakdown : Breakdown
        The thread-seconds of a run.
    """
    kinds = [kind for kind in breakdown.unknown if kind != "idle"]
    if not kinds:
        return ""
    return f"not on record: {', '.join(kinds)}; this time, if any, is part of idle"


def next_commands(path: str, s: Summary) -> Text:
    """Return the commands that show more of a run.

    Parameters
    ----------
    path : str
        The run's folder, as the user names it.
    s : Summary
        The summary of the run.
    """
    run = visible(shlex.quote(path))
    commands = []
    if s.check.grade != WHOLE:
        commands.append(f"dask-strata check {run}")
    if s.failures:
        commands.append(f"dask-strata story {run} {shlex.quote(visible(s.failures[0].example))}")
    if s.state != "recording" and s.segment_bytes > _LARGE_BYTES:
        commands.append(f"dask-strata compact {run}")  # reading Parquet takes half the time
    if s.profile is not None:
        commands.append(f"dask-strata profile {run}")
    commands += [
        f"dask-strata report {run}",
        f"dask-strata tasks {run}{_client_option(s)} --sort compute_seconds",
        f"dask-strata map {run}",
    ]
    return Text.assemble(("next       ", "bold"), "\n           ".join(commands[:_COMMANDS]))


def _client_option(s: Summary) -> str:
    return f" --client {visible(shlex.quote(s.selected_client))}" if s.selected_client else ""


def _print_prefixes(prefixes: Sequence[PrefixUse], out: Console) -> None:
    columns = {
        "tasks": False, "number": True, "failed": True, "compute": True, "median": True,
        "max": True, "results": True,
    }  # fmt: skip
    rows = [
        [
            visible(p.prefix),
            f"{p.n_tasks:,}",
            _failures(p.n_erred),
            duration(p.compute_seconds),
            duration(p.median_seconds),
            duration(p.max_seconds),
            size(p.nbytes),
        ]
        for p in prefixes[:_PREFIXES]
    ]
    important = ("tasks", "number", "compute", "failed", "max", "results")
    print_texts(columns, rows, out, important, indent=2)


def _print_spans(spans: Sequence[SpanUse], out: Console) -> None:
    """Print the first spans; a span contains those that are indented below it."""
    columns = {"spans": False, "tasks": True, "failed": True, "compute": True, "wall time": True}
    rows = []
    for s in spans[:_SPANS]:
        tag = s.name.rpartition(" / ")[2] if s.depth else s.name
        rows.append(
            [
                f"{'  ' * min(s.depth, _DEEPEST)}{visible(tag)}",
                f"{s.n_tasks:,}",
                _failures(s.n_erred),
                duration(s.compute_seconds),
                duration(s.wall_seconds),
            ]
        )
    print_texts(columns, rows, out, indent=2)
    if len(spans) > _SPANS:
        more = f"{count(len(spans) - _SPANS, 'more span')}: tasks RUN --by span"
        out.print(Text(more, style="dim"), soft_wrap=True)


def _failures(number_: int | None) -> str:
    return "–" if number_ is None else f"{number_:,}" if number_ else ""


def summary_json(s: Summary, stuck: Stuck | None = None) -> str:
    """Return a summary as JSON.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    stuck : Stuck, optional
        Its stuck tasks and workers.
    """
    facts = {_JSON_NAMES.get(name, name): value for name, value in asdict(s).items()}
    facts["overhead"] = s.overhead
    facts["findings"] = facts["insights"]  # their name in earlier versions
    facts["stuck"] = stuck_json(stuck)
    return json.dumps(facts, default=_json, ensure_ascii=False, indent=1)


#: Names in JSON that differ from those of the summary's fields: programs already read them.
_JSON_NAMES = {"run_id": "run"}


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)

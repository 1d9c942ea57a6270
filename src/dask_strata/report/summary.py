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
from dask_strata.analysis.insights import Insight
from dask_strata.analysis.summary import Analysed, InputOutput, Summary
from dask_strata.report.io import io_lines, moved_sentence
from dask_strata.report.profile import profile_lines
from dask_strata.report.words import count, duration, number, percent, size, visible

if TYPE_CHECKING:
    from rich.console import Console

_BAR = 30

#: Size of segments from which compacting them is suggested.
_LARGE_BYTES = 32 << 20

#: CPU time of a run below which the recorder's overhead is shown in seconds.
_SHORT_RUN_CPU_SECONDS = 30

#: Characters of an exception on the screen: all of any but a whole document.
_MESSAGE = 2000

#: Most prefixes, insights, kinds of failures and next commands on the screen.
_PREFIXES = 5
_INSIGHTS = 5
_FAILURES = 3
_COMMANDS = 3

_COLORS = {
    "compute": "green",
    "transfer": "red",
    "deserialize": "yellow",
    "spill": "magenta",
    "waiting to fetch": "bright_red",
    "waiting for a resource": "cyan",
    "paused worker": "bright_magenta",
    "blocked event loop": "blue",
    "silent worker": "bright_blue",
    "other clients": "white",
    "idle": "bright_black",
}
_STATE = {"complete": "green", "recording": "cyan", "cut": "red", "imported": "blue"}


def headline(s: Summary) -> Text:
    """Return the numbers of a run in one line.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    """
    completeness = {
        WHOLE: "nothing missing",
        WHOLE_FOR_TASKS: "every task complete",
        MISSING: "record incomplete",
    }[s.check.grade]
    overhead = "" if s.overhead is None else f"recorder {_overhead(s, s.overhead)} of CPU"
    parts = [
        count(s.n_tasks, "task"),
        f"{s.n_finished_before:,} finished before the recording" if s.n_finished_before else "",
        duration(s.duration_seconds),
        count(s.n_workers, "worker"),
        count(s.n_threads, "thread") if s.n_threads else "",
        count(s.n_hosts, "host") if s.n_hosts else "",
        _failed(s),
        _unfinished(s),
        f"script exited with {s.exit_status}" if s.exit_status else "",
        overhead,
        completeness,
    ]
    return Text(" · ".join(filter(None, parts)))


def _failed(s: Summary) -> str:
    if s.n_erred is None:
        return "failures not on record"
    return f"{s.n_erred:,} failed" if s.n_erred else "none failed"


def _unfinished(s: Summary) -> str:
    if not s.n_unfinished:
        return ""
    return f"{s.n_unfinished:,} {'unfinished' if s.state == 'recording' else 'never finished'}"


def _overhead(s: Summary, share: float) -> str:
    # In a short run the share is mostly the recorder's start, which a longer run has only once.
    if s.process_cpu_seconds < _SHORT_RUN_CPU_SECONDS:
        return duration(s.recorder_cpu_seconds)
    return percent(share, 1)


def print_summary(s: Summary, out: Console) -> None:
    """Print the first screen of a run.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    out : Console
        The console.
    """
    when = f"{s.start:%Y-%m-%d %H:%M:%S} UTC" if s.start else "start unknown"
    out.print(
        Text.assemble(
            (visible(s.name), "bold"),
            "  ",
            (s.state, _STATE[s.state]),
            f"  {when}  ",
            (visible(s.path), "dim"),
        ),
        soft_wrap=True,
    )
    out.print(headline(s))
    if s.analysed is not None:
        out.print(Text(_analysed(s.analysed), style="dim"), soft_wrap=True)
    _print_jobs(s, out)
    if s.client:
        shown = f"tasks of the client {visible(s.client)}, and all that they depend on"
        out.print(Text(shown, style="dim"), soft_wrap=True)
    if s.n_tasks:
        out.print()
        _print_breakdown(s, out)
        out.print()
        out.print(_prefix_table(s.prefixes))
    _print_io(s, out)
    _print_failures(s, out)
    if s.profile is not None:
        out.print()
        out.print(profile_lines(s.profile), soft_wrap=True)
    if s.insights:
        out.print()
        out.print(Text("insights", style="bold"))
        for insight in s.insights[:_INSIGHTS]:
            out.print(Text(f"  {insight_line(insight)}"), soft_wrap=True)
        if len(s.insights) > _INSIGHTS:
            out.print(Text(f"  and {len(s.insights) - _INSIGHTS} more", style="dim"))
    out.print()
    out.print(Text.assemble(("record   ", "bold"), visible(s.check.sentence)), soft_wrap=True)
    out.print(next_commands(s.path, s), soft_wrap=True)


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
        out.print(Text.assemble((f"{head:<9}", "bold"), visible(line)), soft_wrap=True)


def _print_failures(s: Summary, out: Console) -> None:
    if not s.failures:
        return
    out.print()
    out.print(Text("failed", style="bold red"))
    for failure in s.failures[:_FAILURES]:
        text = visible(failure.exception)
        out.print(
            Text(
                f"  {failure.count:,} × {visible(failure.prefix)}: {_shortened(text)}"
                f"  e.g. {visible(failure.example)[:60]}"
            ),
            soft_wrap=True,
        )
        for ends in failure.worker_ends:
            out.print(Text(f"      {visible(ends.sentence)}"), soft_wrap=True)
    if len(s.failures) > _FAILURES:
        out.print(Text(f"  and {len(s.failures) - _FAILURES} more kinds", style="dim"))
    others = (s.n_erred or 0) - sum(failure.count for failure in s.failures)
    if others > 0:
        tasks = count(others, "task")
        out.print(Text(f"  {tasks} could not run because a dependency failed", style="dim"))


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}… ({len(text):,} characters)"


def insight_line(insight: Insight) -> str:
    """Return an insight in one line, with its cost.

    >>> insight_line(Insight("Threads were idle", 2.5, "", ""))
    'Threads were idle (costs 2.5 s)'
    """
    cost = "" if not insight.seconds else f" (costs {duration(insight.seconds)})"
    return visible(insight.text) + cost


def _print_io(s: Summary, out: Console) -> None:
    lines = [] if s.files.task_read_bytes is None else [("files", io_sentence(s.files))]
    if between_workers := moved_sentence(s.moved):
        lines.append(("moved", between_workers))
    if s.io is not None:
        for number, line in enumerate(io_lines(s.io)):
            lines.append(("" if number else "Darshan", line))
    if lines:
        out.print()
    for head, line in lines:
        out.print(Text.assemble((f"{head:<9}", "bold"), line), soft_wrap=True)


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


def _print_breakdown(s: Summary, out: Console) -> None:
    if not s.breakdown.total_seconds:
        out.print(Text("time     no execution is on record", style="bold"))
        return
    available = f"{number(s.breakdown.total_seconds)} thread-seconds available"
    out.print(
        Text.assemble(
            ("time     ", "bold"),
            f"{available} (threads × time connected); tasks were in progress for "
            f"{duration(s.active_seconds)}",
        ),
        soft_wrap=True,
    )
    out.print(_bars(s))
    if note := unknown_note(s.breakdown):
        out.print(Text(f"  {note}", style="dim"), soft_wrap=True)


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
    return Text.assemble(("next     ", "bold"), "\n         ".join(commands[:_COMMANDS]))


def _client_option(s: Summary) -> str:
    return f" --client {visible(shlex.quote(s.selected_client))}" if s.selected_client else ""


def _bars(s: Summary) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    for kind in s.breakdown.shown:
        seconds, share = s.breakdown.seconds[kind], s.breakdown.share(kind)
        full = round(share * _BAR)
        bar = Text("█" * full, style=_COLORS[kind]) + Text(
            "·" * (_BAR - full), style="bright_black"
        )
        grid.add_row(
            f"  {kind}",
            bar,
            Text("–" if seconds is None else percent(share, 1), justify="right"),
            Text(duration(seconds), justify="right"),
        )
    return grid


def _prefix_table(prefixes: Sequence[PrefixUse]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("largest prefixes", overflow="ellipsis", no_wrap=True, max_width=36)
    for name in ("tasks", "failed", "compute", "median", "max", "fetching", "results"):
        table.add_column(name, justify="right", no_wrap=True)
    for p in prefixes[:_PREFIXES]:
        table.add_row(
            Text(f"  {visible(p.prefix)}"),
            f"{p.n_tasks:,}",
            "–" if p.n_erred is None else f"{p.n_erred:,}" if p.n_erred else "",
            duration(p.compute_seconds),
            duration(p.median_seconds),
            duration(p.max_seconds),
            duration(p.transfer_seconds),
            size(p.nbytes),
        )
    return table


def summary_json(s: Summary) -> str:
    """Return a summary as JSON.

    Parameters
    ----------
    s : Summary
        The summary of the run.
    """
    facts = {_JSON_NAMES.get(name, name): value for name, value in asdict(s).items()}
    facts["overhead"] = s.overhead
    return json.dumps(facts, default=_json, ensure_ascii=False, indent=1)


#: Names in JSON that differ from those of the summary's fields: programs already read them.
_JSON_NAMES = {"run_id": "run", "insights": "findings"}


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)

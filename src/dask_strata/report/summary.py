"""The first screen, on a terminal and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.breakdown import PrefixUse
from dask_strata.analysis.insights import Insight
from dask_strata.analysis.summary import InputOutput, Summary
from dask_strata.report.io import io_lines
from dask_strata.report.profile import profile_lines
from dask_strata.report.words import count, duration, size, visible

if TYPE_CHECKING:
    from rich.console import Console

_BAR = 30

#: Bytes of segments that take long to read.
_LARGE_BYTES = 32 << 20
_SHORT_RUN_CPU_SECONDS = 30
_COLORS = {
    "compute": "green",
    "transfer": "red",
    "deserialize": "yellow",
    "spill": "magenta",
    "idle": "bright_black",
}
_STATE = {"complete": "green", "recording": "cyan", "cut": "red", "imported": "blue"}


def headline(s: Summary) -> Text:
    """Return the line with the numbers."""
    whole = "nothing missing" if s.check.ok else "record incomplete"
    overhead = "" if s.overhead is None else f"recorder {_overhead(s, s.overhead)} of CPU"
    parts = [
        count(s.n_tasks, "task"),
        duration(s.duration_seconds),
        count(s.n_workers, "worker"),
        count(s.n_threads, "thread") if s.n_threads else "",
        count(s.n_hosts, "host") if s.n_hosts else "",
        f"{s.n_erred:,} failed" if s.n_erred else "none failed",
        _unfinished(s),
        f"script exited with {s.exit_status}" if s.exit_status else "",
        overhead,
        whole,
    ]
    return Text(" · ".join(filter(None, parts)))


def _unfinished(s: Summary) -> str:
    if not s.n_unfinished:
        return ""
    return f"{s.n_unfinished:,} {'to go' if s.state == 'recording' else 'never finished'}"


def _overhead(s: Summary, share: float) -> str:
    # In a short run the recorder's start weighs more than it ever will again.
    if s.process_cpu_seconds < _SHORT_RUN_CPU_SECONDS:
        return duration(s.recorder_cpu_seconds)
    return f"{share:.1%}"


def print_summary(s: Summary, out: Console) -> None:
    """Print the first screen."""
    when = f"{s.start:%Y-%m-%d %H:%M:%S} UTC" if s.start else "no start on record"
    out.print(
        Text.assemble(
            (visible(s.name), "bold"),
            "  ",
            (s.state, _STATE[s.state]),
            f"  {when}  ",
            (s.path, "dim"),
        ),
        soft_wrap=True,
    )
    out.print(headline(s))
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
    if s.findings:
        out.print()
        out.print(Text("stands out", style="bold"))
        for finding in s.findings[:5]:
            out.print(Text(f"  {insight_line(finding)}"), soft_wrap=True)
        if len(s.findings) > 5:  # noqa: PLR2004
            out.print(Text(f"  and {len(s.findings) - 5} more", style="dim"))
    out.print()
    out.print(Text.assemble(("record   ", "bold"), visible(s.check.sentence)), soft_wrap=True)
    out.print(next_commands(s.path, s), soft_wrap=True)


def _print_failures(s: Summary, out: Console) -> None:
    if not s.failures:
        return
    out.print()
    out.print(Text("failed", style="bold red"))
    for failure in s.failures[:3]:
        text = visible(failure.exception)
        out.print(
            Text(
                f"  {failure.count:,} × {visible(failure.prefix)}: {text[:100]}"
                f"  e.g. {visible(failure.example)[:60]}"
            ),
            soft_wrap=True,
        )
    if len(s.failures) > 3:  # noqa: PLR2004
        out.print(Text(f"  and {len(s.failures) - 3} more kinds", style="dim"))
    others = s.n_erred - sum(failure.count for failure in s.failures)
    if others > 0:
        out.print(Text(f"  {others:,} more need a task that failed", style="dim"))


def insight_line(insight: Insight) -> str:
    """Return a finding as one line, with what it cost."""
    cost = "" if not insight.seconds else f" (costs {duration(insight.seconds)})"
    return visible(insight.text) + cost


def _print_io(s: Summary, out: Console) -> None:
    lines = [] if s.files.task_read_bytes is None else [("files", io_sentence(s.files))]
    if s.io is not None:
        for number, line in enumerate(io_lines(s.io)):
            lines.append(("" if number else "Darshan", line))
    if lines:
        out.print()
    for head, line in lines:
        out.print(Text.assemble((f"{head:<9}", "bold"), line), soft_wrap=True)


def io_sentence(io: InputOutput) -> str:
    """Return who read and wrote files, with what is nobody's said as such."""
    by_libraries = io.library_read_bytes
    read, written = size(io.unattributed_read_bytes), size(io.unattributed_write_bytes)
    parts = [
        f"tasks read {size(io.task_read_bytes)}",
        f"{size(by_libraries)} more by libraries for them" if by_libraries else "",
        f"wrote {size(io.task_write_bytes)}",
        f"by workers otherwise (unattributed): {read} read, {written} written",
    ]
    return " · ".join(filter(None, parts))


def _print_breakdown(s: Summary, out: Console) -> None:
    if not s.breakdown.total_seconds:
        out.print(Text("worker-seconds  no execution of a task is on record", style="bold"))
        return
    out.print(
        Text(
            f"worker-seconds  {s.breakdown.total_seconds:,.1f} s: threads, each for as long as "
            f"its worker was there (tasks were under way for {duration(s.active_seconds)})",
            style="bold",
        )
    )
    out.print(_bars(s))


def next_commands(path: str, s: Summary) -> Text:
    """Return the next commands to type."""
    run = shlex.quote(path)
    commands = []
    if not s.check.ok:
        commands.append(f"dask-strata check {run}")
    if s.failures:
        commands.append(f"dask-strata story {run} {shlex.quote(visible(s.failures[0].example))}")
    if s.state != "recording" and s.segment_bytes > _LARGE_BYTES:
        commands.append(f"dask-strata compact {run}")  # it is read in half the time then
    if s.profile is not None:
        commands.append(f"dask-strata profile {run}")
    commands += [
        f"dask-strata report {run}",
        f"dask-strata tasks {run} --sort compute_seconds",
        f"dask-strata map {run}",
    ]
    return Text.assemble(("next     ", "bold"), "\n         ".join(commands[:3]))


def _bars(s: Summary) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    for kind, seconds in s.breakdown.seconds.items():
        share = s.breakdown.share(kind)
        full = round(share * _BAR)
        bar = Text("█" * full, style=_COLORS[kind]) + Text(
            "·" * (_BAR - full), style="bright_black"
        )
        grid.add_row(
            f"  {kind}",
            bar,
            Text(f"{share:.1%}", justify="right"),
            Text(duration(seconds), justify="right"),
        )
    return grid


def _prefix_table(prefixes: Sequence[PrefixUse]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("largest prefixes", overflow="ellipsis", no_wrap=True, max_width=36)
    for name in ("tasks", "failed", "compute", "median", "max", "fetching", "results"):
        table.add_column(name, justify="right", no_wrap=True)
    for p in prefixes[:5]:
        table.add_row(
            Text(f"  {visible(p.prefix)}"),
            f"{p.n_tasks:,}",
            f"{p.n_erred:,}" if p.n_erred else "",
            duration(p.compute_seconds),
            duration(p.median_seconds),
            duration(p.max_seconds),
            duration(p.transfer_seconds),
            size(p.nbytes),
        )
    return table


def summary_json(s: Summary) -> str:
    """Return the first screen as JSON."""
    facts = asdict(s)
    facts["overhead"] = s.overhead
    return json.dumps(facts, default=_json, ensure_ascii=False, indent=1)


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)

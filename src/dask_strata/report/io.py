"""Input and output of a run, on a terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console  # noqa: TC002  rich is loaded anyway
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.io import CERTAIN, SMALL_BYTES, Compared, FileIo, Io, PrefixIo
from dask_strata.analysis.timeline.traffic import Moved
from dask_strata.report.terminal.text_table import print_fitted
from dask_strata.report.words import count, duration, percent, size, visible

#: Most rows of a table, prefixes in a sentence, and storms.
_ROWS = 10
_PREFIXES = 4
_STORMS = 3

#: Names of the ways in which operations are attributed to tasks.
_ATTRIBUTION = {
    "thread": "matched by thread",
    "alone": "matched as the only task",
    "ambiguous": "ambiguous",
    "elsewhere": "by threads that run no tasks",
    "recorder": "dask-strata's own",
    "outside": "outside any task",
}

#: Names of the objects that bytes are tied to, see `TiedIo`.
_TIED_TO = {"task": "tasks", "process": "processes", "host": "host"}


def io_lines(io: Io) -> Iterator[str]:
    """Yield the lines about input and output on the first screen.

    Parameters
    ----------
    io : Io
        Input and output of a run.
    """
    read = sum(p.read_bytes for p in io.prefixes)
    written = sum(p.write_bytes for p in io.prefixes)
    seconds = sum(p.io_seconds for p in io.prefixes)
    compute = sum(p.compute_seconds or 0.0 for p in io.prefixes)
    logs = f"{io.n_tied:,} of {count(io.n_logs, 'log')}"
    if not io.n_tied:
        yield f"none of {count(io.n_logs, 'log')} is of a process of the run"
        yield _all_logs(io)
        return
    if not io.n_operations:
        yield f"{logs} are of processes of the run, without traces"
        yield _all_logs(io)
        return
    share = f" ({percent(seconds / compute)})" if compute else ""
    yield (
        f"tasks read {size(read)} and wrote {size(written)} in {duration(seconds)} "
        f"of {duration(compute)} of computing{share}; {logs} are of processes of the run"
    )
    shown = [p for p in io.prefixes if p.read_bytes + p.write_bytes][:_PREFIXES]
    by = ", ".join(
        f"{visible(p.prefix)} {size(p.read_bytes)} read {size(p.write_bytes)} written"
        for p in shown
    )
    yield (
        f"{percent(io.certain or 0)} of {count(io.n_operations_of_users, 'operation')} belong to "
        "one task" + (f": {by}" if by else "")
    )
    yield _all_logs(io)


def _all_logs(io: Io) -> str:
    """Return the bytes of all logs, and of those that are of no process of the run."""
    text = f"all logs: {size(io.read_bytes)} read, {size(io.write_bytes)} written"
    untied = [t for t in io.totals if t.tied_to in {None, "host"} and t.read_bytes + t.write_bytes]
    if untied:
        read, written = (sum(getattr(t, f"{o}_bytes") for t in untied) for o in ("read", "write"))
        most = max(untied, key=lambda t: t.read_bytes + t.write_bytes)
        text += (
            f"; of no process of the run: {size(read)} read, {size(written)} written "
            f"({'mostly: ' if len({t.reason for t in untied}) > 1 else ''}{most.reason})"
        )
    by_time = [t.certainty for t in io.totals if t.certainty is not None and t.certainty < 1]
    if by_time:
        text += (
            "; logs are matched to workers by the times of their operations, "
            f"certainty {math.floor(min(by_time) * 100) / 100:.2f} or more"
        )
    return text


def moved_sentence(moved: Moved) -> str:
    """Return the bytes that moved between workers, in one line; "" if none are on record.

    Parameters
    ----------
    moved : Moved
        The bytes.

    Examples
    --------
    >>> moved_sentence(Moved(3, 2048, 0.5, 0, 0, 0.0))
    '3 transfers of results: 2 KiB in 0.5 s (sums of all messages)'
    """
    if not moved.transfers and not moved.shuffles:
        return ""
    parts = []
    if moved.transfers is not None:
        results = f"{size(moved.transfer_bytes)} in {duration(moved.transfer_seconds)}"
        parts.append(f"{count(moved.transfers, 'transfer')} of results: {results}")
    if moved.shuffles:
        shards = f"{size(moved.shuffle_bytes)} in {duration(moved.shuffle_seconds)}"
        parts.append(f"{count(moved.shuffles, 'P2P shuffle')}: {shards}")
    return " · ".join(parts) + " (sums of all messages)"


def print_io(io: Io, moved: Moved, path: str, out: Console) -> None:
    """Print input and output by prefix and by file, with insights.

    Parameters
    ----------
    io : Io
        Input and output of a run.
    moved : Moved
        Bytes that moved between its workers.
    path : str
        The run's folder, as the user names it.
    out : Console
        The console.
    """
    out.print(Text.assemble(("input and output", "bold"), f"  {visible(path)}"), soft_wrap=True)
    for line in io_lines(io):
        out.print(Text(f"  {line}"), soft_wrap=True)
    if between_workers := moved_sentence(moved):
        out.print(Text(f"  between workers: {between_workers}"), soft_wrap=True)
    if io.attributed:
        parts = ", ".join(
            f"{n:,} {_ATTRIBUTION[by]} ({size(nbytes)})"
            for by, (n, nbytes) in io.attributed.items()
        )
        out.print(Text(f"  operations: {parts}"), soft_wrap=True)
    if io.compared is not None:
        for line in compared_lines(io.compared):
            out.print(Text(f"  {line}"), soft_wrap=True)
    if io.totals:
        out.print()
        print_fitted(_totals(io), out, ("bytes of", "read", "written", "why"))
    if io.prefixes:
        out.print()
        print_fitted(_prefixes(io.prefixes), out)
    if io.files:
        out.print()
        print_fitted(_files(io.files), out, ("files", "tasks", "read", "written", "reads", "again"))
        more = len(io.files) - _ROWS
        if more > 0:
            out.print(Text(f"  and {count(more, 'file')} more: --by file", style="dim"))
    found = list(io_insights(io))
    if found:
        out.print()
        out.print(Text("insights", style="bold"))
        for line in found:
            out.print(Text(f"  {line}"), soft_wrap=True)


def compared_lines(compared: Compared) -> Iterator[str]:
    """Yield the differences between the bytes that the kernel counted and Darshan traced.

    Parameters
    ----------
    compared : Compared
        The bytes of attempts.
    """
    n = compared.n_attempts
    for operation, counted, traced, equal in (
        (
            "reads",
            compared.counted_read_bytes,
            compared.traced_read_bytes,
            compared.equal_reads,
        ),
        (
            "writes",
            compared.counted_write_bytes,
            compared.traced_write_bytes,
            compared.equal_writes,
        ),
    ):
        difference = counted - traced
        sign = "more" if difference > 0 else "fewer"
        yield (
            f"{operation} of {count(n, 'attempt')}: {size(counted)} counted by the kernel, "
            f"{size(traced)} traced by Darshan; {size(abs(difference))} {sign} counted, "
            f"{equal:,} within {size(SMALL_BYTES)}"
        )


def io_insights(io: Io) -> Iterator[str]:
    """Yield insights: small reads, repeated reads, and storms of opens and stats.

    Parameters
    ----------
    io : Io
        Input and output of a run, with files.
    """
    reads = sum(f.reads for f in io.files)
    small = sum(f.small_reads for f in io.files)
    if reads and small > reads / 2:
        yield f"{small:,} of {count(reads, 'read')} are smaller than {size(SMALL_BYTES)}"
    again = sum(f.repeated_bytes for f in io.files)
    read = sum(f.read_bytes for f in io.files)
    if read and again > read / 10:
        most = max(io.files, key=lambda f: f.repeated_bytes)
        yield (
            f"{size(again)} of {size(read)} were read again, most from {visible(most.uri)}: "
            f"{size(most.repeated_bytes)}"
        )
    for file in [f for f in io.files if f.storm][:_STORMS]:
        yield (
            f"{visible(file.uri)} had {count(file.opens or 0, 'open')} and "
            f"{count(file.stats or 0, 'stat')} for {file.reads + file.writes:,} reads and writes"
        )


def _table(title: str, *numbers: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _totals(io: Io) -> RichTable:
    table = _table("bytes of", "logs", "operations", "read", "written", "certainty")
    table.add_column("why", overflow="fold")
    host: object = ()
    for t in io.totals:
        if t.host != host:
            host = t.host
            table.add_row(Text(f"  {visible(t.host or '(unknown host)')}", style="bold"))
        table.add_row(
            f"    {_TIED_TO.get(t.tied_to or '', 'no process')}",
            f"{t.n_logs:,}",
            f"{t.n_operations:,}",
            size(t.read_bytes),
            size(t.write_bytes),
            "–" if t.certainty is None else f"{t.certainty:.2f}",
            visible(t.reason or _ATTRIBUTION.get(t.attributed_by or "", "")),
        )
    table.add_row(
        "  all",
        f"{io.n_logs:,}",
        f"{sum(t.n_operations for t in io.totals):,}",
        size(io.read_bytes),
        size(io.write_bytes),
        style="bold",
    )
    return table


def _prefixes(prefixes: tuple[PrefixIo, ...]) -> RichTable:
    table = _table("prefixes", "tasks", "read", "written", "I/O", "compute")
    for p in prefixes[:_ROWS]:
        table.add_row(
            Text(f"  {visible(p.prefix)}"),
            f"{p.n_tasks:,}",
            size(p.read_bytes),
            size(p.write_bytes),
            duration(p.io_seconds),
            duration(p.compute_seconds),
        )
    return table


def _files(files: tuple[FileIo, ...]) -> RichTable:
    table = _table(
        *("files", "tasks", "reads", "small", "read", "by tasks", "again"),
        *("writes", "written", "opens", "stats"),
    )
    for f in files[:_ROWS]:
        table.add_row(
            Text(f"  {visible(f.uri)}"),
            f"{f.n_tasks:,}",
            f"{f.reads:,}",
            f"{f.small_reads:,}",
            size(f.read_bytes),
            size(f.task_read_bytes),
            size(f.repeated_bytes),
            f"{f.writes:,}",
            size(f.write_bytes),
            "–" if f.opens is None else f"{f.opens:,}",
            "–" if f.stats is None else f"{f.stats:,}",
        )
    return table


def io_json(io: Io) -> str:
    """Return input and output as JSON.

    Parameters
    ----------
    io : Io
        Input and output of a run.
    """
    facts = asdict(io) | {
        "read_bytes": io.read_bytes,
        "write_bytes": io.write_bytes,
        "certain": io.certain,
        "certain_by": CERTAIN,
    }
    return json.dumps(facts, ensure_ascii=False, indent=1)

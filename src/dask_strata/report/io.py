"""Input and output, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console  # noqa: TC002  rich is loaded anyway
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.io import CERTAIN, SMALL_BYTES, Compared, FileIo, Io, PrefixIo
from dask_strata.report.words import count, duration, size, visible

_ROWS = 10

_HOW = {
    "thread": "by thread",
    "alone": "as one task ran",
    "ambiguous": "ambiguous",
    "outside": "outside any task",
}


def io_lines(io: Io) -> Iterator[str]:
    """Yield the lines of a first screen."""
    read = sum(p.read_bytes for p in io.prefixes)
    written = sum(p.write_bytes for p in io.prefixes)
    seconds = sum(p.io_seconds for p in io.prefixes)
    compute = sum(p.compute_seconds or 0.0 for p in io.prefixes)
    logs = f"{io.n_tied:,} of {count(io.n_logs, 'log')}"
    if not io.n_tied:
        yield (
            f"none of {count(io.n_logs, 'log')} of Darshan's is of a process of the run: what they "
            "have is in darshan_logs, darshan_counters and darshan_segments"
        )
        return
    if not io.n_operations:
        yield f"{logs} of Darshan's are of the run's processes, without traces"
        return
    share = f" ({seconds / compute:.0%} of it)" if compute else ""
    yield (
        f"tasks read {size(read)} and wrote {size(written)} in {duration(seconds)} "
        f"of {duration(compute)} of computing{share}; {logs} of Darshan's"
    )
    names = [p for p in io.prefixes if p.read_bytes + p.write_bytes][:4]
    by = ", ".join(
        f"{visible(p.prefix)} {size(p.read_bytes)} read {size(p.write_bytes)} written"
        for p in names
    )
    yield f"{io.certain or 0:.0%} of {io.n_operations:,} operations have one task" + (
        f": {by}" if by else ""
    )


def print_io(io: Io, path: str, out: Console) -> None:
    """Print what was read and written: by prefix, by file, and what stands out."""
    out.print(Text.assemble(("input and output", "bold"), f"  {visible(path)}"), soft_wrap=True)
    for line in io_lines(io):
        out.print(Text(f"  {line}"), soft_wrap=True)
    if io.attributed:
        said = ", ".join(
            f"{_HOW[by]} {n:,} ({size(nbytes)})" for by, (n, nbytes) in io.attributed.items()
        )
        out.print(Text(f"  operations: {said}"), soft_wrap=True)
    if io.compared is not None:
        for line in compared_lines(io.compared):
            out.print(Text(f"  {line}"), soft_wrap=True)
    if io.prefixes:
        out.print()
        out.print(_prefixes(io.prefixes))
    if io.files:
        out.print()
        out.print(_files(io.files))
        more = len(io.files) - _ROWS
        if more > 0:
            out.print(Text(f"  and {count(more, 'file')} more: --by file", style="dim"))
    found = list(stands_out(io))
    if found:
        out.print()
        out.print(Text("stands out", style="bold"))
        for line in found:
            out.print(Text(f"  {line}"), soft_wrap=True)


def compared_lines(compared: Compared) -> Iterator[str]:
    """Yield how far the bytes that threads counted are from those that Darshan traced."""
    n = compared.n_attempts
    for what, counted, traced, equal in (
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
            f"{what}: {count(n, 'attempt')} counted {size(counted)} in their threads, Darshan "
            f"traced {size(traced)} of them; {size(abs(difference))} {sign} counted, "
            f"{equal:,} within {size(SMALL_BYTES)}"
        )


def stands_out(io: Io) -> Iterator[str]:
    """Yield small reads, files that are read again, and storms of opens and stats."""
    reads = sum(f.reads for f in io.files)
    small = sum(f.small_reads for f in io.files)
    if reads and small > reads / 2:
        yield f"{small:,} of {reads:,} reads are of less than {size(SMALL_BYTES)}"
    again = sum(f.repeated_bytes for f in io.files)
    read = sum(f.read_bytes for f in io.files)
    if read and again > read / 10:
        most = max(io.files, key=lambda f: f.repeated_bytes)
        yield (
            f"{size(again)} of {size(read)} read had been read before, most of "
            f"{visible(most.uri)}: {size(most.repeated_bytes)}"
        )
    for file in [f for f in io.files if f.storm][:3]:
        yield (
            f"{visible(file.uri)} was opened {file.opens or 0:,} times and looked at "
            f"{file.stats or 0:,} times, for {file.reads + file.writes:,} reads and writes"
        )


def _table(title: str, *numbers: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
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
        "files", "tasks", "reads", "small", "read", "again", "writes", "written", "opens", "stats"
    )
    for f in files[:_ROWS]:
        table.add_row(
            Text(f"  {visible(f.uri)}"),
            f"{f.n_tasks:,}",
            f"{f.reads:,}",
            f"{f.small_reads:,}",
            size(f.read_bytes),
            size(f.repeated_bytes),
            f"{f.writes:,}",
            size(f.write_bytes),
            "–" if f.opens is None else f"{f.opens:,}",
            "–" if f.stats is None else f"{f.stats:,}",
        )
    return table


def io_json(io: Io) -> str:
    """Return all of it as JSON."""
    facts = asdict(io) | {"certain": io.certain, "certain_by": CERTAIN}
    return json.dumps(facts, ensure_ascii=False, indent=1)

"""The chunks of a run, on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.chunks.chunks import Chunks, Share
from dask_strata.analysis.chunks.file_reads import Advice, Reading
from dask_strata.report.terminal.text_table import print_fitted
from dask_strata.report.words import count, duration, number, rate, size, visible

if TYPE_CHECKING:
    from rich.console import Console

#: Most rows of a table.
_ROWS = 8


def print_chunks(chunks: Chunks, path: str, out: Console) -> None:
    """Print the chunks of a run: sums, slow and failed chunks, bytes read, and advice.

    Parameters
    ----------
    chunks : Chunks
        The chunks.
    path : str
        The run's folder, as the user names it.
    out : Console
        The console.
    """
    if not chunks.total.chunks and not chunks.lost_files:
        out.print(
            Text("No chunk is on record: no task processed, or declared, a range of entries.")
        )
        return
    _line(out, "", headline(chunks), style="bold")
    if chunks.phases:
        parts = [f"{name} {duration(seconds)}" for name, seconds in chunks.phases.items()]
        _line(out, "phases", " · ".join(parts))
    for title, shares in (
        ("dataset", chunks.by_dataset),
        ("file", chunks.by_file),
        ("worker", chunks.by_worker),
    ):
        out.print()
        print_fitted(_shares(title, shares), out, (title, "chunks", "not done"))
        _more(out, len(shares))
    if chunks.slowest:
        out.print()
        print_fitted(_slowest(chunks.slowest), out)
    _print_troubled(chunks, out)
    if chunks.reading:
        out.print()
        print_fitted(_reading(chunks.reading), out)
        _more(out, len(chunks.reading))
    _print_compared(chunks, out)
    if chunks.advice:
        out.print()
        for advice in chunks.advice:
            _line(out, "advice", advice_text(advice))
    out.print()
    _line(out, "next", f"dask-strata chunks {shlex.quote(path)} --sort seconds")
    if chunks.slowest:
        key = shlex.quote(visible(chunks.slowest[0]["key"]))
        _line(out, "", f"dask-strata story {shlex.quote(path)} {key}")


def headline(chunks: Chunks) -> str:
    """Return the numbers of the chunks in one line.

    Parameters
    ----------
    chunks : Chunks
        The chunks.
    """
    total = chunks.total
    states = ", ".join(f"{n:,} {state}" for state, n in chunks.states.items())
    elapsed = chunks.elapsed_seconds
    parts = [
        f"{count(total.chunks, 'chunk')}: {states}",
        _events(total),
        f"{size(total.read_bytes)} read{_unread(total)}",
        f"{duration(total.seconds)} in tasks",
    ]
    if elapsed:
        speed = rate(total.read_bytes, elapsed)
        parts.append(f"{duration(elapsed)} elapsed: {speed}, {_khz(total.events, elapsed)}")
    return " · ".join(parts)


def _events(share: Share) -> str:
    if share.events is None:
        return "events unknown"
    unknown = f" (unknown of {count(share.uncounted, 'chunk')})" if share.uncounted else ""
    return count(share.events, "event") + unknown


def _unread(share: Share) -> str:
    return f" (unknown of {count(share.unread, 'chunk')})" if share.unread else ""


def advice_text(advice: Advice) -> str:
    """Return advice as a sentence.

    Parameters
    ----------
    advice : Advice
        The advice.

    >>> advice_text(Advice("larger chunks: seconds", 8.0, 10.0))
    '8 s of 10 s were spent on opening files and building events: make chunks larger'
    """
    if advice.what == "larger chunks: seconds":
        return (
            f"{duration(advice.amount)} of {duration(advice.of)} were spent on opening files and "
            "building events: make chunks larger"
        )
    share = f"{size(advice.amount)} of {size(advice.of)}"
    if advice.what == "align to clusters":
        return (
            f"{share} were requested by several chunks, because they share a cluster of entries: "
            "align chunks to clusters (align_clusters=True)"
        )
    return f"{share} were read again by each chunk to open its file: make chunks larger"


def _line(out: Console, head: str, text: str, style: str = "") -> None:
    start = (f"{head:<9}", "bold") if head or style == "" else ("", "")
    out.print(Text.assemble(start, (visible(text), style)), soft_wrap=True)


def _more(out: Console, n: int) -> None:
    if n > _ROWS:
        out.print(Text(f"  and {n - _ROWS:,} more", style="dim"))


def _khz(events: float | None, seconds: float | None) -> str:
    return f"{number(events / seconds / 1e3)} kHz" if seconds and events is not None else "–"


def _table(first: str, *numbers: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _shares(title: str, shares: Sequence[Share]) -> RichTable:
    table = _table(title, "chunks", "not done", "events", "read", "seconds", "MiB/s", "kHz")
    for share in shares[:_ROWS]:
        table.add_row(
            Text(visible(share.name)),
            f"{share.chunks:,}",
            f"{share.chunks - share.done:,}" if share.chunks > share.done else "",
            "unknown" if share.events is None else f"{share.events:,}",
            size(share.read_bytes),
            duration(share.seconds),
            rate(share.read_bytes, share.seconds).removesuffix(" MiB/s"),
            _khz(share.events, share.seconds).removesuffix(" kHz"),
        )
    return table


def _where(row: Mapping[str, Any]) -> str:
    tree = f":{row['tree']}" if row["tree"] else ""
    entries = f" [{row['first']}, {row['last']})" if row.get("first") is not None else ""
    return visible(f"{row['uri']}{tree}{entries}")


def _slowest(rows: Sequence[Mapping[str, Any]]) -> RichTable:
    table = _table("slowest", "seconds", "open", "build", "process", "other", "read", "worker")
    for row in rows:
        table.add_row(
            Text(_where(row)),
            *(
                duration(row[name])
                for name in (
                    "seconds",
                    "open_seconds",
                    "build_seconds",
                    "process_seconds",
                    "other_seconds",
                )
            ),
            size(row["read_bytes"]),
            visible(row["worker"] or ""),
        )
    return table


def _print_troubled(chunks: Chunks, out: Console) -> None:
    if not chunks.troubled and not chunks.lost_files:
        return
    out.print()
    out.print(Text("failed, skipped, lost or retried", style="bold red"))
    for row in chunks.troubled[:_ROWS]:
        tries = f" in {count(row['n_attempts'], 'attempt')}" if row["n_attempts"] > 1 else ""
        _trouble(out, f"{row['state']}{tries}", row)
    _more(out, len(chunks.troubled))
    for file in chunks.lost_files[:_ROWS]:
        _trouble(out, "left out", file)
    _more(out, len(chunks.lost_files))


def _trouble(out: Console, state: str, row: Mapping[str, Any]) -> None:
    why = visible((row["exception"] or "no exception on record")[:200])
    out.print(
        Text(f"  {state}: {visible(row['dataset'] or '')} {_where(row)}  {why}"), soft_wrap=True
    )


def _reading(reading: Sequence[Reading]) -> RichTable:
    table = _table("reading", "chunks", "requested", "again", "of file", "times its size")
    for file in reading[:_ROWS]:
        table.add_row(
            Text(visible(file.uri)),
            f"{file.chunks:,}",
            size(file.requested_bytes),
            size(file.repeated_bytes),
            size(file.file_bytes),
            "–" if file.amplification is None else number(file.amplification),
        )
    return table


def _number(n: float | None) -> str:
    return "unknown" if n is None else f"{n:,}"


def _print_compared(chunks: Chunks, out: Console) -> None:
    if not chunks.compared:
        return
    out.print()
    for each in chunks.compared:
        verdict = "equal" if each.equal else "NOT EQUAL"
        _line(
            out,
            "coffea",
            f"{each.name}: {_number(each.reported)} reported, {_number(each.recorded)} on "
            f"record: {verdict}",
        )

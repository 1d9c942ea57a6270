"""Data of the page's script: the timeline's columns and their meanings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dask_strata.analysis.critical_path.walk import CriticalPath
from dask_strata.analysis.diagnosis import Insight
from dask_strata.analysis.timeline.series import Series
from dask_strata.analysis.timeline.timeline import OUTCOMES, PHASES, Timeline
from dask_strata.report.page import colors
from dask_strata.report.page.columns import Container, Ints, few_digits
from dask_strata.report.story import file_line
from dask_strata.report.words import visible

#: Resolution of times in the page, in ns.
_US = 1000

#: Binary digits of lengths and sizes of bars: more than the three decimal digits that are shown.
_DIGITS = 12

#: Coarsest unit of lengths in large runs, in µs.
_COARSEST = 64

#: Keys that are searched for invisible characters at a time.
_BLOCK = 1 << 16

#: Most characters of an exception in the timeline; the story has the full text.
_EXCEPTION = 400


@dataclass(frozen=True)
class Limits:
    """Limits above which the page leaves something out, with a note.

    Attributes
    ----------
    bars : int
        Attempts above which neighbours on a thread with the same prefix, outcome, client and
        span are drawn as one bar.
    keys, edges : int
        Attempts above which keys, and dependencies, of single tasks are left out.
    path : int
        Most segments of the critical path.
    exceptions : int
        Most exceptions, and most ends of workers, in the timeline.
    files : int
        Most files of single tasks.
    tokens : int
        Most bytes of the hashes in keys; beyond that they are shortened.
    exact : int
        Attempts above which lengths of bars are rounded, by at most 32 µs.
    text : int
        Characters of the timeline's data beyond which runs of more attempts than this lack some
        sizes and times of single tasks.
    """

    bars: int = 2_000_000
    keys: int = 1_000_000
    edges: int = 200_000
    path: int = 20_000
    exceptions: int = 2_000
    files: int = 50_000
    tokens: int = 3_500_000
    exact: int = 200_000
    text: int = 11_500_000


@dataclass(frozen=True)
class PageData:
    """Data of the page's script.

    Attributes
    ----------
    bars, keys, edges : str
        Containers of columns, in base64.
    facts : dict
        Small facts, for JSON.
    notes : tuple of str
        Sentences about omitted data.
    """

    bars: str
    keys: str
    edges: str
    facts: dict[str, Any]
    notes: tuple[str, ...]


def page_data(drawn: Timeline, path: CriticalPath, stops: Series, limits: Limits) -> PageData:
    """Return the data of the page's script.

    Parameters
    ----------
    drawn : Timeline
        The timeline.
    path : CriticalPath
        The critical path.
    stops : Series
        Stopped processes over time.
    limits : Limits
        Limits above which data are left out.
    """
    n = len(drawn.bars)
    notes = []
    keys, edges = Container(), Container()
    bars, where = _merged(drawn, limits.bars)
    if len(bars["row"]) < n:
        notes.append(
            f"{n:,} attempts are drawn as {len(bars['row']):,} bars: neighbours on a thread with "
            "the same prefix, outcome, client and span are joined. The tables count each attempt."
        )
    whole = len(bars["row"]) == n
    names: list[str] = []
    with_keys = whole and n <= limits.keys and drawn.keys is not None
    if with_keys and drawn.keys is not None:
        size = keys.texts("key", _visible(drawn.keys["key"]), most=limits.tokens)
        if size < 16:  # noqa: PLR2004  bytes of a whole one
            notes.append(
                f"Keys have the first {2 * size} of the 32 digits of their hashes, because all "
                f"would need more than {limits.tokens / 1e6:.1f} MB."
            )
        names, types = _types(drawn.keys["key_type"])
        keys.ints("type", types)
        of_task, files = drawn.files
        keys.ints("file.count", np.bincount(of_task, minlength=drawn.n_tasks).astype(np.int64))
        keys.texts("file", (file_line(file) for file in files))
        if drawn.more_files:
            notes.append(f"Files of single tasks are left out above {limits.files:,} files.")
    else:
        notes.append(f"Keys of single tasks are left out above {limits.keys:,} attempts.")
    with_edges = with_keys and n <= limits.edges
    if with_edges:
        needs, needed = drawn.edges
        counts = np.bincount(needs, minlength=drawn.n_tasks).astype(np.int64)
        edges.ints("count", counts)
        edges.ints("needed", needed, delta=True)
    else:
        notes.append(f"Dependencies of single tasks are left out above {limits.edges:,} attempts.")
    segments = path.segments[-limits.path :]
    if len(segments) < len(path.segments):
        notes.append(f"Only the last {limits.path:,} segments of the critical path are drawn.")
    texts = keys.text(), edges.text()
    made = _bars(bars, drawn, where, limits.exact)
    absent = _add_sizes(made, bars, limits, sum(map(len, texts)))
    if absent:
        notes.append(
            f"Of single tasks, {', '.join(_SIZES[name] for name in absent)} are left out, because "
            f"the page would have more than {limits.text / 1e6:.1f} MB of data."
        )
    facts = {
        "absent": absent,
        "origin_ms": drawn.origin / 1e6,
        "span": drawn.span // _US,
        "first": _first_submission(drawn, path),
        "patterns": colors.patterns(drawn.prefixes),
        "rows": [
            [
                visible(row.worker),
                visible(row.name),
                str(row.thread or ""),
                visible(row.host or ""),
                str(row.pid or ""),
            ]
            for row in drawn.rows
        ],
        "prefixes": [[visible(p), colors.color_of(p)] for p in drawn.prefixes],
        "clients": [visible(name) for name in drawn.clients] if len(drawn.clients) > 1 else [],
        "spans": [visible(name) for name in drawn.spans],
        "outcomes": OUTCOMES,
        "phases": [[name, colors.PHASES[name]] for name in PHASES],
        "causes": list(colors.CAUSES.items()),
        "types": names,
        "path": _path(segments, drawn.origin),
        "series": {"step": stops.step_seconds * 1e6, **_rounded(stops)},
        "exceptions": {
            str(where[index]): visible(text[:_EXCEPTION])
            for index, text in list(drawn.exceptions.items())[: limits.exceptions]
        },
        "worker_ends": {
            str(where[index]): visible(text)
            for index, text in list(drawn.worker_ends.items())[: limits.exceptions]
        },
        "keys": with_keys,
        "edges": with_edges,
    }
    return PageData(made.text(), *texts, facts, tuple(notes))


def intervals_of(insight: Insight, origin: int) -> str:
    """Return where an insight is on the timeline, as JSON: start, stop, worker, thread of each.

    Parameters
    ----------
    insight : Insight
        The insight.
    origin : int
        First moment of the timeline, in ns since the epoch.
    """
    return json.dumps(
        [
            [
                (i.start - origin) // _US,
                (i.stop - origin) // _US,
                visible(i.worker or ""),
                str(i.thread or ""),
            ]
            for i in insight.intervals
        ]
    )


def _first_submission(drawn: Timeline, path: CriticalPath) -> int:
    """Return when work began, in µs: the critical path's start, or that of the first bar."""
    starts = [int(drawn.bars.start.min())] if len(drawn.bars) else [0]
    starts += [path.segments[0].start - drawn.origin] if path.segments else []
    return max(min(starts) // _US, 0)


def _visible(texts: pa.ChunkedArray) -> Iterator[str]:
    """Yield texts as `visible` returns them; most blocks have no character that it replaces."""
    for at in range(0, len(texts), _BLOCK):
        block = texts[at : at + _BLOCK].to_pylist()
        joined = " ".join(block)
        yield from block if visible(joined) == joined else map(visible, block)


def _types(kinds: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return the names of the types of keys in order, and the index of each key's."""
    encoded = kinds.cast(pa.string()).dictionary_encode().unify_dictionaries().combine_chunks()
    found = encoded.dictionary.to_pylist()
    names = sorted(found)
    places = np.array([names.index(name) for name in found], np.int64)
    return names, places[encoded.indices.to_numpy()]


def _rounded(stops: Series) -> dict[str, list[int]]:
    return {name: [round(v) for v in values] for name, values in stops.values.items()}


def _path(segments: tuple[Any, ...], origin: int) -> list[list[int]]:
    """Return the cause, start and length in µs of each segment."""
    order = list(colors.CAUSES)
    return [
        [order.index(s.cause), (s.start - origin) // _US, (s.stop - s.start) // _US]
        for s in segments
    ]


#: Columns in which neighbours have to agree to be one bar.
_GROUPED = ("row", "prefix", "outcome", "client", "span")


def _merged(drawn: Timeline, most: int) -> tuple[dict[str, Ints], Ints]:
    """Return the columns of at most about `most` bars, and the index of each attempt's bar."""
    bars = drawn.bars
    columns = {name: getattr(bars, name) for name in bars.__dataclass_fields__}
    columns["start"], columns["stop"] = bars.start // _US, bars.stop // _US
    n = len(bars)
    where: Ints = np.arange(n)
    while len(columns["row"]) > most:
        step = max(drawn.span // _US * len(drawn.rows) // most, 1)
        group = np.stack([columns[c] for c in _GROUPED])
        bucket = columns["start"] // step
        changes = (np.diff(group, prepend=-1) != 0).any(axis=0) | (np.diff(bucket, prepend=-1) != 0)
        first = np.flatnonzero(changes)
        if len(first) == len(columns["row"]):
            break
        stop = np.maximum.reduceat(columns["stop"], first)
        columns = {name: values[first] for name, values in columns.items()} | {"stop": stop}
        where = (np.cumsum(changes) - 1)[where]
        most *= 2  # accept more bars in the next round: merging again would lose more detail
    return columns, where


#: Sizes and times of bars that a large page may leave out, the most useful first.
_SIZES = {
    "nbytes": "sizes of results",
    "cpu": "CPU times",
    "read_bytes": "bytes read",
    "other_cpu": "CPU times of other threads",
}


def _add_sizes(made: Container, bars: dict[str, Ints], limits: Limits, others: int) -> list[str]:
    """Add the columns of sizes and times, and return the names of those without room."""
    large = len(bars["row"]) > limits.exact
    room = limits.text - others - made.cost() if large else 0
    absent = []
    for name in _SIZES:
        value = bars[name].astype(np.int64)
        known = few_digits(np.maximum(value, 0), _DIGITS) + 1
        made.ints(name, np.where(value < 0, 0, known))
        cost = made.cost(name) if large else 0
        if cost > room:
            made.drop(name)
            absent.append(name)
        else:
            room -= cost
    return absent


def _bars(columns: dict[str, Ints], drawn: Timeline, where: Ints, most_exact: int) -> Container:
    made = Container()
    row, start, stop = columns["row"], columns["start"], columns["stop"]
    if len(row) > most_exact:
        stop = start + few_digits(stop - start, _DIGITS, _COARSEST)
    made.ints("row", np.bincount(row, minlength=len(drawn.rows)).astype(np.int64))
    # Gaps are smaller numbers than starts: a bar starts soon after the end of the previous one.
    before = np.concatenate([[0], stop[:-1]]) if len(stop) else stop
    if len(row):
        before[np.concatenate([[True], row[1:] != row[:-1]])] = 0
    made.ints("gap", start - before)
    made.ints("length", stop - start)
    of_clients, of_spans = len(drawn.clients) > 1, bool(drawn.spans)
    optional = [*(["client"] if of_clients else []), *(["span"] if of_spans else [])]
    for name in ("prefix", "outcome", "ran", *optional):
        made.ints(name, columns[name])
    made.ints("task", columns["task"], delta=True)
    parts = drawn.parts
    bar = where[parts.bar]
    made.ints("part.bar", bar, delta=True)
    made.ints("part.kind", parts.kind)
    made.ints("part.before", (columns["start"][bar] - parts.start // _US) if len(bar) else bar)
    made.ints("part.length", (parts.stop - parts.start) // _US)
    return made

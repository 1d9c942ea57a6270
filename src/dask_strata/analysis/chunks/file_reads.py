"""Bytes that chunks requested from their files, bytes requested twice, and advice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Least shares of the requested bytes, and of the time of tasks, that lead to advice.
_LEAST_BYTES = 0.05
_LEAST_TIME = 0.3


@dataclass(frozen=True)
class Reading:
    """Bytes that chunks requested from one file.

    Attributes
    ----------
    uri : str
        The file.
    chunks : int
        Number of its chunks that requested bytes.
    requested_bytes : int
        Bytes that they requested.
    file_bytes : int or None
        Size of the file; None if unknown.
    by_all_bytes : int or None
        Repeated bytes of ranges that every chunk requested: each chunk needs them to open the
        file. None if unknown.
    by_some_bytes : int or None
        Repeated bytes of ranges that some chunks requested, because a chunk ends within a
        cluster of entries. None if unknown.
    divided : bool
        Whether several ranges of one of its trees were read. Otherwise its chunks cannot be larger.
    """

    uri: str
    chunks: int
    requested_bytes: int
    file_bytes: int | None
    by_all_bytes: int | None
    by_some_bytes: int | None
    divided: bool

    @property
    def repeated_bytes(self) -> int | None:
        """Bytes that were requested again; None if unknown."""
        if self.by_all_bytes is None or self.by_some_bytes is None:
            return None
        return self.by_all_bytes + self.by_some_bytes

    @property
    def amplification(self) -> float | None:
        """Requested bytes divided by the file's size; None if the size is unknown."""
        return self.requested_bytes / self.file_bytes if self.file_bytes else None


@dataclass(frozen=True)
class Advice:
    """Advice on the size of chunks.

    Attributes
    ----------
    what : str
        The advice.
    amount, of : float
        Bytes or seconds that it would save, and their total.
    """

    what: Literal["align to clusters", "larger chunks: bytes", "larger chunks: seconds"]
    amount: float
    of: float


def divided_trees(run: Run) -> frozenset[tuple[str, str | None]]:
    """Return the file and tree of the trees of which chunks read several ranges.

    Parameters
    ----------
    run : Run
        The run.
    """
    found = run.rows("""
        select uri, tree from (
            select uri, tree, first, last, 'entries' as unit from chunks
            union all
            -- The entries of a step are unknown until a task has read it.
            select uri, tree, first, last, unit from claimed_inputs where unit = 'steps'
        ) where uri is not null and first is not null
        group by uri, tree, unit having count(distinct (first, last)) > 1
    """)
    return frozenset((row["uri"], row["tree"]) for row in found)


def read_files(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    divided: frozenset[tuple[str, str | None]],
    size_of: Callable[[str], int | None],
) -> list[Reading]:
    """Return the bytes that chunks requested from each file, most bytes first.

    Parameters
    ----------
    run : Run
        The run.
    rows : sequence of mapping
        Rows of the table ``chunks``.
    divided : frozenset
        The answer of `divided_trees`.
    size_of : callable
        Function that returns the size of a file, or None if it is unknown.
    """
    # Count a chunk once, though several passes may have processed it: each pass needs its bytes.
    last = {(r["uri"], r["tree"], r["first"], r["last"]): r["attempt"] for r in rows}
    # Count an attempt once, though it may have processed several chunks.
    attempts = list(dict.fromkeys(a for a in last.values() if a is not None))
    # Definition and library may write the path of a file in different ways: compare its name.
    in_parts = {(r["attempt"], _name(r["uri"])) for r in rows if (r["uri"], r["tree"]) in divided}
    files: dict[str, list[tuple[int | None, str | None]]] = {}
    files_in_parts = set()
    for read in run.rows(
        "select attempt, r.uri, r.requested_bytes, r.spans from (select unnest(?) as attempt) "
        "join attempts a using (attempt) "
        "join library_reads r on r.process = a._process and r.execution = a._execution",
        attempts,
    ):
        files.setdefault(read["uri"], []).append((read["requested_bytes"], read["spans"]))
        if (read["attempt"], _name(read["uri"])) in in_parts:
            files_in_parts.add(read["uri"])
    found = []
    for uri, reads in files.items():
        by_all, by_some = _repeated([spans for _, spans in reads])
        requested = sum(nbytes or 0 for nbytes, _ in reads)
        found.append(
            Reading(
                uri, len(reads), requested, size_of(uri), by_all, by_some, uri in files_in_parts
            )
        )
    return sorted(found, key=lambda reading: -reading.requested_bytes)


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _repeated(reads: Sequence[str | None]) -> tuple[int | None, int | None]:
    """Return the repeated bytes of ranges that all readers, and that only some, requested."""
    edges: dict[int, int] = {}
    for text in reads:
        spans = _spans(text)
        if spans is None:
            return None, None
        for start, stop in spans:
            edges[start] = edges.get(start, 0) + 1
            edges[stop] = edges.get(stop, 0) - 1
    by_all = by_some = n_readers = previous = 0
    for offset in sorted(edges):
        repeated = (offset - previous) * max(0, n_readers - 1)
        if n_readers == len(reads):
            by_all += repeated
        else:
            by_some += repeated
        n_readers += edges[offset]
        previous = offset
    return by_all, by_some


def _spans(text: str | None) -> list[list[int]] | None:
    """Return ranges of bytes from JSON; None if the text is not a list of ranges."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    valid = isinstance(found, list) and all(
        isinstance(pair, list) and [type(n) for n in pair] == [int, int] for pair in found
    )
    return found if valid else None


def advise(
    rows: Sequence[Mapping[str, Any]],
    divided: frozenset[tuple[str, str | None]],
    reading: Sequence[Reading],
) -> list[Advice]:
    """Return advice on the size of chunks.

    A chunk that is all that was read of a tree cannot be larger: it counts in totals only.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of the table ``chunks``.
    divided : frozenset
        The answer of `divided_trees`.
    reading : sequence of Reading
        The bytes that they requested.
    """
    found = []
    requested = sum(r.requested_bytes for r in reading)
    by_some = sum(r.by_some_bytes or 0 for r in reading if r.divided)
    by_all = sum(r.by_all_bytes or 0 for r in reading if r.divided)
    if by_some > _LEAST_BYTES * requested:
        found.append(Advice("align to clusters", by_some, requested))
    if by_all > _LEAST_BYTES * requested:
        found.append(Advice("larger chunks: bytes", by_all, requested))
    timed = [r for r in rows if r["seconds"] and r["build_seconds"] is not None]
    total = sum(r["seconds"] for r in timed)
    before = sum(
        (r["open_seconds"] or 0) + r["build_seconds"]
        for r in timed
        if (r["uri"], r["tree"]) in divided
    )
    if before > _LEAST_TIME * total:
        found.append(Advice("larger chunks: seconds", before, total))
    return found

"""What chunks read of their files: how much, how often, and what would make it less."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Advice is given from this share of the bytes, or of the time.
_WORTH_IT = 0.05
_MUCH_TIME = 0.3


@dataclass(frozen=True)
class Reading:
    """What chunks requested of one file.

    ``by_all_bytes`` were requested by every chunk of it, again each time: that is what opening
    it takes. ``by_some_bytes`` were requested again by some: chunks end within a cluster.
    """

    uri: str
    chunks: int
    requested_bytes: int
    file_bytes: int | None
    by_all_bytes: int | None
    by_some_bytes: int | None

    @property
    def repeated_bytes(self) -> int | None:
        """Bytes that were requested although they had been before; null if unknown."""
        if self.by_all_bytes is None or self.by_some_bytes is None:
            return None
        return self.by_all_bytes + self.by_some_bytes

    @property
    def amplification(self) -> float | None:
        """Bytes requested by bytes of the file; null if it cannot be seen."""
        return self.requested_bytes / self.file_bytes if self.file_bytes else None


@dataclass(frozen=True)
class Advice:
    """Something that would make the same work cheaper, and how much of what it is about."""

    what: Literal["align to clusters", "larger chunks: bytes", "larger chunks: seconds"]
    amount: float
    of: float


def read_files(
    run: Run, rows: Sequence[Mapping[str, Any]], size_of: Callable[[str], int | None]
) -> list[Reading]:
    """Return what chunks requested of each file, the largest first; each chunk counts once."""
    # The same chunk may have been processed in several passes: each would need it anew.
    last = {(r["uri"], r["tree"], r["first"], r["last"]): r["attempt"] for r in rows}
    # A task may have processed several chunks of it.
    attempts = list(dict.fromkeys(a for a in last.values() if a is not None))
    files: dict[str, list[tuple[int | None, str | None]]] = {}
    for read in run.rows(
        "select r.uri, r.requested_bytes, r.spans from (select unnest(?) as attempt) "
        "join attempts a using (attempt) "
        "join library_reads r on r.process = a._process and r.execution = a._execution",
        attempts,
    ):
        files.setdefault(read["uri"], []).append((read["requested_bytes"], read["spans"]))
    found = []
    for uri, reads in files.items():
        by_all, by_some = _repeated([spans for _, spans in reads])
        requested = sum(nbytes or 0 for nbytes, _ in reads)
        found.append(Reading(uri, len(reads), requested, size_of(uri), by_all, by_some))
    return sorted(found, key=lambda reading: -reading.requested_bytes)


def _repeated(reads: Sequence[str | None]) -> tuple[int | None, int | None]:
    """Return the bytes that all of several readers, and that some of them, requested again."""
    edges: dict[int, int] = {}
    for text in reads:
        spans = _spans(text)
        if spans is None:
            return None, None
        for start, stop in spans:
            edges[start] = edges.get(start, 0) + 1
            edges[stop] = edges.get(stop, 0) - 1
    by_all = by_some = depth = before = 0
    for place in sorted(edges):
        again = (place - before) * max(0, depth - 1)
        if depth == len(reads):
            by_all += again
        else:
            by_some += again
        depth += edges[place]
        before = place
    return by_all, by_some


def _spans(text: str | None) -> list[list[int]] | None:
    """Return ranges of bytes; None if they are unknown, or no ranges."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, list) and all(
        isinstance(pair, list) and [type(n) for n in pair] == [int, int] for pair in found
    )
    return found if whole else None


def advise(rows: Sequence[Mapping[str, Any]], reading: Sequence[Reading]) -> list[Advice]:
    """Return what would make the same work cheaper, as far as the numbers say it."""
    found = []
    requested = sum(r.requested_bytes for r in reading)
    by_some = sum(r.by_some_bytes or 0 for r in reading)
    by_all = sum(r.by_all_bytes or 0 for r in reading)
    if by_some > _WORTH_IT * requested:
        found.append(Advice("align to clusters", by_some, requested))
    if by_all > _WORTH_IT * requested:
        found.append(Advice("larger chunks: bytes", by_all, requested))
    timed = [r for r in rows if r["seconds"] and r["build_seconds"] is not None]
    total = sum(r["seconds"] for r in timed)
    before = sum((r["open_seconds"] or 0) + r["build_seconds"] for r in timed)
    if before > _MUCH_TIME * total:
        found.append(Advice("larger chunks: seconds", before, total))
    return found

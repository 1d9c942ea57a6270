"""The source of ``claimed_inputs``: inputs that the definitions of tasks name.

A `GraphWalker` searches the definition of each task: nested tasks, containers, fused subgraphs,
partials, and data that it refers to. It runs no task and accesses no file system. Extractors
handle the calls and objects that they are registered for. Elsewhere an argument is an input if it
is a path object or a text that looks like a path.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from dask_strata.recorder.inputs.extractors import register
from dask_strata.recorder.inputs.graph_walker import GraphWalker
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.schema import wire_key
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch

__all__ = ["InputSource", "register"]

#: Time per call, in seconds, for searching definitions; the rest waits for the next flush.
_SECONDS = 0.03

#: Time at the end of a recording, in seconds, for all definitions that are left.
_LAST_SECONDS = 3.0

#: Tasks after which the recorder's thread lets other threads run.
_SLICE = 100

#: Length in characters of a ``columns`` text from which its rows get a batch of their own, so that
#: the batch has the text once.
_LONG = 200


class Definitions:
    """The definitions of one submission, which are searched in several steps.

    Parameters
    ----------
    submission : str or None
        Id of the submission.
    known : mapping
        The scheduler's tasks, for data that was submitted earlier.
    """

    def __init__(self, submission: str | None, known: Mapping[Any, Any]) -> None:
        self.submission = submission
        self.walker = GraphWalker({}, known)
        self._left: deque[tuple[Any, Any]] = deque()

    @property
    def left(self) -> int:
        """Number of definitions that are not searched yet."""
        return len(self._left)

    def add(self, specs: Mapping[Any, Any]) -> None:
        """Add definitions by key."""
        self.walker.add(specs)
        self._left.extend(specs.items())

    def search(self) -> list[dict[str, Any]]:
        """Return rows for the next tasks, at most 100 of them."""
        rows = []
        for _ in range(min(_SLICE, len(self._left))):
            key, spec = self._left.popleft()
            found = self.walker.claims(spec)
            if found:
                wire = wire_key(key)
                rows += [{"key": wire, **row} for row in found]
        return rows


class InputSource(Source):
    """Make batches of ``claimed_inputs``, for about 30 ms at each flush.

    A graph may have a million tasks. Its rest waits for the next flush, so that it does not delay
    the rows of other sources.
    """

    def __init__(self) -> None:
        self._waiting: deque[Definitions] = deque()
        self._ending = False

    def has_more(self) -> bool:
        """Return whether there are definitions that are not searched yet."""
        return bool(self._waiting)

    def add(self, definitions: Definitions) -> None:
        """Add the definitions of a submission; call it when they are complete."""
        self._waiting.append(definitions)

    def end(self) -> None:
        """Make the next call search all definitions that are left, for 3 s at most."""
        self._ending = True

    def slow_rows(self) -> Iterator[Batch]:
        """Yield rows of the next tasks, until the time for one call is over."""
        if not self._waiting:
            return
        until = time.monotonic() + (_LAST_SECONDS if self._ending else _SECONDS)
        while self._waiting and time.monotonic() < until:
            definitions = self._waiting[0]
            yield from _batches(definitions.submission, definitions.search())
            if definitions.left:
                time.sleep(0)  # let the event loop have the interpreter
            else:
                self._waiting.popleft()
                yield from _failures(definitions.walker)
        if self._ending and self._waiting:
            n = sum(definitions.left for definitions in self._waiting)
            for definitions in self._waiting:
                yield from _failures(definitions.walker)
            self._waiting.clear()
            yield _loss(n, "the recording ended before all definitions were searched")


def _batches(submission: str | None, rows: list[dict[str, Any]]) -> Iterator[Batch]:
    by_columns: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        columns = row.get("columns") or ""
        by_columns.setdefault(columns if len(columns) > _LONG else "", []).append(row)
    for group in by_columns.values():
        batch = Batch.of_rows("claimed_inputs", group)
        batch.columns["submission"] = Sparse() if submission is None else submission
        yield batch


def _failures(walker: GraphWalker) -> Iterator[Batch]:
    for reason, count in walker.failures.items():
        yield _loss(count, reason)


def _loss(count: int, reason: str) -> Batch:
    row = {"time": now_ns(), "what": "claimed_inputs", "count": count, "reason": reason}
    return Batch.of_rows("losses", [row])

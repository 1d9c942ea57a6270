"""What tasks say they read: definitions are opened symbolically, nothing in them is run.

For each task of a submission its definition is walked: nested tasks, containers, fused
subgraphs, partials, and the data that it refers to. Extractors are asked about calls and
objects that they are registered for; otherwise text and paths among the arguments count, if
they look like paths. No file system is asked for anything, and what can be known without
the user's code is taken without it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from dask_strata.recorder.inputs.extractors import register
from dask_strata.recorder.inputs.graph_walker import GraphWalker
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

__all__ = ["InputSource", "register"]

#: How long definitions are looked at before what else was seen is written.
_SECONDS = 0.03

#: How long at the end of a recording, when nothing else can come any more.
_LAST_SECONDS = 3.0

#: Tasks that are looked at before others may have the interpreter.
_SLICE = 100

#: Columns that are as long as this are written once for all rows that share them.
_LONG = 200


class Definitions:
    """Those of one submission.

    Parameters
    ----------
    submission : str
        Its id.
    known : mapping
        The scheduler's tasks, for data that was submitted before.
    """

    def __init__(self, submission: str, known: Mapping[Any, Any]) -> None:
        self.submission = submission
        self.walker = GraphWalker({}, known)
        self._left: deque[tuple[Any, Any]] = deque()

    @property
    def left(self) -> int:
        """How many were not looked at yet."""
        return len(self._left)

    def take(self, specs: Mapping[Any, Any]) -> None:
        """Take some more, by key."""
        self.walker.know(specs)
        self._left.extend(specs.items())

    def look(self) -> list[dict[str, Any]]:
        """Return rows for some tasks more."""
        rows = []
        for _ in range(min(_SLICE, len(self._left))):
            key, spec = self._left.popleft()
            found = self.walker.claims(spec)
            if found:
                wire = wire_key(key)
                rows += [{"key": wire, **row} for row in found]
        return rows


class InputSource:
    """Makes batches of `claimed_inputs`, a few milliseconds' worth at a time.

    A graph may have a million tasks: the rest of it waits for the next flush, so that
    nothing else of the record is late for it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Definitions] = deque()
        self._ending = False

    @property
    def unfinished(self) -> bool:
        """Whether there are definitions that were not looked at yet."""
        return bool(self._waiting)

    def add(self, definitions: Definitions) -> None:
        """Take the definitions of a submission, when it has all of them."""
        self._waiting.append(definitions)

    def end(self) -> None:
        """Do all that is left at the next call, if it does not take too long."""
        self._ending = True

    def __call__(self) -> Iterator[Batch]:
        """Yield rows for as many tasks as there is time for."""
        if not self._waiting:
            return
        until = time.monotonic() + (_LAST_SECONDS if self._ending else _SECONDS)
        while self._waiting and time.monotonic() < until:
            definitions = self._waiting[0]
            yield from _batches(definitions.submission, definitions.look())
            if definitions.left:
                time.sleep(0)  # lets the event loop have the interpreter
            else:
                self._waiting.popleft()
                yield from _failures(definitions.walker)
        if self._ending and self._waiting:
            n = sum(definitions.left for definitions in self._waiting)
            for definitions in self._waiting:
                yield from _failures(definitions.walker)
            self._waiting.clear()
            yield _loss(n, "there was no time to look at the definitions of all tasks")


def _batches(submission: str, rows: list[dict[str, Any]]) -> Iterator[Batch]:
    by_columns: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        columns = row.get("columns") or ""
        by_columns.setdefault(columns if len(columns) > _LONG else "", []).append(row)
    for group in by_columns.values():
        batch = Batch.of_rows("claimed_inputs", group)
        batch.columns["submission"] = submission
        yield batch


def _failures(walker: GraphWalker) -> Iterator[Batch]:
    for reason, count in walker.failures.items():
        yield _loss(count, reason)


def _loss(count: int, reason: str) -> Batch:
    row = {"time": now_ns(), "what": "claimed_inputs", "count": count, "reason": reason}
    return Batch.of_rows("losses", [row])

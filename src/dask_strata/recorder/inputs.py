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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dask_strata.recorder.definitions import Walker
from dask_strata.recorder.engine import now_ns
from dask_strata.recorder.extractors import register
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


class InputSource:
    """Makes batches of `claimed_inputs`, a few milliseconds' worth at a time.

    A graph may have a million tasks: the rest of it waits for the next flush, so that
    nothing else of the record is late for it.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, deque[tuple[Any, Any]], Walker]] = deque()
        self._ending = False

    def add(
        self, submission: str, specs: Iterable[tuple[Any, Any]], known: Mapping[Any, Any]
    ) -> None:
        """Take the definitions of a submission, by key.

        Parameters
        ----------
        submission : str
            Id of the submission.
        specs : iterable
            Pairs of key and definition.
        known : mapping
            The scheduler's tasks, for data that was submitted before.
        """
        pairs = deque(specs)
        self._waiting.append((submission, pairs, Walker(dict(pairs), known)))

    def end(self) -> None:
        """Do all that is left at the next call, if it does not take too long."""
        self._ending = True

    def __call__(self) -> Iterator[Batch]:
        """Yield rows for as many tasks as there is time for."""
        if not self._waiting:
            return
        until = time.monotonic() + (_LAST_SECONDS if self._ending else _SECONDS)
        while self._waiting and time.monotonic() < until:
            submission, specs, walker = self._waiting[0]
            yield from _batches(submission, _look(specs, walker))
            if specs:
                time.sleep(0)  # lets the event loop have the interpreter
            else:
                self._waiting.popleft()
                yield from _failures(walker)
        if self._ending and self._waiting:
            n = sum(len(specs) for _, specs, _ in self._waiting)
            for _, _, walker in self._waiting:
                yield from _failures(walker)
            self._waiting.clear()
            yield _loss(n, "there was no time to look at the definitions of all tasks")


def _look(specs: deque[tuple[Any, Any]], walker: Walker) -> list[dict[str, Any]]:
    rows = []
    for _ in range(min(_SLICE, len(specs))):
        key, spec = specs.popleft()
        found = walker.claims(spec)
        if found:
            wire = wire_key(key)
            rows += [{"key": wire, **row} for row in found]
    return rows


def _batches(submission: str, rows: list[dict[str, Any]]) -> Iterator[Batch]:
    by_columns: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        columns = row.get("columns") or ""
        by_columns.setdefault(columns if len(columns) > _LONG else "", []).append(row)
    for group in by_columns.values():
        batch = Batch.of_rows("claimed_inputs", group)
        batch.columns["submission"] = submission
        yield batch


def _failures(walker: Walker) -> Iterator[Batch]:
    for reason, count in walker.failures.items():
        yield _loss(count, reason)


def _loss(count: int, reason: str) -> Batch:
    row = {"time": now_ns(), "what": "claimed_inputs", "count": count, "reason": reason}
    return Batch.of_rows("losses", [row])

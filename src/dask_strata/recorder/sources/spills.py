"""Spills: writes of results to disk by Dask's memory management, and reads of them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from dask_strata.recorder.pipeline import foreign_io
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch

logger = logging.getLogger("dask_strata")


class SpillHook(Source):
    """Record each write to and read from disk by Dask's spill buffer, until `remove`.

    Parameters
    ----------
    worker : distributed.Worker
        The worker. Without Dask's own spill buffer it gets no rows.
    address : str
        Address of the worker, for the rows.
    """

    def __init__(self, worker: Any, address: str) -> None:
        from distributed.spill import Slow, SpillBuffer

        self._rows: deque[dict[str, Any]] = deque()
        self._slow: Any = None
        buffer = worker.data
        if not isinstance(buffer, SpillBuffer):
            return
        slow = buffer._slow_uncached  # noqa: SLF001  Dask has no public attribute for the store on disk
        if not isinstance(slow, Slow):
            return
        rows = self._rows

        def note(action: str, key: Any, weight: Any, began: float) -> None:
            rows.append(
                {
                    "time": now_ns(),
                    "worker": address,
                    "key": wire_key(key),
                    "action": action,
                    "nbytes": getattr(weight, "memory", None),
                    "disk_bytes": getattr(weight, "disk", None),
                    "seconds": time.perf_counter() - began,
                }
            )

        if not hasattr(type(slow), "strata_notes"):
            try:
                slow.__class__ = _recorded(type(slow))
            except TypeError as error:
                logger.warning(
                    "dask-strata does not record spills: it cannot hook the store of this version "
                    "of Dask: %s",
                    error,
                )
                return
        self._slow, self._note = slow, note
        self._slow.strata_notes.append(note)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the reads and writes since the last call."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if rows:
            yield Batch.of_rows("spills", rows)

    def remove(self) -> None:
        """Stop recording; the removal of the last hook gives the store its own class back."""
        slow, self._slow = self._slow, None
        if slow is None:
            return
        slow.strata_notes.remove(self._note)
        if not slow.strata_notes:
            slow.__class__ = slow.__class__.__base__


def _recorded(kind: type) -> type:
    """Return a subclass for one store, which calls `strata_notes` after each write and read."""

    class RecordedStore(kind):
        strata_notes: ClassVar[list[Callable[[str, Any, Any, float], None]]] = []

        def __setitem__(self, key: Any, value: object) -> None:
            began = time.perf_counter()
            with foreign_io.operation():
                super().__setitem__(key, value)
            for note in self.strata_notes:
                note("spill", key, self.weight_by_key.get(key), began)

        def __getitem__(self, key: Any) -> object:
            began = time.perf_counter()
            with foreign_io.operation():
                value = super().__getitem__(key)
            for note in self.strata_notes:
                note("unspill", key, self.weight_by_key.get(key), began)
            return value

    return RecordedStore

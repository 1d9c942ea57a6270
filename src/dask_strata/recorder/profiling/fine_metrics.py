"""Rows of Dask's fine performance metrics on a worker: its own sums of where time went."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, safe_repr
from dask_strata.store.segments.frames import Batch

#: Pause between two readings in seconds.
_INTERVAL = 5.0

#: Contexts whose second field is the id of a span.
_WITH_SPAN = ("execute", "p2p")

#: Shortest key: context, activity and unit.
_FIELDS = 3

#: Longest text of a label, which users may choose.
_LABEL = 200

#: Most metrics of a worker; further ones are counted as lost.
MAX_METRICS = 5_000


class FineMetrics(Source):
    """Records changes of a worker's fine performance metrics. Create it on the event loop.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    engine : Engine
        The engine of the recording.
    """

    def __init__(self, worker: Any, engine: Engine) -> None:
        self._worker, self._engine, self._address = worker, engine, worker.address
        self._first = self._read()
        self._recorded: dict[tuple[Hashable, ...], float] = {}
        self._rows: list[dict[str, Any]] = []
        self._last: Mapping[tuple[Hashable, ...], float] | None = None
        self._next = time.monotonic() + _INTERVAL
        if getattr(worker, "digests_total", None) is None:
            reason = "this version of Dask has no digests_total"
            engine.add("losses", time=now_ns(), what="fine_metrics", reason=reason)

    def _read(self) -> dict[tuple[Hashable, ...], float]:
        """Return the sums so far. Copies in one step, as the event loop changes them."""
        sums = dict(getattr(self._worker, "digests_total", None) or {})
        found = {key: n for key, n in sums.items() if type(key) is tuple and len(key) >= _FIELDS}
        spilled = dict(getattr(self._worker.data, "cumulative_metrics", None) or {})
        found.update({("spill", *label): n for label, n in spilled.items()})
        return found

    def sample(self) -> None:
        """Add rows of the metrics that have changed, once per interval."""
        if self._last is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _INTERVAL
            self._add(self._read(), final=False)

    def detach(self) -> None:
        """Read the sums for the last time."""
        self._last = self._read()

    def finish(self) -> None:
        """Add rows of all last sums."""
        if self._last is not None:
            self._add(self._last, final=True)

    def _add(self, sums: Mapping[tuple[Hashable, ...], float], *, final: bool) -> None:
        now = now_ns()
        beyond = 0
        for key, total in sums.items():
            value = total - self._first.get(key, 0)
            known = self._recorded.get(key)
            if known is None and (not value or len(self._recorded) >= MAX_METRICS):
                beyond += bool(value)
                continue
            if final or value != known:
                self._recorded[key] = value
                row = {"time": now, "worker": self._address, "value": float(value), "final": final}
                self._rows.append({**row, **_columns(key)})
        if beyond and final:
            reason = f"metrics beyond {MAX_METRICS:,}"
            self._engine.add("losses", time=now, what="fine_metrics", count=beyond, reason=reason)

    def rows(self) -> Iterable[Batch]:
        """Return the rows since the last call."""
        if self._rows:
            rows, self._rows = self._rows, []
            yield Batch.of_rows("fine_metrics", rows)


def _columns(key: tuple[Hashable, ...]) -> dict[str, str | None]:
    """Return the parts of a metric's key.

    >>> _columns(("execute", "s-1", "load", "thread-cpu", "seconds"))["activity"]
    'thread-cpu'
    """
    context, *labels, unit = key
    span = labels.pop(0) if context in _WITH_SPAN else None
    prefix = labels.pop(0) if context == "execute" and labels else None
    return {
        "context": _text(context),
        "span_id": None if span is None else _text(span),
        "prefix": None if prefix is None else _text(prefix),
        "activity": " ".join(map(_text, labels)),
        "unit": _text(unit),
    }


def _text(label: Hashable) -> str:
    text = label if isinstance(label, str) else safe_repr(label, _LABEL)
    return clip(redact_text(text), _LABEL)

"""Rows of Dask's fine performance metrics on a worker: its own sums of where time went."""

from __future__ import annotations

import functools
import time
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, safe_repr
from dask_strata.store.segments.frames import Batch

#: Pause between two readings in seconds.
_INTERVAL = 10.0

#: Contexts whose second field is the id of a span.
_WITH_SPAN = ("execute", "p2p")

#: Shortest key: context, activity and unit.
_FIELDS = 3

#: Longest text of a label, which users may choose.
_LABEL = 200

#: Metrics of a worker beyond which those of further spans are added up, and beyond twice of which
#: further ones are counted as lost.
MAX_METRICS = 2_500


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
        values, n_lost = self._bounded(sums)
        for key, value in values.items():
            if final or value != self._recorded[key]:
                self._recorded[key] = value
                row = {"time": now, "worker": self._address, "value": float(value), "final": final}
                self._rows.append({**row, **_columns(key)})
        if n_lost and final:
            reason = f"metrics beyond {MAX_METRICS:,}"
            self._engine.add("losses", time=now, what="fine_metrics", count=n_lost, reason=reason)

    def _bounded(
        self, sums: Mapping[tuple[Hashable, ...], float]
    ) -> tuple[dict[tuple[Hashable, ...], float], int]:
        """Return the sums since the start, and the number of metrics that are left out.

        A cluster that lives for long has many spans: beyond the bound, metrics of further spans are
        added up without a span.
        """
        values: dict[tuple[Hashable, ...], float] = {}
        n_lost = 0
        for name, total in sums.items():
            key, value = name, total - self._first.get(name, 0)
            if key not in self._recorded:
                if not value:
                    continue
                if len(self._recorded) >= MAX_METRICS and key[0] in _WITH_SPAN:
                    key = (key[0], None, *key[2:])
                if len(self._recorded) >= 2 * MAX_METRICS and key not in self._recorded:
                    n_lost += 1
                    continue
                self._recorded.setdefault(key, 0)
            values[key] = values.get(key, 0) + value
        return values, n_lost

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
    return _known_text(label) if type(label) is str else _known_text(safe_repr(label, _LABEL))


@functools.lru_cache(maxsize=1024)
def _known_text(label: str) -> str:
    return clip(redact_text(label), _LABEL)

"""The collector of a process: it adds the counts of its recordings to Dask's page `/metrics`.

Dask's handlers write all collectors of `prometheus_client`'s default registry. One collector for
all recordings of the process is registered there while there is a recording.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from dask_strata.recorder.exposition.tally import Tally
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.store.segments.replacing import Replacing

logger = logging.getLogger("dask_strata")

#: Labels of each series.
_LABELS = ("run", "process")

_Values = Iterable[tuple[tuple[str, ...], float]]


class Exposition(Source):
    """The counts of one recorded process, in `/metrics` until the recording ends.

    Parameters
    ----------
    engine : Engine
        The engine of the recording.

    Attributes
    ----------
    tally : Tally
        The counts.
    """

    def __init__(self, engine: Engine) -> None:
        from dask.utils import key_split

        clean = None
        if engine.settings.leave_out:
            clean = Replacing(engine.settings).text
        self._engine = engine
        self.tally = Tally(key_split, clean)
        _collector.add(self)
        engine.observers.append(self.tally.add)

    def detach(self) -> None:
        """Remove the series."""
        _collector.remove(self)

    def remove(self) -> None:
        """Remove the series of a recording that could not start."""
        self.detach()

    def labels(self) -> tuple[str, str]:
        """Return the labels of all series of this process."""
        return self._engine.run_id, self._engine.process

    def counters(self) -> Iterator[tuple[str, str, tuple[str, ...], _Values]]:
        """Yield name, help, labels and values of each counter."""
        tally, engine = self.tally, self._engine
        yield (
            "attempts",
            "Attempts of tasks that ended, by Dask's prefix and outcome.",
            ("prefix", "outcome"),
            tally.attempts.copy().items(),
        )
        by_value = (
            ("phase_seconds", "Seconds of attempts' phases and of spilling.", "kind"),
            ("moved_bytes", "Bytes that this worker received and sent.", "direction"),
            ("spilled_bytes", "Bytes of results spilled to disk and read again.", "action"),
            ("losses", "Facts that the recorder lost, by kind.", "kind"),
            ("rows", "Rows that the recorder has encoded.", "table"),
        )
        counts: tuple[dict[str, Any], ...] = (
            tally.seconds(),
            tally.moved.copy(),
            tally.spilled.copy(),
            tally.losses.copy(),
            tally.rows.copy(),
        )
        for (name, text, label), values in zip(by_value, counts, strict=True):
            yield name, text, (label,), [((value,), n) for value, n in values.items()]
        single = (
            ("dropped_rows", "Rows that could not be written.", engine.dropped_rows),
            ("written_bytes", "Bytes that the recorder has written.", engine.sink.written_bytes),
            ("recorder_cpu_seconds", "CPU time of the recorder.", engine.cpu_seconds),
        )
        for name, text, value in single:
            yield name, text, (), [((), value)]


class _Collector:
    """The collector of all recordings of this process, as `prometheus_client` expects it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: list[Exposition] = []
        self._registry: Any = None
        self._failed = False

    def add(self, exposition: Exposition) -> None:
        """Add a recording; register with the first one."""
        with self._lock:
            self._shown.append(exposition)
            if self._registry is None:
                registry = sys.modules["prometheus_client"].REGISTRY
                registry.register(self)
                self._registry = registry

    def remove(self, exposition: Exposition) -> None:
        """Remove a recording; unregister with the last one."""
        with self._lock:
            if exposition in self._shown:
                self._shown.remove(exposition)
            if not self._shown and self._registry is not None:
                registry, self._registry = self._registry, None
                registry.unregister(self)

    @staticmethod
    def describe() -> Iterable[Any]:
        """Return no names, so that the registry compares none with those of other collectors."""
        return ()

    def collect(self) -> Iterable[Any]:
        """Return the families of the series; none if that fails. Dask's own are not affected."""
        try:
            return list(self._families())
        except Exception as error:  # noqa: BLE001  Dask's page must work without these series
            if not self._failed:
                self._failed = True
                logger.warning(
                    "dask-strata cannot show its series in /metrics: %s: %s",
                    type(error).__name__,
                    error,
                )
            return ()

    def _families(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily

        families: dict[str, Any] = {}
        for exposition in list(self._shown):
            own = exposition.labels()
            for name, text, labels, values in exposition.counters():
                if name not in families:
                    full = f"dask_strata_{name}"
                    families[name] = CounterMetricFamily(full, text, labels=(*_LABELS, *labels))
                for label_values, value in values:
                    families[name].add_metric((*own, *label_values), value)
        return families.values()


_collector = _Collector()


def expose(engine: Engine) -> list[Exposition]:
    """Show the counts of a recording in Dask's page `/metrics`; never raises.

    Parameters
    ----------
    engine : Engine
        The engine of a scheduler's or worker's recording.

    Returns
    -------
    list of Exposition
        The source to start with the engine. Empty if Dask has not imported `prometheus_client`:
        then its page has no metrics.
    """
    if sys.modules.get("prometheus_client") is None:
        return []
    shown: list[Exposition] = []
    engine.call(lambda: shown.append(Exposition(engine)), "series in /metrics")
    return shown

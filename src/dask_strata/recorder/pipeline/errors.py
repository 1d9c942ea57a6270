"""Errors inside a recorder: they are counted, recorded and logged once, and never raised."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.writer_thread import WriterThread

logger = logging.getLogger("dask_strata")

_T = TypeVar("_T")

#: Ids of runs for which this process has logged a failed write, or a failed sync: one warning
#: a run is enough for all servers of the process.
_warned_of_writes: set[str] = set()
_warned_of_syncs: set[str] = set()


class RecorderErrors:
    """The errors of one engine.

    Parameters
    ----------
    process : str
        Id of the process.
    run_id : str
        Id of the run.
    folder : Path
        Folder of the run.

    Examples
    --------
    >>> errors = RecorderErrors("worker-1", "0a1b", Path("runs/0a1b"))
    >>> errors.ask(lambda: "an answer")
    'an answer'
    """

    def __init__(self, process: str, run_id: str, folder: Path) -> None:
        self._process, self._run_id, self._folder = process, run_id, folder
        self._failures: dict[str, int] = {}
        #: Parts that failed, each with the type of the exception, of which the log has a warning.
        self._logged: set[tuple[str, type[Exception]]] = set()
        self._reported_drops = 0

    def count(self, reason: str, n: int = 1) -> None:
        """Count failures.

        Parameters
        ----------
        reason : str
            Text for the record; failures with the same text are counted together.
        n : int, optional
            Number of failures, or of lost rows.
        """
        self._failures[reason] = self._failures.get(reason, 0) + n

    def ask(self, question: Callable[[], _T]) -> _T | None:
        """Return the answer of a function, or None if it raises; never raises."""
        answers = self.collect(lambda: [question()], getattr(question, "__qualname__", ""))
        return answers[0] if answers else None

    def call(self, action: Callable[[], None], name: str = "") -> None:
        """Call an action of a recorder; count and log an exception instead of raising it.

        Parameters
        ----------
        action : callable
            The action.
        name : str, optional
            Its name in the record; that of the callable by default.
        """

        def without_rows() -> Iterable[Any]:
            action()
            return ()

        self.collect(without_rows, name or getattr(action, "__qualname__", "sampler"))

    def collect(self, produce: Callable[[], Iterable[Any]], name: str = "") -> list[Any]:
        """Return the items of an iterable, up to an exception, which is counted and logged.

        Parameters
        ----------
        produce : callable
            Returns the iterable.
        name : str, optional
            Name of the failing part in the record; the name of ``produce`` by default.
        """
        items: list[Any] = []
        try:
            for item in produce():
                items.append(item)  # noqa: PERF402  keep the items before an exception
        except Exception as error:  # an error of the recorder must not fail the workflow
            name = name or getattr(produce, "__qualname__", type(produce).__name__)
            reason = f"{name}: {type(error).__name__}: {error}"
            self.count(reason)
            if (name, type(error)) not in self._logged:
                self._logged.add((name, type(error)))
                logger.warning(
                    "dask-strata lost records of %s: %s", self._process, reason, exc_info=True
                )
        return items

    def take_losses(self, writer: WriterThread, sink_error: str | None) -> Iterator[dict[str, Any]]:
        """Yield rows of ``losses`` for the failures since the last call.

        Parameters
        ----------
        writer : WriterThread
            Its dropped rows and failed syncs are included.
        sink_error : str or None
            Present error of the sink; dropped rows are recorded when it has ended.
        """
        losses: list[tuple[str, int, str]] = []
        dropped = writer.dropped_rows - self._reported_drops
        if dropped and sink_error is None:
            self._reported_drops += dropped
            losses.append(("rows", dropped, "could not be written"))
        for reason in list(writer.failed_syncs):
            count = writer.failed_syncs.pop(reason)
            losses.append(("fsync", count, f"written records may not be on disk: {reason}"))
        losses += [("recorder", self._failures.pop(r), r) for r in list(self._failures)]
        for what, count, reason in losses:
            row = {
                "time": time.time_ns(),
                "what": what,
                "count": count,
                "reason": redact_text(reason),
            }
            yield {**row, "where": self._process}

    def report(self, sink_error: str | None, failed_syncs: Iterable[str]) -> None:
        """Log that frames cannot be written, or not be synced to disk; once a run each.

        Parameters
        ----------
        sink_error : str or None
            Present error of the sink.
        failed_syncs : iterable of str
            Reasons of failed syncs.
        """
        if sink_error is not None and self._run_id not in _warned_of_writes:
            _warned_of_writes.add(self._run_id)
            logger.warning(
                "dask-strata cannot write the records of %s: %s. The workflow continues; "
                "`dask-strata check %s` will list the missing records.",
                self._process,
                sink_error,
                self._folder,
            )
        reasons = list(failed_syncs)
        if reasons and self._run_id not in _warned_of_syncs:
            _warned_of_syncs.add(self._run_id)
            logger.warning(
                "dask-strata writes the records of %s, but cannot sync them to disk: %s. If the "
                "node fails, they may be lost.",
                self._process,
                ", ".join(reasons),
            )

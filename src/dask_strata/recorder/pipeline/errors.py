"""What fails in a recorder: counted for the record, told once, raised never."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dask_strata.recorder.pipeline.writer_thread import WriterThread

logger = logging.getLogger("dask_strata")

#: Runs whose trouble with writing, or with the disk, this process has told of: once is enough,
#: for all its servers.
_told: set[str] = set()
_told_of_syncs: set[str] = set()


class RecorderErrors:
    """Those of one engine.

    Parameters
    ----------
    process : str
        Id of the process.
    run : str
        Id of the run.
    folder : Path
        Folder of the run.
    """

    def __init__(self, process: str, run: str, folder: Path) -> None:
        self._process, self._run, self._folder = process, run, folder
        self._failures: dict[str, int] = {}
        self._reported_drops = 0

    def count(self, reason: str, n: int = 1) -> bool:
        """Count so many failures for a reason; tell whether it is a new one."""
        known = self._failures.get(reason, 0)
        self._failures[reason] = known + n
        return known == 0

    def run(self, action: Callable[[], None]) -> None:
        """Do something that may fail."""

        def nothing_to_return() -> Iterable[Any]:
            action()
            return ()

        self.guarded(nothing_to_return, getattr(action, "__qualname__", "sampler"))

    def guarded(self, source: Callable[[], Iterable[Any]], what: str = "") -> list[Any]:
        """Return what a source gives, up to where it fails."""
        found: list[Any] = []
        try:
            for item in source():
                found.append(item)  # noqa: PERF402  what came before a failure is kept
        except Exception as error:  # whatever fails in a recorder must not fail the run
            what = what or getattr(source, "__qualname__", type(source).__name__)
            name = f"{what}: {type(error).__name__}: {error}"
            if self.count(name):
                logger.warning(
                    "dask-strata lost records of %s: %s", self._process, name, exc_info=True
                )
        return found

    def rows(self, pump: WriterThread, trouble: str | None) -> Iterator[dict[str, Any]]:
        """Yield rows of `losses` for what happened since the last call."""
        found: list[tuple[str, int, str]] = []
        dropped = pump.dropped_rows - self._reported_drops
        if dropped and trouble is None:
            self._reported_drops += dropped
            found.append(("rows", dropped, "could not be written"))
        for reason in list(pump.failed_syncs):
            count = pump.failed_syncs.pop(reason)
            found.append(("fsync", count, f"the disk may not keep what was written: {reason}"))
        found += [("recorder", self._failures.pop(r), r) for r in list(self._failures)]
        for what, count, reason in found:
            row = {"time": time.time_ns(), "what": what, "count": count, "reason": reason}
            yield {**row, "where": self._process}

    def report(self, trouble: str | None, failed_syncs: Iterable[str]) -> None:
        """Tell the user what keeps frames from being written, or from the disk, right now."""
        if trouble is not None and self._run not in _told:
            _told.add(self._run)
            logger.warning(
                "dask-strata cannot write the records of %s: %s. The workflow goes on; "
                "`dask-strata check %s` will say what is missing.",
                self._process,
                trouble,
                self._folder,
            )
        reasons = list(failed_syncs)
        if reasons and self._run not in _told_of_syncs:
            _told_of_syncs.add(self._run)
            logger.warning(
                "dask-strata writes the records of %s, but the disk may not keep them: %s.",
                self._process,
                ", ".join(reasons),
            )

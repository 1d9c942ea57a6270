"""The profile of a process on record: at intervals, at the end, and in files for other tools."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from dask_strata.config import Settings
from dask_strata.errors import UsageError
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.profiling.yappi_profiler import (
    INSTALL,
    CannotProfileError,
    is_installed,
    join,
)
from dask_strata.store.frames import Batch
from dask_strata.store.manifest import PROFILES

logger = logging.getLogger("dask_strata")


def profile(engine: Engine) -> None:
    """Profile this process until its recorder ends, if the settings say so; never raises."""
    settings = engine.settings
    if settings.yappi_clock is None or engine.role not in settings.yappi_roles:
        return
    try:
        _Profiling(engine, settings.yappi_clock)
    except Exception as error:  # noqa: BLE001  the recording goes on without a profile
        said = isinstance(error, CannotProfileError)
        add_loss(engine, str(error) if said else f"{type(error).__name__}: {error}")


def needs(settings: Settings) -> None:
    """Refuse to begin what could not be done.

    Raises
    ------
    UsageError
        There is to be a profile, and Yappi is not installed.
    """
    if settings.yappi_clock is not None and not is_installed():
        raise UsageError("Yappi is not installed here, so nothing can be profiled.", hint=INSTALL)


def warn_if_missing(settings: Settings) -> None:
    """Tell once, where the recording begins, that there is nothing to profile with."""
    if settings.yappi_clock is not None and not is_installed():
        logger.warning(
            "dask-strata records, but cannot profile here: Yappi is not installed: %s", INSTALL
        )


def add_loss(engine: Engine, reason: str) -> None:
    """Put on record that a part of the profile is missing."""
    engine.add("losses", time=now_ns(), what="profile", reason=reason, where=engine.process)


class _Profiling(Source):
    """Takes the profile on the recorder's thread."""

    def __init__(self, engine: Engine, clock: str) -> None:
        self._engine = engine
        self._profiler = join(engine.run_id, clock, self)
        self._next = time.monotonic() + engine.settings.yappi_interval
        self._rows: list[Batch] = []
        self._files: Path | None = None
        engine.sources.append(self)

    def sample(self) -> None:
        """Read the profile, once an interval."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._engine.settings.yappi_interval
            self._take()
            self._tell_troubles()  # what the taking has come upon is among them

    def _take(self) -> None:
        if not self._profiler.speaks_for(self):
            return
        functions, threads = self._profiler.take()
        self._rows += [
            Batch.of_rows("functions", functions),
            Batch.of_rows("profile_threads", threads),
        ]

    def rows(self) -> list[Batch]:
        """Return the functions and threads that were read since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def finish(self) -> None:
        """Read the profile for the last time."""
        self._files = self._file_stem()
        self._tell_troubles()
        self._profiler.stop(self)
        self._take()

    def after_last_row(self) -> None:
        """Write the files for other tools.

        They take seconds, which a process that exits may not have: `check` looks for them.
        """
        problem = self._profiler.leave(self, self._files)
        if problem is not None:
            logger.warning("dask-strata: %s", problem)

    def _tell_troubles(self) -> None:
        for trouble in self._profiler.troubles():
            add_loss(self._engine, trouble)

    def _file_stem(self) -> Path | None:
        if self._engine.sink.transport != "file":
            add_loss(
                self._engine,
                "files for other tools: the run's folder cannot be written from here; the "
                "functions are on record",
            )
            return None
        return self._engine.folder / PROFILES / self._engine.process

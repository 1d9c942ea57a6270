"""Recording of a process's profile: rows at intervals and files for other tools at the end."""

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
from dask_strata.store.manifest import PROFILES
from dask_strata.store.segments.frames import Batch

logger = logging.getLogger("dask_strata")


def profile(engine: Engine) -> None:
    """Profile this process until its recorder ends, if the settings request it; never raises.

    Parameters
    ----------
    engine : Engine
        The process's recorder.
    """
    settings = engine.settings
    if settings.yappi_clock is None or engine.role not in settings.yappi_roles:
        return
    try:
        ProfileSource(engine, settings.yappi_clock)
    except Exception as error:  # noqa: BLE001  the recording goes on without a profile
        expected = isinstance(error, CannotProfileError)
        add_loss(engine, str(error) if expected else f"{type(error).__name__}: {error}")


def require_yappi(settings: Settings) -> None:
    """Check that Yappi is installed, if the settings request a profile.

    Parameters
    ----------
    settings : Settings
        Settings of the recording.

    Raises
    ------
    UsageError
        The settings request a profile, and Yappi is not installed.
    """
    if settings.yappi_clock is not None and not is_installed():
        raise UsageError("No profile is possible: Yappi is not installed.", hint=INSTALL)


def warn_if_missing(settings: Settings) -> None:
    """Log a warning, if the settings request a profile and Yappi is not installed.

    Parameters
    ----------
    settings : Settings
        Settings of the recording.
    """
    if settings.yappi_clock is not None and not is_installed():
        logger.warning("dask-strata records without a profile: Yappi is not installed: %s", INSTALL)


def add_loss(engine: Engine, reason: str) -> None:
    """Record that a part of the profile is missing.

    Parameters
    ----------
    engine : Engine
        The process's recorder.
    reason : str
        The cause.
    """
    engine.add("losses", time=now_ns(), what="profile", reason=reason, where=engine.process)


class ProfileSource(Source):
    """Reads the profile of a process, on the recorder's thread.

    Parameters
    ----------
    engine : Engine
        The process's recorder.
    clock : str
        wall or cpu.

    Raises
    ------
    CannotProfileError
        See `join`.
    """

    def __init__(self, engine: Engine, clock: str) -> None:
        self._engine = engine
        self._profiler = join(engine.run_id, clock, self)
        self._next = time.monotonic() + engine.settings.yappi_interval
        self._rows: list[Batch] = []
        self._files: Path | None = None
        engine.sources.append(self)

    def sample(self) -> None:
        """Read the profile, once per interval."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._engine.settings.yappi_interval
            self._take()
            self._add_losses()  # after `_take`, which can find losses

    def _take(self) -> None:
        if not self._profiler.is_recorded_by(self):
            return
        functions, threads = self._profiler.take()
        self._rows += [
            Batch.of_rows("functions", functions),
            Batch.of_rows("profile_threads", threads),
        ]

    def rows(self) -> list[Batch]:
        """Return the functions and threads read since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def finish(self) -> None:
        """Read the profile for the last time."""
        self._files = self._file_stem()
        self._add_losses()
        self._profiler.stop(self)
        self._take()

    def after_last_row(self) -> None:
        """Write the files for other tools.

        This takes seconds, and a process that exits may be killed meanwhile: `check` reports
        missing files.
        """
        problem = self._profiler.leave(self, self._files)
        if problem is not None:
            logger.warning("dask-strata: %s", problem)

    def _add_losses(self) -> None:
        for reason in self._profiler.take_losses():
            add_loss(self._engine, reason)

    def _file_stem(self) -> Path | None:
        if self._engine.sink.transport != "file":
            add_loss(
                self._engine,
                "files for other tools: this process cannot write to the run's folder; the "
                "functions are recorded",
            )
            return None
        return self._engine.folder / PROFILES / self._engine.process

"""The names of the run's segments: a segment that is removed later is known to be missing."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.store.manifest import SEGMENTS, SUFFIX


class SegmentNames(Source):
    """Make rows of ``recorded_processes``, one for each segment in the run's folder.

    The scheduler's process lists the folder, as it always has access to it, and only after a
    segment was added: the folder's time of modification shows this.

    Parameters
    ----------
    run : Path
        The run's folder.
    engine : Engine
        Gets the rows.
    """

    def __init__(self, run: Path, engine: Engine) -> None:
        self._folder, self._engine = run / SEGMENTS, engine
        self._modified_ns = -1
        self._names: set[str] = set()

    def sample(self) -> None:
        """Add rows for new segments, if the folder was modified since the last call."""
        with contextlib.suppress(OSError):  # a folder that is gone is reported by the writer
            modified_ns = self._folder.stat().st_mtime_ns
            if modified_ns != self._modified_ns:
                self._modified_ns = modified_ns
                self.finish()

    def finish(self) -> None:
        """Add rows for new segments."""
        names = {path.stem for path in self._folder.glob(f"*{SUFFIX}")}
        now = now_ns()
        for name in sorted(names - self._names):
            self._engine.add("recorded_processes", time=now, segment_of=name)
        self._names |= names

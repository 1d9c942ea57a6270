"""Recorders that are broken on purpose: trials of them must fail, or trials prove nothing.

This module is a Dask preload (`dask_setup`); the variable `CHAOS_MUTANT` names the mutant.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from typing import Any

VARIABLE = "CHAOS_MUTANT"


def drop_frames() -> None:
    """Lose every 20th frame, without counting it."""
    from dask_strata.store.sinks import FileSink

    write, number = FileSink.write, count(1)
    FileSink.write = lambda self, frame, rows: (
        None if next(number) % 20 == 0 else write(self, frame, rows)
    )


def drop_rows() -> None:
    """Lose every 20th batch of transitions before it is numbered."""
    number = count(1)

    def mutate(batches: Any) -> Any:
        kept = [b for b in batches if "transitions" not in b.table or next(number) % 20]
        return kept or batches

    _before_encoding(mutate)


def wrong_worker() -> None:
    """Write a wrong worker address."""

    def mutate(batches: Any) -> Any:
        return [
            replace(batch, columns=batch.columns | {"worker": "tcp://127.0.0.1:1"})
            if batch.table in ("worker_transitions", "executions")
            else batch
            for batch in batches
        ]

    _before_encoding(mutate)


def write_late() -> None:
    """Write frames seconds late."""
    from dask_strata.store.sinks import FileSink

    write, held = FileSink.write, {}

    def later(self: Any, frame: bytes, rows: int) -> None:
        frames = held.setdefault(id(self), [])
        frames.append((frame, rows))
        if len(frames) > 30:
            write(self, *frames.pop(0))

    close = FileSink.close

    def write_all(self: Any) -> None:
        for item in held.pop(id(self), ()):
            write(self, *item)
        close(self)

    FileSink.write, FileSink.close = later, write_all


def raise_in_plugin() -> None:
    """Raise into Dask when a worker is removed."""
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    def fail(*_: Any, **__: Any) -> None:
        # An error of the package itself, so that the traceback contains one of its files.
        from dask_strata.store.manifest import run_folder_name

        run_folder_name(None, None, None)

    SchedulerRecorder.remove_worker = fail


def no_end() -> None:
    """Leave out the last row, so that a process that ended seems to have been killed."""
    from dask_strata.recorder.pipeline.engine import Engine

    add = Engine.add

    def leave_out(self: Any, table: str, **row: Any) -> None:
        if "exit_reason" not in row:
            add(self, table, **row)

    Engine.add = leave_out


MUTANTS = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (drop_frames, drop_rows, wrong_worker, write_late, raise_in_plugin, no_end)
}


def _before_encoding(mutate: Any) -> None:
    from dask_strata.store.segments.frames import Encoder

    frame = Encoder.frame
    Encoder.frame = lambda self, batches: frame(self, mutate(batches))


def dask_setup(_: Any) -> None:
    """Replace a part of the recorder in this process."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTANTS[name]()

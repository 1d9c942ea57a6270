"""Recorders that are broken on purpose: trials of them must fail, or trials prove nothing.

A preload of Dask's (`dask_setup`), for the mutant that `CHAOS_MUTANT` names.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from typing import Any

VARIABLE = "CHAOS_MUTANT"


def drop_frames() -> None:
    """Lose every 20th frame, and say nothing of it."""
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
    """Write that another worker did it."""

    def mutate(batches: Any) -> Any:
        return [
            replace(batch, columns=batch.columns | {"worker": "tcp://127.0.0.1:1"})
            if batch.table in ("worker_transitions", "executions")
            else batch
            for batch in batches
        ]

    _before_encoding(mutate)


def write_late() -> None:
    """Keep frames for seconds before they are handed to the operating system."""
    from dask_strata.store.sinks import FileSink

    write, held = FileSink.write, {}

    def later(self: Any, frame: bytes, rows: int) -> None:
        mine = held.setdefault(id(self), [])
        mine.append((frame, rows))
        if len(mine) > 30:
            write(self, *mine.pop(0))

    close = FileSink.close

    def all_of_it(self: Any) -> None:
        for item in held.pop(id(self), ()):
            write(self, *item)
        close(self)

    FileSink.write, FileSink.close = later, all_of_it


def raise_in_plugin() -> None:
    """Raise into Dask when a worker is gone."""
    from dask_strata.recorder.roles.scheduler import SchedulerRecorder

    def fail(*_: Any, **__: Any) -> None:
        # As if a line of the recorder had failed.
        SchedulerRecorder._there_already(None, None)

    SchedulerRecorder.remove_worker = fail


def no_end() -> None:
    """Forget the last row, so that a process that ended looks as if it had been killed."""
    from dask_strata.recorder.pipeline.engine import Engine

    add = Engine.add

    def forget(self: Any, table: str, **row: Any) -> None:
        if "exit_reason" not in row:
            add(self, table, **row)

    Engine.add = forget


MUTANTS = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (drop_frames, drop_rows, wrong_worker, write_late, raise_in_plugin, no_end)
}


def _before_encoding(mutate: Any) -> None:
    from dask_strata.store.frames import Encoder

    frame = Encoder.frame
    Encoder.frame = lambda self, batches: frame(self, mutate(batches))


def dask_setup(_: Any) -> None:
    """Break this process's recorder."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTANTS[name]()

"""Rows of transitions are complete, even if Dask logs more of them during a flush."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import Transition

from dask_strata.recorder.sources.transitions import TransitionSource


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_transition_has_its_report_even_if_both_are_logged_during_a_flush(moment: str) -> None:
    """A task that finishes just before or after the log is read has its worker in the row."""
    scheduler = SimpleNamespace(
        transition_log=deque(maxlen=100),
        transition_counter=0,
        tasks={},
        stream_handlers={"task-erred": print},
    )

    def finished(key: str, stimulus_id: str, **_: Any) -> None:
        # Like Dask's handler, log the transition before returning.
        scheduler.transition_log.append(
            Transition(key, "processing", "memory", {}, stimulus_id, 0.0)
        )

    scheduler.stream_handlers["task-finished"] = finished
    source = TransitionSource(scheduler)
    take, due = source._log.take, ["k"]

    def take_while_dask_continues() -> list[Any]:
        def finish() -> None:
            for key in due:
                handler = scheduler.stream_handlers["task-finished"]
                handler(key=key, stimulus_id="s", worker="tcp://w", nbytes=1)
            due.clear()

        if moment == "before":
            finish()
        entries = take()
        finish()
        return entries

    source._log.take = take_while_dask_continues
    [batch] = [*source.rows(), *source.rows()]
    assert batch.table == "scheduler_transitions"
    assert batch.columns["worker"].values == ["tcp://w"]
    assert source.recorded == 1

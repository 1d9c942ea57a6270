"""Making rows of transitions: what is read while Dask goes on belongs together all the same."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import Transition

from dask_strata.recorder.sources.transitions import TransitionSource


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_transition_has_its_report_though_both_come_while_we_read(moment: str) -> None:
    """A task that is finished just before or after the log is read has its worker on record."""
    scheduler = SimpleNamespace(
        transition_log=deque(maxlen=100),
        transition_counter=0,
        tasks={},
        stream_handlers={"task-erred": print},
    )

    def finished(key: str, stimulus_id: str, **_: Any) -> None:
        # As Dask's handler does: the transition is logged before it returns.
        scheduler.transition_log.append(
            Transition(key, "processing", "memory", {}, stimulus_id, 0.0)
        )

    scheduler.stream_handlers["task-finished"] = finished
    source = TransitionSource(scheduler)
    take, due = source._log.take, ["k"]

    def take_while_dask_goes_on() -> list[Any]:
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

    source._log.take = take_while_dask_goes_on
    [batch] = [*source(), *source()]
    assert batch.table == "scheduler_transitions"
    assert batch.columns["worker"].values == ["tcp://w"]
    assert source.recorded == 1

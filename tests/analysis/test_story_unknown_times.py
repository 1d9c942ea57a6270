"""The story of a task with times that are not on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from tests.support.synthetic import T0, Process, life, new_run


@pytest.mark.parametrize("times", [{"start": T0}, {"stop": T0}, {}])
def test_an_execution_without_a_time(times: dict[str, int], tmp_path: Path) -> None:
    """The execution is in the story, without a duration."""
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    scheduler.end()
    worker = Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=1)
    row = {"key": "a-1", "execution": 1, "worker": "tcp://w:1", "thread": 1}
    worker.write("executions", [{**row, "outcome": "finished", **times}])
    worker.end()
    text = str(open_run(folder).task("a-1"))
    assert "execution finished" in text
    assert "ran " not in text

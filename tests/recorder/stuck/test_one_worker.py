"""The shortest proof: one worker in this process, one task that hangs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distributed import Client

import dask_strata
from dask_strata import open_run
from dask_strata.recorder.stuck import durations, running, source
from tests.conftest import assert_whole
from tests.recorder.stuck import tasks
from tests.recorder.stuck.conftest import found

if TYPE_CHECKING:
    import pytest


def test_a_task_that_hangs_is_found(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line is on record; the record is complete, and nothing was lost."""
    monkeypatch.setattr(source, "_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(running, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(durations, "_NONE_SECONDS", 0.3)
    released = tmp_path / "released"
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        Client(**options, dashboard_address=":0") as client,
        dask_strata.record(runs, client=client) as run,
    ):
        future = client.submit(tasks.step, 0, str(released), key="hangs")
        found(client, lambda row: row["key"] == "hangs")
        released.touch()
        future.result()
    recorded = open_run(run.path)
    assert_whole(recorded)
    [row] = recorded.rows("select distinct kind, typical_seconds from stuck")
    assert row["kind"] == "long-running"
    assert row["typical_seconds"] is None
    stacks = recorded.rows("select stack from stuck order by time")
    assert stacks[0]["stack"].endswith(f"hang ({tasks.__file__}:{tasks.line_of(tasks.hang)})")

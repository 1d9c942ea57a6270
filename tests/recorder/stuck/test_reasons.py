"""Reasons name nothing that is not recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dask_strata.recorder.stuck.found import Found
from dask_strata.recorder.stuck.source import _silence
from dask_strata.recorder.stuck.waiting import why_unrunnable


def test_a_silent_worker_has_no_names_of_other_clients_tasks() -> None:
    """Only the tasks of the recorded client are named."""
    ws: Any = SimpleNamespace(executing=[])
    ws.processing = [SimpleNamespace(key=key, processing_on=ws) for key in ("own", "foreign")]
    silent = Found("no-answer", 0.0, worker=ws)
    mine: Any = {"own"}
    assert _silence(silent, mine).endswith("the scheduler has assigned to it own and 1 more")
    foreign: Any = SimpleNamespace(key="foreign", processing_on=ws)
    ws.executing = [foreign]
    assert "foreign" not in _silence(silent, mine)
    assert "foreign" in _silence(silent, None)
    mine.clear()
    assert _silence(silent, mine).endswith("no recorded task is assigned to it")
    ws.executing, ws.processing = [], []
    assert _silence(silent, mine).endswith("no task is assigned to it")


def test_hosts_of_a_restriction_are_left_out() -> None:
    """Users choose the names of hosts and workers, so no pattern finds them in a text."""
    ts = SimpleNamespace(
        resource_restrictions=None, worker_restrictions={"a"}, host_restrictions={"node12"}
    )
    scheduler = SimpleNamespace(resources={})
    named = "it may run only on the workers a; it may run only on the hosts node12"
    assert why_unrunnable(scheduler, ts) == named
    left_out = named.replace("node12", "(left out)").replace("workers a", "workers (left out)")
    assert why_unrunnable(scheduler, ts, hosts=False) == left_out

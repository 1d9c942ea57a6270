"""`check` compares Dask's fine performance metrics with the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.analysis.check.fine_metrics import Comparison, compare_fine_metrics, totals
from tests.support.synthetic import SECOND, T0, Process, small_run


def metric(context: str, activity: str, value: float, **more: Any) -> dict[str, Any]:
    """Return a row of `fine_metrics`."""
    row = {"time": T0, "worker": "tcp://w:1", "context": context, "activity": activity}
    return row | {"unit": "seconds", "value": value, "final": True} | more


def with_metrics(folder: Path, *metrics: dict[str, Any]) -> Any:
    """Return a run of two tasks, a and b, of 4 s each, with these metrics of their worker."""
    small_run(folder)
    worker = Process(folder, "worker-2", address="tcp://w:1", name="w", nthreads=2)
    worker.write("fine_metrics", [*metrics])
    worker.end()
    return open_run(folder)


def text_of(run: Any) -> tuple[str, str]:
    """Return severity and text of the finding."""
    [found] = [f for f in run.check().findings if "fine metrics" in f.text]
    return found.severity, found.text


def test_metrics_that_agree(tmp_path: Path) -> None:
    """Time outside of functions is no compute; earlier sums of the same metric do not count."""
    run = with_metrics(
        tmp_path / "r",
        metric("execute", "thread-cpu", 1.0, prefix="a", final=False),
        metric("execute", "thread-cpu", 3.0, prefix="a"),
        metric("execute", "thread-noncpu", 1.01, prefix="a"),
        metric("execute", "thread-cpu", 3.9, prefix="b"),
        metric("execute", "my-own-label", 0.1, prefix="b"),
        metric("execute", "executor", 7.0, prefix="b"),
        metric("execute", "failed", 7.0, prefix="b"),
        metric("execute", "memory-read", 9.0, prefix="b", unit="count"),
    )
    assert {c.prefix: (c.dask_seconds, c.recorded_seconds) for c in compare_fine_metrics(run)} == {
        "a": (4.01, 4.0),
        "b": (4.0, 4.0),
    }
    severity, text = text_of(run)
    assert severity == "ok"
    assert text == "Dask's fine metrics: compute 8.01 s, recorded 8 s, 0.12 % apart"
    assert run.check().grade == "whole"


@pytest.mark.parametrize("whole", [True, False])
def test_a_restarted_worker_may_have_its_address_again(tmp_path: Path, whole: bool) -> None:  # noqa: FBT001
    """Attempts count once, and only those of a process with last sums."""
    folder = small_run(tmp_path / "r")
    for number, start, prefixes, final in ((2, 0, "ab", whole), (3, 20, "c", True)):
        at = {"address": "tcp://w:1", "name": "w", "start": T0 + start * SECOND}
        worker = Process(folder, f"worker-{number}", **at)
        sums = [metric("execute", "thread-cpu", 4.0, prefix=p, final=final) for p in prefixes]
        worker.write("fine_metrics", sums)
        worker.end(at=T0 + (start + 15) * SECOND)
    compared = compare_fine_metrics(open_run(folder))
    found = {c.prefix: (c.dask_seconds, c.recorded_seconds) for c in compared}
    assert found == {"c": (4.0, 0.0)} | ({"a": (4.0, 4.0), "b": (4.0, 4.0)} if whole else {})


def test_metrics_that_differ(tmp_path: Path) -> None:
    """A prefix that differs is named, though others make up for it in the sum; nothing is lost."""
    run = with_metrics(
        tmp_path / "r",
        metric("execute", "thread-cpu", 5.0, prefix="a"),
        metric("execute", "thread-cpu", 3.0, prefix="b"),
    )
    severity, text = text_of(run)
    assert severity == "note"
    assert "compute 8 s, recorded 8 s, 0.00 % apart; over 1 % apart: a 20.0 %, b 25.0 %" in text
    assert run.check().grade == "whole"


def test_workers_without_last_sums_are_left_out(tmp_path: Path) -> None:
    """A killed worker has no final sums, and the record goes on after its last ones."""
    run = with_metrics(
        tmp_path / "r", metric("execute", "thread-cpu", 1.0, prefix="a", final=False)
    )
    assert compare_fine_metrics(run) == ()


def test_runs_that_leave_out_tasks_of_others_are_not_compared(tmp_path: Path) -> None:
    """Dask's sums contain those tasks."""
    run = with_metrics(tmp_path / "r", metric("execute", "thread-cpu", 9.0, prefix="a"))
    scheduler = Process(run.path, "scheduler-2", address="tcp://s:1")
    scheduler.write("left_out_rows", [{"time": T0, "what": "x", "count": 1}])
    scheduler.end()
    assert compare_fine_metrics(open_run(run.path)) == ()


@pytest.mark.parametrize(
    ("dask_seconds", "recorded", "apart", "agrees"),
    [(1.0, 1.005, 0.005, True), (1.0, 1.05, 0.048, False), (0.001, 0, 1.0, True), (0, 0, 0, True)],
)
def test_agreement(dask_seconds: float, recorded: float, apart: float, agrees: bool) -> None:  # noqa: FBT001
    """Within 1 %, or 10 ms."""
    compared = Comparison("compute", None, dask_seconds, recorded)
    assert compared.apart == pytest.approx(apart, abs=0.001)
    assert compared.agrees is agrees


def test_totals_are_over_prefixes() -> None:
    """Sums of different things stay apart."""
    parts = (Comparison("compute", "a", 1, 2), Comparison("spilling", None, 5, 5))
    assert [t.what for t in totals(parts)] == ["compute", "spilling"]

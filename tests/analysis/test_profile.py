"""Profiles: shares by owner without waiting, and sums over threads and intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dask_strata import open_run
from dask_strata.analysis.profile import select_profile, summarize_profile
from dask_strata.errors import StrataError, UsageError
from dask_strata.report.profile import profile_lines
from tests.support.synthetic import T0, Process, new_run, small_run


def function(name: str, own: float, owner: str | None, **more: Any) -> dict[str, Any]:
    """Return a row of `functions`."""
    row = {"time": T0, "thread": 1, "name": name, "module": f"/m/{name}.py", "line": 1}
    row |= {"is_coroutine": False, "waiting": False, "ncall": 2, "nactualcall": 2}
    return row | {"total_seconds": own, "own_seconds": own, "clock": "cpu", "owner": owner} | more


@pytest.fixture
def profiled(tmp_path: Path) -> Path:
    """Return a synthetic run with profiles of two workers."""
    folder = new_run(tmp_path / "profiled")
    for number in (1, 2):
        worker = Process(folder, f"worker-{number}", address=f"tcp://w:{number}", name=f"w{number}")
        worker.write(
            "functions",
            [
                function("work", 2.0, "user"),
                function("work", 1.0, "user", thread=2, time=T0 + 1),
                function("svd", 1.0, "library", package="numpy"),
                function("run", 0.5, "dask", package="distributed"),
                function("made", 0.5, None, module="<string>"),
                function("TCP.read", 9.0, "dask", is_coroutine=True, waiting=True),
            ],
        )
        worker.end()
    return folder


def test_shares_are_by_owner_without_waiting(profiled: Path) -> None:
    """Shares are of the user, each library and Dask; waiting is a separate number."""
    summary = summarize_profile(open_run(profiled))
    assert summary is not None
    assert (summary.clock, summary.n_processes, summary.seconds) == ("cpu", 2, 10.0)
    assert summary.waiting_seconds == 18.0
    shares = {s.owner: s.share for s in summary.shares}
    assert shares == pytest.approx({"user": 0.6, "numpy": 0.2, "dask": 0.1, "unknown": 0.1})
    assert summary.top[0].name == "work"
    assert summary.n_coroutines == 1


def test_the_first_screen_has_it_in_two_lines(profiled: Path) -> None:
    """Shares, clock, and the functions with most time of their own."""
    summary = summarize_profile(open_run(profiled))
    assert summary is not None
    console = Console(width=500, record=True)
    console.print(profile_lines(summary))
    first, second = console.export_text().splitlines()
    assert "user 60 % · numpy 20 % · dask 10 % · unknown 10 % of 10 s (cpu clock, 2 proc" in first
    assert "18 s of waiting left out" in first
    assert "work (work.py:1) 6 s" in second


def test_rows_add_up_over_threads_intervals_and_processes(profiled: Path) -> None:
    """Rows by function, module, owner and thread; of one process; sorted; with waiting."""
    run = open_run(profiled)
    rows = select_profile(run).rows.to_pylist()
    assert [(r["name"], r["ncall"], r["own_seconds"]) for r in rows][:2] == [
        ("work", 8, 6.0),
        ("svd", 4, 2.0),
    ]
    assert sum(r["share"] for r in rows) == pytest.approx(1)
    assert select_profile(run, waiting=True, limit=1).rows.to_pylist()[0]["name"] == "TCP.read"
    one = select_profile(run, process="w2", by="owner").rows.to_pylist()
    assert one[0]["own_seconds"] == 3.0
    assert len(select_profile(run, by="thread").rows) == 4
    assert select_profile(run, sort="-own_seconds", limit=1).rows["own_seconds"][0].as_py() == 1.0


def test_unknown_names_are_errors(profiled: Path, tmp_path: Path) -> None:
    """An unknown process, column or kind is an error, and so is a run without a profile."""
    run = open_run(profiled)
    for wrong in ({"process": "w9"}, {"sort": "size"}, {"by": "colour"}):
        with pytest.raises(UsageError):
            select_profile(run, **wrong)
    plain = open_run(small_run(tmp_path / "plain"))
    assert summarize_profile(plain) is None
    with pytest.raises(StrataError, match="No profile"):
        select_profile(plain)

"""Counters of Darshan's logs are read by PyDarshan in a limited process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.importers.darshan import counters_child
from dask_strata.importers.darshan.counters import Wanted, read_counters
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from tests.support.darshan_runs import darshan_run, logs, one

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")


def test_counters_are_those_of_pydarshan(joined: Run, layout: str) -> None:
    import darshan

    for path in sorted(logs(layout).iterdir()):
        report = darshan.DarshanReport(str(path), read_all=False)
        report.mod_read_all_records("POSIX", dtype="numpy")
        names = report.counters["POSIX"]["counters"]
        opens = sum(int(r["counters"][names.index("POSIX_OPENS")]) for r in report.records["POSIX"])
        found = one(
            joined,
            "select coalesce(sum(value), 0) from darshan_counters join darshan_logs using (log) "
            f"where file = '{path.name}' and counter = 'POSIX_OPENS'",
        )
        assert found == opens


def test_counters_are_read_where_memory_is_limited(runs: Path) -> None:
    """A limit of the user, as by `ulimit -v`, may be lower than that of dask-strata."""
    code = (
        "import resource, sys; from pathlib import Path; "
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); "
        "from dask_strata.importers.darshan.counters import Wanted, read_counters; "
        "(found,) = read_counters([Wanted(Path(sys.argv[1]), ('POSIX',))]); "
        "print(len(found), found)"
    )
    log = min(logs("dxt_v2_threads").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code, log],
        capture_output=True,
        text=True,
        cwd=runs.parent,
        check=True,
    )
    assert int(done.stdout.split()[0]) > 50, done.stdout
    assert "pyarrow.Table" in done.stdout


def test_a_lower_limit_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the superuser may raise a hard limit, so the child does not try."""
    limits = []
    monkeypatch.setattr("resource.setrlimit", lambda what, limit: limits.append((what, limit)))
    for hard in (3 << 30, resource.RLIM_INFINITY):
        monkeypatch.setattr("resource.getrlimit", lambda _, hard=hard: (hard, hard))
        counters_child._limit(resource.RLIMIT_AS, 4 << 30)
    assert [limit for _, limit in limits] == [(3 << 30, 3 << 30), (4 << 30, 4 << 30)]


@pytest.mark.release
@pytest.mark.long
def test_a_log_that_hangs_is_abandoned(tmp_path: Path) -> None:
    fifo = tmp_path / "hangs.darshan"
    os.mkfifo(fifo)
    good = min(logs("dxt_v2_threads").iterdir())
    asked = [Wanted(fifo, ("POSIX",)), Wanted(good, ("POSIX",))]
    hung, fine = read_counters(asked, log_seconds=-55)
    assert isinstance(hung, str)
    assert "took too long" in hung
    assert len(fine) > 50


def test_without_pydarshan_traces_are_imported_and_counters_later(
    runs: Path, tmp_path: Path
) -> None:
    run = darshan_run(runs / "run")
    code = (
        "import sys; sys.modules['darshan'] = None; from dask_strata.__main__ import main; main()"
    )
    arguments = ["import", "--into", str(run), str(logs("dxt_v2_threads"))]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'dask-strata[darshan]'" in done.stderr
    opened = open_run(run)
    assert len(opened["darshan_counters"]) == 0
    assert len(opened["darshan_segments"]) == 2664
    assert any("without counters" in f.text for f in opened.check().missing)
    assert add_files(run, [logs("dxt_v2_threads")]).rows > 1000
    opened = open_run(run)
    assert opened.check().ok
    assert len(opened["darshan_segments"]) == 2664

"""Additions to a run: imported once, merged by compaction, and kept when damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.errors import StrataError
from dask_strata.importers.registry import add_files
from dask_strata.store.compact import compact
from dask_strata.store.manifest import Manifest
from tests.support.darshan_runs import (
    NAME,
    answers,
    content,
    darshan_run,
    log_of_tasks,
    logs,
    worker_of_tasks,
)
from tests.support.finalised import finalised_differences
from tests.support.synthetic import T0

pytestmark = pytest.mark.long

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")


@pytest.mark.release
def test_it_is_all_the_same_once_compacted(runs: Path) -> None:
    before = darshan_run(runs / "before")
    after = darshan_run(runs / "after")
    compact(before)
    for run in (before, after):
        add_files(run, [logs("dxt_v2_threads")])
    compact(after)
    assert not list((after / "additions").iterdir())
    assert content(before) == content(after)
    compact(before)
    assert content(before) == content(after)
    assert open_run(after).check().ok


@pytest.mark.release
@pytest.mark.parametrize("keys_per_bucket", [1 << 18, 7])
def test_finalised_tables_are_equal(runs: Path, keys_per_bucket: int) -> None:
    """Derived tables of operations and files are the same, computed in buckets of keys."""
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    assert len(open_run(run).io_segments.to_arrow()) > 0
    assert finalised_differences(run, runs.parent, keys_per_bucket) == []


def test_an_interrupted_compaction_duplicates_no_rows(runs: Path) -> None:
    """Compaction may be interrupted after the swap and before the removal."""
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    expected = content(run)
    shutil.copytree(run / "additions", runs / "kept")
    compact(run)
    shutil.copytree(runs / "kept", run / "additions", dirs_exist_ok=True)
    assert content(run) == expected
    compact(run)
    assert content(run) == expected


def test_logs_are_imported_once(runs: Path) -> None:
    run = darshan_run(runs / "run")
    first, *others = sorted(logs("dxt_v2_threads").iterdir())
    assert add_files(run, [first]).files == 1
    copy = runs / "renamed.darshan"
    shutil.copy(first, copy)
    again = add_files(run, [first, copy, logs("dxt_v2_threads")])
    assert (again.files, again.already_imported) == (len(others), 2)
    whole = content(run)
    assert add_files(run, [logs("dxt_v2_threads")]).already_imported == 6
    assert content(run) == whole


def test_an_interrupted_import_leaves_the_run_as_it_was(runs: Path) -> None:
    run = darshan_run(runs / "run")
    before = sorted(p.name for p in run.rglob("*"))

    def stop(done: int, total: int) -> None:
        if done > total * 3 // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_files(run, [logs("dxt_v2_threads")], stop)
    assert sorted(p.name for p in run.rglob("*")) == before
    # A folder that a kill -9 leaves is no part of the run.
    shutil.copytree(run, runs / "other")
    add_files(runs / "other", [logs("dxt_v2_threads")])
    (addition,) = (runs / "other" / "additions").iterdir()
    addition.rename(run / ".addition-0000")
    assert len(open_run(run)["darshan_logs"]) == 0


def addition_of(run: Path) -> Path:
    """Return the only addition of a run."""
    (found,) = (run / "additions").iterdir()
    return found


@pytest.mark.release
def test_an_addition_with_a_damaged_index_is_kept_and_reported(
    runs: Path, strata: Callable[..., Any]
) -> None:
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    whole = content(run)
    added = addition_of(run)
    (added / "index.json").write_text('{"tables": {"darshan_logs"')
    for _ in range(2):
        assert content(run) == whole
        losses = answers(open_run(run), 'select what, reason, "where" from losses')
        assert [(r["what"], r["where"]) for r in losses] == [
            ("addition", f"additions/{added.name}")
        ]
        assert "index.json cannot be read" in losses[0]["reason"]
        done = strata("compact", run, check=True)
        assert "1 addition damaged, kept in" in done.stdout
        assert added.is_dir()
    assert add_files(run, [logs("dxt_v2_threads")]).already_imported == 6


def test_a_cut_addition_can_be_imported_again(runs: Path) -> None:
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    whole = content(run)
    damaged = addition_of(run)
    parquet = damaged / "darshan_segments" / "part-0.parquet"
    parquet.write_bytes(parquet.read_bytes()[:-100])
    done = compact(run)
    assert (done.additions, done.additions_kept) == (0, 1)
    opened = open_run(run)
    assert (len(opened["darshan_logs"]), len(opened["darshan_segments"])) == (6, 0)
    (finding,) = opened.check().missing
    assert "2,664 darshan_segments: additions/" in finding.text
    assert "differs from the checksum in its index" in finding.text
    added = add_files(run, [logs("dxt_v2_threads")])
    assert (added.rows, added.problems) == (2664, [])
    assert content(run) == whole
    for merged in (1, 0):
        done = compact(run)
        assert (done.additions, done.additions_kept) == (merged, 1)
        assert content(run) == whole
    assert addition_of(run) == damaged
    assert add_files(run, [logs("dxt_v2_threads")]).rows == 0


def test_a_damaged_addition_to_an_imported_run(runs: Path) -> None:
    run = runs / "run"
    Manifest("imported", "imported", T0, "0", imported_from="elsewhere").write(run)
    log = log_of_tasks()
    (runs / NAME).write_bytes(log.bytes())
    add_files(run, [runs / NAME], others=True)
    (addition_of(run) / "index.json").write_text("[]")
    opened = open_run(run)
    assert len(opened["darshan_segments"]) == 31
    assert any("index.json cannot be read" in f.text for f in opened.check().missing)
    parquet = addition_of(run) / "darshan_segments" / "part-0.parquet"
    parquet.write_bytes(b"PAR1")
    opened = open_run(run)
    assert (len(opened["darshan_logs"]), len(opened["darshan_segments"])) == (1, 0)
    assert any("its Parquet cannot be read" in f.text for f in opened.check().missing)
    assert add_files(run, [runs / NAME], others=True).rows == 31
    assert len(open_run(run)["darshan_segments"]) == 31


@pytest.mark.parametrize("cut", ["index.json", "executions/part-0.parquet"])
def test_parquet_that_cannot_be_read_is_not_replaced(runs: Path, cut: str) -> None:
    run = worker_of_tasks(runs / "run")
    compact(run)
    (runs / NAME).write_bytes(log_of_tasks().bytes())
    add_files(run, [runs / NAME])
    path = run / "parquet" / cut
    path.write_bytes(path.read_bytes()[:-20])
    before = sorted(run.rglob("*"))
    with pytest.raises(StrataError, match="cannot be read in full"):
        compact(run)
    assert sorted(run.rglob("*")) == before
    opened = open_run(run)
    assert len(opened["scheduler_transitions"]) == 20
    reason = "cannot be read" if cut == "index.json" else f"parquet/{cut} differs from the checksum"
    assert any(reason in f.text for f in opened.check().missing)


def test_compacting_prints_the_number_of_additions(runs: Path, strata: Callable[..., Any]) -> None:
    run = darshan_run(runs / "run")
    compact(run)
    add_files(run, [logs("dxt_v2_threads")])
    assert "1 addition, now" in strata("compact", run, check=True).stdout
    assert "Already compact" in strata("compact", run, check=True).stdout

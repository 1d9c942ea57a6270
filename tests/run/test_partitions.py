"""Dask DataFrames of finalised runs: the rows of `to_pandas`, read by partition."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.errors import StrataError
from dask_strata.run.finalise import finalise
from dask_strata.run.stored import partitions as partitions_module
from dask_strata.schema import TABLES
from tests.support.synthetic import SECOND, T0, Process, small_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import thousand

TASKS, KEYS_PER_BUCKET = 60, 30


def key_of(worker: int, task: int) -> str:
    """Return the key of a task."""
    return thousand.keys_of(worker, task, 1)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finalised run with several files of each large table; one worker has another clock."""
    run = thousand.write(tmp_path_factory.mktemp("many"), workers=2, tasks=TASKS)
    more = Process(run, "worker-9", address="tcp://w:9")
    pairs = [(w, t) for w in range(2) for t in range(TASKS)]
    edges = [(key_of(w, t), key_of(1 - w, t // 2)) for w, t in pairs]
    more.write("graph_edges", [{"key": key, "dependency": other} for key, other in edges])
    more.write("graph_layers", [{"layer": "process"}])
    offset = {"time": T0, "offset_seconds": 0.25, "uncertainty_seconds": 0.001}
    more.write("clock_offsets", [offset])
    rows = [{"time": T0 + t * SECOND, "worker": "tcp://w:9", "key": key_of(0, t)} for t in range(9)]
    more.write("worker_transitions", rows)
    more.end()
    finalise(run, keys_per_bucket=KEYS_PER_BUCKET)
    return run


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in an order that depends on their values only, with plain texts."""
    texts = frame.astype({c: object for c in frame if frame[c].dtype == "category"})
    place = texts.map(repr).apply("|".join, axis=1).argsort(kind="stable") if len(texts) else []
    return texts.iloc[place].reset_index(drop=True)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_partitions_have_the_rows_of_to_pandas(folder: Path, name: str) -> None:
    """Every table has the same rows, columns and types, whichever way it is read."""
    run = open_run(folder)
    expected = run[name].to_pandas()
    with dask.config.set(scheduler="synchronous"):
        frame = run[name].to_dask()
        found = frame.compute()
    assert list(frame.columns) == list(expected.columns)
    assert list(frame.dtypes.astype(str)) == list(expected.dtypes.astype(str))
    assert list(found.dtypes.astype(str)) == list(expected.dtypes.astype(str))
    assert list(found.index) == list(range(len(expected)))
    pd.testing.assert_frame_equal(ordered(found), ordered(expected))


def test_a_table_has_a_partition_for_each_file(folder: Path) -> None:
    """Buckets of keys are partitions; `npartitions` limits them."""
    run = open_run(folder)
    for name in ("tasks", "scheduler_transitions", "graph_edges"):
        files = list((folder / "parquet" / name).iterdir())
        assert run[name].to_dask().npartitions == len(files) == 4
        assert run[name].to_dask(npartitions=3).npartitions <= 3
        assert run[name].to_dask(npartitions=1).npartitions == 1
    assert run["processes"].to_dask().npartitions == 1


def test_rows_of_a_key_keep_their_order(folder: Path) -> None:
    """The transitions of each key are in the order in which they were recorded."""
    run = open_run(folder)
    with dask.config.set(scheduler="synchronous"):
        found = run.scheduler_transitions.to_dask()[["key", "seq"]].compute()
    assert list(found.columns) == ["key", "seq"]
    by_key = found.groupby("key", observed=True)["seq"]
    assert by_key.apply(lambda seq: seq.is_monotonic_increasing).all()


def test_large_files_are_divided_at_row_groups(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of many row groups is several partitions, of which each reads its own."""
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    expected = open_run(copy)["worker_transitions"].to_pandas()
    part = open_run(copy).record.tables.finalised()
    for file in (copy / "parquet" / "worker_transitions").iterdir():
        pq.write_table(pq.read_table(file), file, row_group_size=20)
    monkeypatch.setattr(partitions_module, "_MOST_ROWS", 50)
    frame = partitions_module.dask_frame(part, "worker_transitions", {})
    with dask.config.set(scheduler="synchronous"):
        lengths = [len(frame.get_partition(i).compute()) for i in range(frame.npartitions)]
        found = frame.compute()
    assert max(lengths) == 40
    assert sum(lengths) == len(expected)
    assert list(found.index) == list(range(len(expected)))
    pd.testing.assert_frame_equal(
        ordered(found.drop(columns="time")), ordered(expected.drop(columns="time"))
    )


def test_building_the_frame_reads_no_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the metadata of files is read: neither the table nor any row group."""
    run = open_run(folder)
    assert run.clock_offsets_ns  # from two small tables

    def no_rows(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were read")

    frames = {}
    with monkeypatch.context() as patch:
        for method in ("read", "read_row_group", "read_row_groups"):
            patch.setattr(pq.ParquetFile, method, no_rows)
        patch.setattr(type(run), "_table", no_rows)
        for name in ("tasks", "worker_transitions"):
            frames[name] = run[name].to_dask()
            assert len(run[name]) > 0
            assert frames[name].dtypes is not None
    with dask.config.set(scheduler="synchronous"):
        assert len(frames["tasks"].compute()) == 2 * TASKS


def test_a_run_that_is_not_finalised_is_loaded_first(tmp_path: Path) -> None:
    """Its DataFrame has the same rows and types, too."""
    run = open_run(small_run(tmp_path / "run"))
    for name in ("tasks", "scheduler_transitions"):
        expected = run[name].to_pandas()
        found = run[name].to_dask(npartitions=2)
        assert list(found.dtypes.astype(str)) == list(expected.dtypes.astype(str))
        with dask.config.set(scheduler="synchronous"):
            pd.testing.assert_frame_equal(ordered(found.compute()), ordered(expected))


def test_times_follow_the_alignment_of_the_run(folder: Path) -> None:
    """Without alignment, partitions have the recorded times."""
    run = open_run(folder, align=False)
    expected = run.worker_transitions.to_pandas()
    with dask.config.set(scheduler="synchronous"):
        found = run.worker_transitions.to_dask().compute()
    pd.testing.assert_frame_equal(ordered(found), ordered(expected))


def test_a_file_that_was_replaced_is_an_error(folder: Path, tmp_path: Path) -> None:
    """Rows of another compaction are not mixed with those of the run as it was opened."""
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    frame = open_run(copy).tasks.to_dask()
    file = copy / "parquet" / "tasks" / "part-1.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    with dask.config.set(scheduler="synchronous"), pytest.raises(StrataError, match="replaced"):
        frame.compute()

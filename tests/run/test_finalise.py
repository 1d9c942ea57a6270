"""Finalised runs: their tables are those of the segments, in whatever buckets."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.analysis.story import story
from dask_strata.errors import QueryError, StrataError
from dask_strata.run import derived
from dask_strata.run.derived import STORED, definitions
from dask_strata.run.finalise import finalise, stages
from dask_strata.schema import RECORDED
from dask_strata.store.compact import compact
from dask_strata.store.key_texts import has_buckets
from dask_strata.store.manifest import Manifest
from tests.support.cases import few
from tests.support.eventful import record_eventful
from tests.support.finalised import differences, finalised_differences, plain
from tests.support.synthetic import T0, Process, life, new_run, small_run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run with much that happens; as segments."""
    return record_eventful(tmp_path_factory.mktemp("eventful"))


@pytest.fixture
def copy(eventful: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(eventful, tmp_path / "run"))


@pytest.mark.parametrize(
    "keys_per_bucket",
    [1 << 18, 40, 9],
)
def test_finalised_tables_are_equal(eventful: Path, copy: Path, keys_per_bucket: int) -> None:
    """Row for row, in whatever buckets they were computed; the answers are the same, too."""
    finalise(copy, keys_per_bucket=keys_per_bucket)
    assert differences(copy, eventful) == []
    now, then = open_run(copy), open_run(eventful)
    assert now.check().findings == then.check().findings
    for query in (
        "select prefix, count(*) as n, sum(nbytes) as b from tasks group by 1 order by 1",
        "select key, key_type, time from scheduler_transitions where key = 'again' order by seq",
        "select key, dependency, dependency_type from graph_edges order by all",
        "select * exclude (nbytes) from attempts order by attempt",
        "select key, count(*) as n from tasks join phases using (key, key_type) group by 1",
    ):
        assert plain(now.sql(query).to_arrow()) == plain(then.sql(query).to_arrow()), query
    assert story(now.task(("plus", 3))) == story(then.task(("plus", 3)))


@pytest.mark.parametrize("keys_per_bucket", [1 << 18, 1])
def test_transitions_of_other_clients_count(tmp_path: Path, keys_per_bucket: int) -> None:
    """Dask's counter of a worker includes them, and so does the check of a finalised run."""
    folder = new_run(tmp_path / "r")
    replace(Manifest.read(folder), only_client="Client-a").write(folder)
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("own", 1, 2, "tcp://w:1"))
    scheduler.end()
    worker = Process(folder, "worker-1", address="tcp://w:1")
    worker.write("worker_transitions", [{"time": T0, "key": key} for key in ("own", "b", None)])
    count = {"time": T0, "name": "worker.transitions", "value": 3, "final": True}
    worker.write("counters", [count])
    worker.end()
    then = open_run(Path(shutil.copytree(folder, tmp_path / "segments")))
    finalise(folder, keys_per_bucket=keys_per_bucket)
    now = open_run(folder)
    assert len(now.worker_transitions.to_arrow()) == 2
    assert now.check().findings == then.check().findings
    assert not any("too many" in f.text or "missing" in f.text for f in now.check().findings)


def test_times_of_another_clock_are_aligned(tmp_path: Path) -> None:
    """Those of processes on another host, also in the table of processes itself."""
    folder, worker = new_run(tmp_path / "r"), "tcp://w:1"
    scheduler = Process(folder, "scheduler-1")
    other = Process(folder, "worker-1", address=worker, host="another", name="w")
    added = {"time": T0, "worker": worker, "name": "w", "action": "add"}
    scheduler.write("worker_events", [added])
    scheduler.write("scheduler_transitions", life("a", 1, 2, worker))
    measured = {"time": T0, "offset_seconds": 5.0, "uncertainty_seconds": 0.001}
    other.write("clock_offsets", [measured])
    other.write("worker_transitions", [{"time": T0, "worker": worker, "key": "a"}])
    scheduler.end()
    other.end()
    assert open_run(folder).clock_offsets_ns == {"worker-1": 5_000_000_000}
    assert finalised_differences(folder, tmp_path, 1 << 18) == []


def test_a_finalised_run_reads_only_what_a_query_needs(copy: Path) -> None:
    """The answer of a query over tasks computes nothing, and reads no recorded table."""
    finalise(copy)
    run = open_run(copy)
    for name in RECORDED:
        if (copy / "parquet" / name).exists() and name not in {"processes", "clock_offsets"}:
            assert run.record.rows[name] > 0
    run.rows("select prefix, count(*) from tasks group by 1")
    assert run._materialised == set()
    assert set(run._with_texts) == {"_keys", "tasks"}


def test_a_grown_run_has_all_rows(tmp_path: Path) -> None:
    """Rows after finalising are in all tables, and in the Parquet after the next time."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("scheduler_transitions", life("a", 1, 2, "tcp://w:1"))
    finalise(folder)
    assert [t["key"] for t in open_run(folder).tasks.to_arrow().to_pylist()] == ["a"]
    process.write("scheduler_transitions", life("b", 3, 4, "tcp://w:1"))
    process.end()
    for _ in range(2):
        assert [t["key"] for t in open_run(folder).tasks.to_arrow().to_pylist()] == ["a", "b"]
        finalise(folder)
    run = open_run(folder)
    assert run._stored == STORED
    assert run.tasks.to_arrow()["n_attempts"].to_pylist() == [1, 1]


@pytest.mark.parametrize(
    "harm", few(["removed", "truncated", "changed", "exchanged"], always=["changed"])
)
@pytest.mark.parametrize("table", ["tasks", "scheduler_transitions", "keys"])
def test_check_notices_a_harmed_file(copy: Path, table: str, harm: str) -> None:
    """Derived tables are computed again; a recorded one is empty, and its loss is reported."""
    finalise(copy, keys_per_bucket=60)
    whole = open_run(copy)
    assert not any(table in f.text for f in whole.check().missing)
    tasks = plain(whole.tasks.to_arrow())
    folder = copy / "parquet" / table
    path = folder / "part-0.parquet"
    if harm == "removed":
        path.unlink()
    elif harm == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif harm == "changed":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        other = pq.read_table(path)
        pq.write_table(other.slice(1), path)
    run = open_run(copy)
    missing = [f.text for f in run.check().missing]
    assert any(table in text for text in missing)
    if table == "tasks":
        assert plain(run.tasks.to_arrow()) == tasks
    else:
        assert len(run.scheduler_transitions.to_arrow()) == 0


@pytest.fixture
def better(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another version of the definition of tasks."""
    versions = {**derived.versions(), "tasks": "better"}
    for module in ("dask_strata.run.stored.views", "dask_strata.run.stored.cache"):
        monkeypatch.setattr(f"{module}.versions", lambda: versions)
    monkeypatch.setattr("dask_strata.run.finalise.versions", lambda: versions)
    return


@pytest.mark.usefixtures("better")
@pytest.mark.parametrize("writable", [True, False])
def test_a_better_definition_is_applied_once(
    eventful: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writable: bool
) -> None:
    """It is kept in the run's folder, or in the cache folder if that cannot be written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask_strata.run.finalise.versions", derived.versions)
        finalise(copy)
    if not writable:
        monkeypatch.setattr("dask_strata.run.stored.cache.FOLDER", "run.json")
    expected = plain(open_run(eventful).tasks.to_arrow())
    assert plain(open_run(copy).tasks.to_arrow()) == expected
    kept = list((copy if writable else tmp_path / "cache").rglob("part-0.parquet"))
    assert any(path.parent.name == "tasks" and "parquet" not in path.parts[:-1] for path in kept)
    run = open_run(copy)
    assert run._stored == STORED
    assert plain(run.tasks.to_arrow()) == expected
    assert not run._improved


def test_every_definition_is_in_a_stage_after_its_dependencies() -> None:
    """In buckets only where the tables that it needs are, too."""
    made = stages()
    place = {each.name: i for i, stage in enumerate(made) for each in stage.definitions}
    assert set(place) >= STORED
    for i, stage in enumerate(made):
        for each in stage.definitions:
            for other in each.depends_on & place.keys():
                whole = stage.in_buckets and other not in each.by_key
                if whole or made[place[other]].in_buckets != stage.in_buckets:
                    assert place[other] < i, (each.name, other)
                else:
                    assert place[other] <= i, (each.name, other)


@pytest.mark.parametrize("name", definitions())
def test_tables_by_key_have_keys(name: str) -> None:
    """A table is divided by key only if it has keys."""
    for other in definitions()[name].by_key & RECORDED.keys():
        assert has_buckets(RECORDED[other])


def test_early_outcomes_are_mended_on_reading(tmp_path: Path) -> None:
    """Where early versions recorded an outcome that is mended on reading, nothing is derived."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "worker-1")
    process.write(
        "executions",
        [{"key": "a", "worker": "tcp://w:1", "outcome": "erred", "exception": "Reschedule()"}],
    )
    process.end()
    finalise(folder)
    assert json.loads((folder / "parquet" / "index.json").read_text())["derived"] == {}
    assert len(open_run(folder).executions.to_arrow()) == 1


def test_a_failure_while_deriving_leaves_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is deleted, and the run is finalised the next time."""
    folder = small_run(tmp_path / "r")
    segments = sorted((folder / "segments").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(
            "dask_strata.run.workspace.Workspace.write",
            lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
        )
        with pytest.raises(StrataError, match="No space left"):
            finalise(folder)
    assert sorted((folder / "segments").iterdir()) == segments
    assert sorted(p.name for p in folder.iterdir()) == ["run.json", "segments"]
    finalise(folder)
    assert open_run(folder)._stored == STORED


def test_parquet_without_derived_tables_is_finalised(copy: Path, eventful: Path) -> None:
    """A run that was only compacted reads as before, and gets derived tables later."""
    compact(copy)
    assert open_run(copy)._views is None
    finalise(copy)
    assert differences(copy, eventful) == []


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('/etc/hostname')",
        "select * from read_parquet('{other}')",
        "from '{other}'",
        "select * from glob('/etc/*')",
        "copy (select 1) to '{other}.new'",
    ],
)
def test_queries_of_users_read_no_other_files(copy: Path, tmp_path: Path, query: str) -> None:
    """Also where DuckDB reads the tables from files."""
    finalise(copy)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"secret": [1]}), other)
    run = open_run(copy)
    assert run.sql("select count(*) as n from tasks").to_arrow()["n"].to_pylist()[0] > 0
    with pytest.raises(QueryError):
        run.sql(query.format(other=other))
    assert not list(tmp_path.glob("*.new"))


def test_parquet_that_duckdb_cannot_read_costs_its_own_table(copy: Path) -> None:
    """A damaged file whose checksum was adapted: other tables are read, and nothing is raised."""
    finalise(copy)
    expected = len(open_run(copy).worker_events.to_arrow())
    path = copy / "parquet" / "scheduler_transitions" / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    index = copy / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"]["scheduler_transitions"] = [zlib.crc32(data)]
    index.write_text(json.dumps(facts), encoding="utf-8")
    run = open_run(copy)
    assert len(run.rows("select * from scheduler_transitions")) == 0
    assert len(run.rows("select * from worker_events")) == expected
    assert not run.check().ok
    assert len(open_run(copy).sql("select * from scheduler_transitions").to_arrow()) == 0

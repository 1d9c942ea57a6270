"""Files of a run that were copied, added, exchanged or removed: `check` names each."""

from __future__ import annotations

import cProfile
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from dask_strata import Run, open_run, record
from dask_strata.errors import StrataError
from dask_strata.importers.registry import add_files
from dask_strata.schema import RECORDED
from dask_strata.store.compact import compact
from dask_strata.store.key_texts import KEYS, key_columns
from tests.conftest import assert_whole
from tests.support.coupler_files import write
from tests.support.coupler_runs import example_files, imported_run

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one cluster, with nannies: 7 tasks and 5 tasks."""
    runs = tmp_path_factory.mktemp("runs")
    made = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for n in (7, 5):
            with record(runs, client=client, yappi_clock="cpu") as run:
                client.gather(client.map(str, range(n), pure=False))
            assert_whole(run)
            made.append(run.path)
    return made[0], made[1]


@pytest.fixture
def run(two_runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the first run."""
    return Path(shutil.copytree(two_runs[0], tmp_path / "run"))


@pytest.fixture
def other(two_runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the second run."""
    return Path(shutil.copytree(two_runs[1], tmp_path / "other"))


def segment(run: Path, role: str) -> Path:
    """Return the segment of the only process with a role."""
    (found,) = (run / "segments").glob(f"{role}-*.seg")
    return found


def assert_named(strata: Strata, run: Path, *words: str) -> None:
    """Assert that `check` ends with 1, and that one of its lines has all these words."""
    done = strata("check", run)
    assert done.returncode == 1, done.stdout
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(all(word in line for word in words) for line in lines), done.stdout


def run_id_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["run"])


def n_attempts(run: Path) -> int:
    return len(open_run(run).attempts.to_pandas())


def test_a_copied_segment_is_named_and_not_read_twice(run: Path, strata: Strata) -> None:
    """A copy beside its original adds no rows, and compaction refuses it."""
    original = segment(run, "scheduler")
    copy = shutil.copy(original, original.with_name("scheduler-copy.seg"))
    assert_named(strata, run, "scheduler-copy.seg", f"copy of the segment of {original.stem}")
    assert n_attempts(run) == 7
    refused = strata("compact", run)
    assert refused.returncode == 1
    assert "scheduler-copy.seg" in refused.stderr
    assert Path(copy).exists()


@pytest.mark.parametrize("role", ["scheduler", "worker", "nanny", "client"])
def test_segments_of_another_run_are_named_and_not_read(
    run: Path, other: Path, role: str, strata: Strata
) -> None:
    """Added segments of another run add no rows."""
    added = shutil.copy(segment(other, role), run / "segments")
    assert_named(strata, run, Path(added).name, "belongs to another run", run_id_of(other))
    assert n_attempts(run) == 7


@pytest.mark.parametrize("compacted", [False, True])
def test_a_manifest_of_another_run_is_named(
    run: Path, other: Path, strata: Strata, *, compacted: bool
) -> None:
    """With another run's manifest, nothing in the folder belongs to the run."""
    run_id = run_id_of(run)
    if compacted:
        compact(run)
    shutil.copy(other / "run.json", run)
    assert_named(strata, run, "belongs to another run", run_id)


@pytest.mark.parametrize("early", [False, True])
def test_parquet_of_another_run_is_named_and_not_read(
    run: Path, other: Path, strata: Strata, *, early: bool
) -> None:
    """The Parquet of another run is refused, also with an index of an earlier version."""
    compact(run)
    compact(other)
    assert n_attempts(run) == 7
    shutil.rmtree(run / "parquet")
    shutil.copytree(other / "parquet", run / "parquet")
    if early:
        index = json.loads((run / "parquet" / "index.json").read_text())
        del index["run"]
        (run / "parquet" / "index.json").write_text(json.dumps(index))
    assert_named(strata, run, "parquet belongs to another run", run_id_of(other))
    assert n_attempts(run) == 0


@pytest.mark.parametrize("role", ["scheduler", "worker", "nanny", "client"])
def test_a_removed_segment_is_named(run: Path, strata: Strata, role: str) -> None:
    """Whichever process lost its segment, `check` names it."""
    path = segment(run, role)
    path.unlink()
    assert_named(strata, run, role if role == "scheduler" else path.stem, "has no record")


@pytest.mark.parametrize("role", ["worker", "nanny", "client"])
def test_a_segment_removed_before_compaction_is_named(run: Path, strata: Strata, role: str) -> None:
    """Compaction does not hide that a segment is missing."""
    path = segment(run, role)
    path.unlink()
    compact(run)
    assert_named(strata, run, path.stem, "has no record")


def test_an_addition_of_another_run_is_named(run: Path, other: Path, strata: Strata) -> None:
    """Rows that were added to another run are not rows of this one."""
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.dump_stats(other / "own.pstat")
    add_files(other, [other / "own.pstat"])
    n = len(open_run(run).functions.to_pandas())
    assert len(open_run(other).functions.to_pandas()) > 0
    shutil.copytree(other / "additions", run / "additions")
    assert_named(strata, run, "belongs to another run", run_id_of(other))
    assert len(open_run(run).functions.to_pandas()) == n


@pytest.fixture(scope="module")
def compacted_runs(
    two_runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Copies of both runs, compacted."""
    folder = tmp_path_factory.mktemp("compacted")
    made = [Path(shutil.copytree(run, folder / str(i))) for i, run in enumerate(two_runs)]
    for run in made:
        compact(run)
    return made[0], made[1]


def exchange(table: Path, other: Path) -> None:
    """Replace the table's folder by the other run's."""
    shutil.rmtree(table)
    shutil.copytree(other, table)


def add_file(table: Path, other: Path) -> None:
    """Add other rows beside those of the run."""
    shutil.copy(other / "part-0.parquet", table / "part-1.parquet")


def flip(table: Path, other: Path) -> None:
    """Flip a bit in the middle of the file."""
    path = table / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(table: Path, other: Path) -> None:
    """Remove the second half of the file."""
    path = table / "part-0.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(table: Path, other: Path) -> None:
    """Remove the file."""
    (table / "part-0.parquet").unlink()


def n_rows(run: Run) -> dict[str, int]:
    """Return the number of rows of each recorded table that are read."""
    return {name: len(run[name].to_arrow()) for name in RECORDED if name != "losses"}


def test_each_exchanged_table_is_named_and_not_read(
    compacted_runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """One table of a compacted run is another run's: its rows are not read, all others are."""
    whole, other = compacted_runs
    before = n_rows(open_run(whole))
    tables = {p.name for p in (whole / "parquet").iterdir() if p.is_dir()}
    both = {name for name in tables if (other / "parquet" / name).exists()} - {KEYS}
    assert len(both) > 25
    for table in sorted(both):
        run = Path(shutil.copytree(whole, tmp_path / table))
        exchange(run / "parquet" / table, other / "parquet" / table)
        changed = open_run(run)
        assert any(f" {table}: parquet/{table}/" in f.text for f in changed.check().missing)
        assert n_rows(changed) == before | ({table: 0} if table != "losses" else {})


def test_an_exchanged_table_of_keys_is_named_and_not_read(
    compacted_runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """Rows of keys are not read, as the ids in them are those of other keys; all others are."""
    whole, other = compacted_runs
    before = n_rows(open_run(whole))
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    exchange(run / "parquet" / KEYS, other / "parquet" / KEYS)
    changed = open_run(run)
    assert any(f.text.startswith(f"{KEYS}: parquet/{KEYS}/") for f in changed.check().missing)
    without = {n: 0 if key_columns(RECORDED[n]) else rows for n, rows in before.items()}
    assert n_rows(changed) == without


@pytest.mark.parametrize("change", [add_file, flip, truncate, remove])
def test_changed_tables_are_named_and_not_read(
    compacted_runs: tuple[Path, Path], tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    """All tables of a compacted run were changed: `check` names each, and none is read."""
    run = Path(shutil.copytree(compacted_runs[0], tmp_path / "run"))
    tables = [p for p in (run / "parquet").iterdir() if p.is_dir()]
    for table in tables:
        change(table, compacted_runs[0] / "parquet" / table.name)
    changed = open_run(run)
    texts = [f.text for f in changed.check().missing]
    assert [t.name for t in tables if not any(f" {t.name}: " in f" {text}" for text in texts)] == []
    assert set(n_rows(changed).values()) == {0}


def test_check_names_the_file_of_an_exchanged_table(
    compacted_runs: tuple[Path, Path], tmp_path: Path, strata: Strata
) -> None:
    """`check` ends with 1 and names the file; `compact` refuses to continue without its rows."""
    run = Path(shutil.copytree(compacted_runs[0], tmp_path / "run"))
    exchange(run / "parquet" / "executions", compacted_runs[1] / "parquet" / "executions")
    assert_named(strata, run, "parquet/executions/part-0.parquet differs from the checksum")
    refused = strata("compact", run)
    assert refused.returncode == 1
    assert "cannot be read in full" in refused.stderr


def test_a_table_that_the_index_does_not_list_is_named(
    run: Path, other: Path, strata: Strata
) -> None:
    """The rows of an added table's folder are not rows of the run."""
    compact(run)
    compact(other)
    index = run / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    del facts["tables"]["functions"], facts["checksums"]["functions"]
    index.write_text(json.dumps(facts))
    exchange(run / "parquet" / "functions", other / "parquet" / "functions")
    assert_named(strata, run, "parquet/functions is not in index.json")
    assert len(open_run(run).functions.to_pandas()) == 0


def test_rows_without_a_checksum_that_the_index_does_not_count_are_not_read(
    compacted_runs: tuple[Path, Path], tmp_path: Path, strata: Strata
) -> None:
    """An index of an earlier version has the number of rows only: it is compared."""
    run = Path(shutil.copytree(compacted_runs[0], tmp_path / "run"))
    index = run / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    del facts["checksums"]
    index.write_text(json.dumps(facts))
    add_file(*(r / "parquet" / "scheduler_transitions" for r in (run, compacted_runs[1])))
    assert_named(strata, run, "parquet/scheduler_transitions has", "instead of")
    assert len(open_run(run)["scheduler_transitions"].to_arrow()) == 0
    assert n_attempts(run) == 7


@pytest.mark.parametrize("imported", [False, True])
def test_a_changed_table_of_an_addition_is_named_and_not_read(
    run: Path, tmp_path: Path, strata: Strata, *, imported: bool
) -> None:
    """Files of an addition have checksums, too; the run's own rows are still read."""
    if imported:
        run = imported_run(write(tmp_path / "csv", example_files())).path
    for i in range(2):
        profile = cProfile.Profile()
        profile.runcall(sorted, [2, 1][i:])
        profile.dump_stats(tmp_path / f"{i}.pstat")
    before = len(open_run(run).functions.to_pandas())
    for i in range(2):
        add_files(run, [tmp_path / f"{i}.pstat"])
    first, second = (run / "additions").iterdir()
    n = len(pq.read_table(second / "functions" / "part-0.parquet"))
    exchange(first / "functions", second / "functions")
    assert_named(strata, run, "functions", "differs from the checksum in its index")
    assert len(open_run(run).functions.to_pandas()) == before + n


def test_an_exchanged_table_of_an_imported_run_is_an_error(tmp_path: Path, strata: Strata) -> None:
    """Tables of an imported run are verified when they are first read, all of them by `check`."""
    runs = [imported_run(write(tmp_path / name, example_files())).path for name in ("a", "b")]
    table = "worker_transitions"
    path = runs[0] / "parquet" / table / "part-0.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.take(list(range(len(rows)))[::-1]), path)
    opened = open_run(runs[0])
    assert len(opened["scheduler_transitions"].to_arrow()) > 0
    with pytest.raises(StrataError, match="differs from the checksum in its index"):
        opened[table].to_arrow()
    done = strata("check", runs[0])
    assert done.returncode == 1
    assert f"parquet/{table}/part-0.parquet differs from the checksum" in " ".join(
        (done.stdout + done.stderr).split()
    )
    assert strata("check", runs[1]).returncode == 0


def test_a_run_that_was_moved_is_whole(run: Path, strata: Strata) -> None:
    """A copy of a whole run, under any name, is whole: in segments and compacted."""
    assert_whole(open_run(run))
    compact(run)
    moved = run.rename(run.with_name("elsewhere"))
    opened: Run = open_run(moved)
    assert_whole(opened)
    assert strata("check", moved).returncode == 0

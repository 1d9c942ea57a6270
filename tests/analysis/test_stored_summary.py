"""The summary in a run's folder: equal to a computed one, and used for the same files only."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from dask_strata import open_run, record
from dask_strata.analysis.compare.compare import compare_groups
from dask_strata.analysis.compare.runs import make_groups, observe
from dask_strata.analysis.critical_path.walk import critical_path
from dask_strata.analysis.list import list_run, list_runs
from dask_strata.analysis.overview import stored
from dask_strata.analysis.overview.compute_comparable import compute_comparable
from dask_strata.analysis.overview.row import compute_row, stored_row
from dask_strata.analysis.overview.stored import store_summary, summary_of
from dask_strata.analysis.summary import summarize
from dask_strata.store import safe_files
from dask_strata.store.compact import compact
from dask_strata.store.manifest import Manifest, process_identity
from dask_strata.store.segments.frames import Batch, Encoder
from dask_strata.store.sinks import FileSink
from dask_strata.store.summaries import summary_file
from dask_strata.store.summaries.files import list_files
from dask_strata.store.summaries.typed_json import to_json
from tests.conftest import wait_for_own_reads
from tests.support.cases import few
from tests.support.synthetic import T0, Process, life, new_run, small_run

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


def _fail(x: int) -> int:
    raise ValueError(f"no {x}")


def _exit(_: int) -> None:
    os._exit(3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with failures and a worker that died, finalised, without a summary."""
    runs = tmp_path_factory.mktemp("runs")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        record(runs, client=client) as run,
    ):
        done = client.map(pow, range(20), [2] * 20)
        client.gather(done)
        client.submit(sum, done).result()
        failed = client.map(_fail, range(3), retries=0)
        deadly = client.submit(_exit, 1, retries=0)
        for future in [*failed, deadly]:
            future.exception()
        client.wait_for_workers(2)
        wait_for_own_reads(client)  # a segment without a header could be that of a living process
    compact(run.path)
    return run.path


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy of that run with its summary."""
    copy = Path(shutil.copytree(recorded, tmp_path / "runs" / "run"))
    assert store_summary(copy)
    return copy


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A small finalised run with its summary."""
    made = small_run(tmp_path / "runs" / "small")
    compact(made)
    assert store_summary(made)
    return made


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the answers that were computed."""
    names: list[str] = []

    def spy(name: str) -> None:
        function = getattr(stored, name)

        def call(*arguments: Any) -> Any:
            names.append(name)
            return function(*arguments)

        monkeypatch.setattr(stored, name, call)

    for name in ("summarize", "compute_row", "compute_comparable"):
        spy(name)
    return names


def rounded(value: Any) -> Any:
    """Return an answer with 9 digits of each number: DuckDB's threads add in any order."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def same(*answers: Any) -> bool:
    """Return whether answers that were computed independently are the same."""
    first, *others = (rounded(to_json(answer)) for answer in answers)
    return all(other == first for other in others)


def summary_path(run: Path) -> Path:
    return run / "parquet" / "summary.json"


def is_stored(run: Path) -> bool:
    """Return whether the summary belongs to the present files."""
    return summary_file.read_summary(list_files(run), verify=True) is not None


def test_the_stored_answers_equal_the_computed_ones(run: Path, computed: list[str]) -> None:
    """Failures, insights, the check and all numbers are those of a computation."""
    found = summary_of(open_run(run))
    assert computed == []
    expected = summarize(open_run(run))
    assert same(found, expected)
    assert found.failures
    assert found.insights
    assert found.check.findings
    row = stored_row(list_files(run))
    assert row is not None
    assert same(row, compute_row(open_run(run), expected.insights))
    assert (row.cause, row.insight) == (expected.insights[0].cause, expected.insights[0].text)
    assert row.insights == len(expected.insights)
    assert row.user == pwd.getpwuid(os.getuid()).pw_name
    _, values = stored.compared(open_run(run))
    assert computed == []
    opened = open_run(run)
    assert same(values, compute_comparable(opened, critical_path(opened)))
    assert values.packages["python"]


def test_the_commands_print_the_same_with_and_without_a_summary(
    small: Path, strata: Strata
) -> None:
    """`show` and `list`, in each of their formats."""
    commands: list[list[Any]] = [
        ["show", small],
        ["show", small, "--format", "json"],
        *(["list", small.parent, "--format", form] for form in ("table", "csv", "json")),
    ]
    with_summary = [strata(*command, check=True).stdout for command in commands]
    size = summary_path(small).stat().st_size
    without = []
    for command in commands:
        summary_path(small).write_bytes(b"x" * size)  # of the same size, as `list` shows the sum
        without.append(strata(*command, check=True).stdout)
    assert with_summary == without


def test_compact_stores_the_summary(tmp_path: Path, strata: Strata) -> None:
    """The command leaves a run whose answers are known."""
    run = small_run(tmp_path / "r")
    strata("compact", run, check=True)
    assert is_stored(run)
    strata("compact", run, check=True)
    assert is_stored(run)


def test_record_stores_the_summary(tmp_path: Path, strata: Strata) -> None:
    """So does `record`, which compacts by default."""
    script = tmp_path / "script.py"
    script.write_text(
        "from distributed import Client\n"
        "if __name__ == '__main__':\n"
        "    with Client(n_workers=1, threads_per_worker=1, dashboard_address=':0') as c:\n"
        "        c.submit(abs, -1).result()\n"
    )
    strata("record", script, check=True)
    (run,) = (tmp_path / "runs").iterdir()
    assert is_stored(run)
    assert same(summary_of(open_run(run)), summarize(open_run(run)))


def forged(run: Path, **changes: Any) -> None:
    """Change parts of a summary, with valid checksums."""
    lines = summary_path(run).read_bytes().split(b"\n")[1:-2]
    parts = json.loads(b"{" + b"".join(lines) + b"}")
    for name, change in changes.items():
        parts[name] |= change
    body = ",\n".join(f"{json.dumps(n)}: {json.dumps(p)}" for n, p in parts.items())
    rest = f"{body}\n}}\n".encode()
    summary_path(run).write_bytes(b'{"crc32": %d,\n' % zlib.crc32(rest) + rest)


def _removed(run: Path) -> None:
    summary_path(run).unlink()


def _cut(run: Path) -> None:
    data = summary_path(run).read_bytes()
    summary_path(run).write_bytes(data[: len(data) // 2])


def _changed(run: Path) -> None:
    data = summary_path(run).read_bytes()
    summary_path(run).write_bytes(data.replace(b'"tasks":2', b'"tasks":9'))


def _of_another_version(run: Path) -> None:
    forged(run, head={"version": "0.0.1"}, list={"tasks": 9}, summary={"n_tasks": 9})


def _of_another_format(run: Path) -> None:
    forged(run, head={"format": 99}, list={"tasks": 9}, summary={"n_tasks": 9})


def _of_another_run(run: Path) -> None:
    other = new_run(run.parent.parent / "other")
    scheduler = Process(other, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("c-1", 1, 5, "tcp://w:1"))
    scheduler.end()
    compact(other)
    assert store_summary(other)
    shutil.copy(summary_path(other), summary_path(run))


@pytest.mark.parametrize(
    "harm",
    few(
        [_removed, _cut, _changed, _of_another_version, _of_another_format, _of_another_run],
        always=[_changed],
    ),
)
def test_a_summary_of_something_else_is_computed_again(
    small: Path, computed: list[str], harm: Callable[[Path], None]
) -> None:
    """The answers are right, and the summary is stored again."""
    expected, row = summarize(open_run(small)), list_run(small)
    harm(small)
    assert same(summary_of(open_run(small)), expected)
    assert "summarize" in computed
    assert is_stored(small)
    harm(small)
    assert list_run(small) == row
    assert is_stored(small)
    computed.clear()
    assert same(summary_of(open_run(small)), expected)
    assert list_run(small) == row
    assert computed == []


def test_a_forged_summary_of_valid_form_is_used(small: Path) -> None:
    """The forgery in these tests is one that nothing but the version and files distinguishes."""
    forged(small, list={"tasks": 9})
    assert list_run(small)["tasks"] == 9


def _part(run: Path, table: str = "scheduler_transitions") -> Path:
    return run / "parquet" / table / "part-0.parquet"


def _remove_parquet(run: Path) -> None:
    _part(run).unlink()


def _cut_parquet(run: Path) -> None:
    _part(run).write_bytes(_part(run).read_bytes()[:-100])


def _flip_a_byte(run: Path) -> None:
    data = bytearray(_part(run).read_bytes())
    data[len(data) // 2] ^= 1
    _part(run).write_bytes(bytes(data))


def _replace_by_a_link(run: Path) -> None:
    elsewhere = run.parent.parent / "elsewhere"
    _part(run).rename(elsewhere)
    _part(run).symlink_to(elsewhere)


@pytest.mark.parametrize(
    "harm",
    few([_remove_parquet, _cut_parquet, _flip_a_byte, _replace_by_a_link], always=[_flip_a_byte]),
)
def test_later_damage_is_noticed(small: Path, harm: Callable[[Path], None]) -> None:
    """`show` and `list` show what can still be read, as without a summary."""
    harm(small)
    found = summary_of(open_run(small))
    assert not found.check.ok
    assert found.n_tasks == 0
    assert list_run(small)["tasks"] == 0
    assert not is_stored(small)


def test_a_change_that_keeps_size_and_time_is_noticed_by_show(small: Path) -> None:
    """`show` compares the checksums of all files; a list looks at sizes and times."""
    before = _part(small).stat()
    _flip_a_byte(small)
    os.utime(_part(small), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not summary_of(open_run(small)).check.ok


def test_a_damaged_index_is_noticed(small: Path) -> None:
    """So is an index that cannot be read."""
    (small / "parquet" / "index.json").write_text("{")
    assert not summary_of(open_run(small)).check.ok
    assert not is_stored(small)


def test_a_damaged_manifest_is_the_problem_in_the_list(small: Path) -> None:
    """The reason is in the row of the run."""
    (small / "run.json").write_text("{")
    assert "damaged" in list_run(small)["problem"]


def test_a_copy_has_the_same_answers_without_a_computation(
    small: Path, tmp_path: Path, computed: list[str]
) -> None:
    """A copy has other times: its files are compared by their checksums."""
    copy = Path(shutil.copytree(small, tmp_path / "copy", copy_function=shutil.copyfile))
    assert list_run(copy) == list_run(small) | {"run": "copy"}
    assert summary_of(open_run(copy)).path == str(copy)
    assert computed == []


def test_the_summary_contains_no_path(small: Path) -> None:
    """A run may be sent to others: where its folder was is not in it."""
    assert str(small.parent) not in summary_path(small).read_text()


def test_a_run_that_grew_after_the_compaction_is_computed(tmp_path: Path) -> None:
    """A process that goes on writing adds rows that the summary does not have."""
    run = new_run(tmp_path / "r")
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    rows = life("a-1", 1, 5, "tcp://w:1")
    scheduler.write("scheduler_transitions", rows)
    compact(run)
    stored_before = store_summary(run)
    scheduler.write("scheduler_transitions", life("b-1", 2, 6, "tcp://w:1"))
    scheduler.end()
    assert summary_of(open_run(run)).n_tasks == 2
    assert list_run(run)["tasks"] == 2
    assert stored_before or not summary_path(run).exists()
    assert not store_summary(run)  # its segment has rows that the Parquet lacks
    compact(run)
    assert store_summary(run)
    assert list_run(run)["tasks"] == 2


def test_a_run_that_is_recorded_has_no_summary(tmp_path: Path) -> None:
    """Its answers change without a change of its files, as when its process is killed."""
    run = new_run(tmp_path / "r")
    alive = {"role": "scheduler", "run": Manifest.read(run).run_id, **process_identity()}
    encoder = Encoder("scheduler-1", alive)
    sink = FileSink(run / "segments" / "scheduler-1.seg", encoder.header())
    sink.write(encoder.frame([Batch.of_rows("processes", [{"role": "scheduler"}])]), 1)
    compact(run)
    assert open_run(run).state == "recording"
    assert not store_summary(run)
    assert summary_of(open_run(run)).state == list_run(run)["state"] == "recording"
    assert not summary_path(run).exists()


def test_a_run_with_segments_only_has_no_summary(tmp_path: Path) -> None:
    """Reading does not write into a run that was never finalised."""
    run = small_run(tmp_path / "r")
    before = sorted(run.rglob("*"))
    assert not store_summary(run)
    assert same(summary_of(open_run(run)), summarize(open_run(run)))
    assert list_run(run)["tasks"] == 2
    assert sorted(run.rglob("*")) == before


def test_an_interrupted_compaction_is_not_stored(small: Path) -> None:
    """Neither is the summary beside the leftover used."""
    shutil.copytree(small / "parquet", small / "parquet.old")
    assert not is_stored(small)
    assert not store_summary(small)


def test_other_files_in_the_folder_change_the_size_only(small: Path, computed: list[str]) -> None:
    """A page or a log beside the tables has no influence on the answers."""
    size = list_run(small)["size_bytes"]
    (small / "notes.txt").write_text("12345")
    assert list_run(small)["size_bytes"] == size + 5
    assert computed == []


def test_a_selected_client_and_unaligned_times_are_computed(
    small: Path, computed: list[str]
) -> None:
    """The summary is that of all tasks, with aligned times."""
    forged(small, summary={"n_tasks": 9})
    assert summary_of(open_run(small)).n_tasks == 9
    assert summary_of(open_run(small, align=False)).n_tasks == 2
    assert computed == ["summarize"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_read(small: Path) -> None:
    """The answers are computed each time, without an error."""
    expected = summarize(open_run(small))
    summary_path(small).unlink()
    (small / "parquet").chmod(0o500)
    try:
        assert same(summary_of(open_run(small)), expected)
        assert list_run(small)["tasks"] == 2
        assert not store_summary(small)
    finally:
        (small / "parquet").chmod(0o700)
    assert not summary_path(small).exists()


def test_a_full_disk_leaves_the_old_summary_and_nothing_else(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary is replaced as a whole or not at all."""
    _changed(small)
    before = summary_path(small).read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safe_files.os, "replace", full)
    assert list_run(small)["tasks"] == 2
    assert not store_summary(small)
    assert summary_path(small).read_bytes() == before
    assert [p.name for p in (small / "parquet").iterdir() if p.name.startswith(".")] == []


def test_a_leftover_of_an_interrupted_write_is_ignored(small: Path, computed: list[str]) -> None:
    """A process that was killed while it wrote leaves a hidden file."""
    (small / "parquet" / ".summary.json.0a1b2c3d").write_text('{"crc32"')
    assert list_run(small)["tasks"] == 2
    assert summary_of(open_run(small)).check.ok
    assert computed == []


def test_the_summary_has_the_permissions_of_the_folder(tmp_path: Path) -> None:
    """Who may read the run may read its summary."""
    run = new_run(tmp_path / "r")
    Process(run, "scheduler-1", address="tcp://s:1").end()
    run.chmod(0o750)
    compact(run)
    assert store_summary(run)
    assert stat.S_IMODE(summary_path(run).stat().st_mode) == 0o640


def test_a_comparison_reads_the_summaries(run: Path, small: Path, computed: list[str]) -> None:
    """Two finalised runs are compared without opening their tables."""
    found = [observe(each) for each in (run, small)]
    assert computed == []
    for each in (run, small):
        summary_path(each).unlink()
    expected = [observe(each) for each in (run, small)]
    assert computed.count("compute_comparable") == 2
    assert is_stored(run)
    assert is_stored(small)
    for one, other in zip(found, expected, strict=True):
        assert same(one.values, other.values)
        assert same(one.summary, other.summary)
    path: dict[str, float] = {}
    for part in found[0].values.path:
        path[part.cause] = path.get(part.cause, 0.0) + part.nanoseconds / 1e9
    assert path == pytest.approx(open_run(run).critical_path().seconds)
    groups = make_groups([("A", found[:1]), ("B", found[1:])])
    [contrast] = compare_groups(groups).contrasts
    costs = {e.name: e.first[0] for e in contrast.effects if e.measure == "insight"}
    for insight in open_run(run).insights():
        assert costs[insight.cause] == insight.seconds
    assert "exception" in costs


@pytest.fixture
def many(small: Path) -> Path:
    """A folder with fifty finalised runs."""
    for number in range(49):
        shutil.copytree(small, small.with_name(f"copy-{number}"))
    return small.parent


def test_a_list_of_finalised_runs_imports_nothing_heavy(many: Path) -> None:
    """The imports would take longer than the list of a thousand runs."""
    program = (
        "import sys\n"
        "from dask_strata.cli import cli\n"
        f"cli.main(['list', {str(many)!r}], standalone_mode=False)\n"
        "heavy = {'duckdb', 'pyarrow', 'pandas', 'numpy', 'distributed', 'dask'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "50 runs; next" in done.stderr
    assert len(done.stdout.splitlines()) == 51
    assert list_runs(many).num_rows == 50


def test_the_first_screen_of_a_finalised_run_opens_no_table(small: Path) -> None:
    """The files of the run are read for their checksums only."""
    opened = open_run(small)
    summary_of(opened)
    assert not opened.is_read
    assert Manifest.read(small).created_ns == T0

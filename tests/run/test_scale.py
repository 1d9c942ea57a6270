"""Short forms of the benchmarks with many tasks and many workers, and their invariants."""

import subprocess
import sys
from pathlib import Path

import pytest

from dask_strata import open_run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import soak  # noqa: E402
import thousand  # noqa: E402

pytestmark = pytest.mark.long

TASKS = 2_500


@pytest.fixture(scope="module")
def many_workers(tmp_path_factory):
    return thousand.write(tmp_path_factory.mktemp("many"), workers=40, tasks=50)


@pytest.fixture(scope="module")
def soaked(tmp_path_factory):
    """The samples of a short soak, and the folder of its run."""
    runs = tmp_path_factory.mktemp("soak") / "runs"
    samples = soak.side("recorded", runs, TASKS, 0, "--mapped", "200")
    (run,) = (path.parent for path in runs.glob("*/run.json"))
    return samples, run


def dask_strata(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dask_strata", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_of_many_workers_is_the_same_before_and_after_compaction(many_workers):
    def answers():
        found = dask_strata("check", many_workers)
        assert found.returncode == 0, found.stdout
        with_tasks = "select worker, n_attempts from workers order by worker"
        return open_run(many_workers).sql(with_tasks).to_arrow().to_pylist()

    before = answers()
    assert [row["n_attempts"] for row in before] == [50] * 40
    assert dask_strata("compact", many_workers).returncode == 0
    assert not list(many_workers.glob("segments/*.seg"))
    assert answers() == before


def test_seconds_of_many_workers_with_equal_work_add_up(many_workers):
    from dask_strata.analysis.breakdown import breakdown

    spent = breakdown(open_run(many_workers))
    assert spent.seconds["compute"] == pytest.approx(40 * 50 * 0.01)
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)


@pytest.mark.parametrize("role", soak.ROLES)
def test_descriptors_and_threads_are_flat_while_it_is_recorded(soaked, role):
    samples = soaked[0]
    for resource in ("fds", "threads"):
        counts = [soak.largest(s, role, resource) for s in samples]
        # Connections between workers are opened and closed; a leak grows with each batch.
        assert counts[-1] <= max(counts[: len(counts) // 2]) + 5, (resource, counts)


def test_a_soaked_run_is_whole_and_every_task_is_on_record(soaked):
    samples, run = soaked
    found = dask_strata("check", run)
    assert found.returncode == 0, found.stdout
    (row,) = open_run(run).sql("select count(*) as n from tasks").to_arrow().to_pylist()
    assert row["n"] == samples[-1]["tasks"]

"""Workers with another dask-strata than the scheduler, without one, or with another Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import assert_whole, rows
from tests.support.deployment import PRELOAD, Deployment, workers_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

#: Commits of the first version, and of one whose record this version reads; both unreleased.
FIRST, EARLY = "c652966", "8ff500d"

#: Hides the installed package from a Python.
HIDE = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dask_strata":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""


def tree(commit: str, folder: Path) -> Path:
    """Return a folder with the package as of a commit, to import it from."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"there is no history here: {done.stderr.decode(errors='replace')}")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
    return folder / "src"


@contextmanager
def imports_from(deployment: Deployment, folder: Path) -> Iterator[None]:
    """Make the processes that are started meanwhile import from a folder first."""
    deployment.environment["PYTHONPATH"] = str(folder)
    yield
    del deployment.environment["PYTHONPATH"]


def compute(deployment: Deployment, n_workers: int) -> dict[str, str]:
    """Execute tasks on each worker, with an unrecorded client; return the addresses by name."""
    with deployment.client() as client:
        client.wait_for_workers(n_workers)
        addresses = workers_of(client)
        for name in addresses:
            futures = [client.submit(pow, i, 2, key=f"{name}-{i}", workers=name) for i in range(5)]
            assert client.gather(futures) == [0, 1, 4, 9, 16]
    return addresses


def warnings(deployment: Deployment) -> int:
    return deployment.output().count("dask-strata does not record")


def test_a_worker_without_the_package_works_and_is_reported(deployment: Deployment) -> None:
    """It warns once, `check` reports it with the reason, and the others are recorded."""
    deployment.scheduler(*PRELOAD)
    deployment.worker("--name", "with")
    hidden = deployment.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE)
    with imports_from(deployment, hidden):
        deployment.worker("--name", "without")
    addresses = compute(deployment, 2)
    run = deployment.run()
    assert warnings(deployment) == 1, deployment.output()
    assert "Traceback" not in deployment.output()
    (missing,) = run.check().missing
    assert missing.text == (
        f"worker {addresses['without']} (without) is not recorded: dask-strata cannot be imported "
        "there; the scheduler recorded 5 attempts on it"
    )
    found = rows(run, "select role, name from processes where role <> 'scheduler' order by role")
    assert found == [{"role": "nanny", "name": "with"}, {"role": "worker", "name": "with"}]
    assert len(rows(run, "select * from attempts")) == 10


def test_workers_with_early_versions_work(deployment: Deployment) -> None:
    """They are recorded by their own version."""
    deployment.scheduler(*PRELOAD)
    deployment.worker("--name", "new")
    for name, commit in (("first", FIRST), ("early", EARLY)):
        with imports_from(deployment, tree(commit, deployment.folder / name)):
            deployment.worker("--name", name, "--no-nanny")
    compute(deployment, 3)
    run = deployment.run()
    assert_whole(run)
    by = rows(run, "select name, process, dask_strata as by from processes where role = 'worker'")
    names = {"new": False, "first": True, "early": True}
    assert {row["name"]: row["by"] is None for row in by} == names
    notes = [f for f in run.check().findings if f.severity == "note"]
    assert {f.process for f in notes} == {row["process"] for row in by if row["by"] is None}
    assert all(f.text.startswith("was recorded by an early dask-strata") for f in notes)
    assert len(rows(run, "select * from attempts")) == 15


def test_an_early_scheduler_records_workers_of_this_version(deployment: Deployment) -> None:
    """The pickle of its plugin, which contains code, still works."""
    early = tree(EARLY, deployment.folder)
    with imports_from(deployment, early):
        deployment.scheduler(*PRELOAD)
    deployment.worker("--name", "new")
    compute(deployment, 1)
    run = deployment.run()
    assert_whole(run)
    assert warnings(deployment) == 0, deployment.output()
    roles = rows(run, "select role, dask_strata is null as early from processes")
    assert {row["role"]: row["early"] for row in roles} == {
        "scheduler": True,
        "nanny": False,
        "worker": False,
    }


def other_pythons() -> list[str]:
    """Return Pythons of other versions on the path, or in a variable, that have distributed."""
    names = [f"python3.{minor}" for minor in range(10, 16) if minor != sys.version_info.minor]
    found = [path for name in names if (path := shutil.which(name)) is not None]
    found += os.environ.get("OTHER_PYTHONS", "").split(os.pathsep)
    probe = "import distributed, sys; sys.exit(sys.version_info[:2] == %r)"
    check = ("-c", probe % (tuple(sys.version_info[:2]),))
    return [
        path
        for path in found
        if path and not subprocess.run([path, *check], capture_output=True, check=False).returncode
    ]


@pytest.mark.parametrize("package", [True, False])
def test_a_worker_with_another_python_works(deployment: Deployment, *, package: bool) -> None:
    """The plugin contains no bytecode of another interpreter, which could crash the worker."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python here has distributed; name one in OTHER_PYTHONS")
    deployment.scheduler(*PRELOAD)
    at: tuple[Any, ...] = ("--scheduler-file", deployment.file, "--nthreads", 1)
    ports = ("--dashboard-address", ":0", "--local-directory", deployment.folder / "other")
    with imports_from(deployment, ROOT / "src" if package else deployment.folder / "nothing"):
        deployment.start(
            pythons[0], "-m", "distributed.cli.dask_worker", *at, *ports, "--name", "other"
        )
    compute(deployment, 1)
    run = deployment.run()
    assert "SIGSEGV" not in deployment.output()
    assert "Restarting worker" not in deployment.output()
    recorded = rows(run, "select python from processes where role = 'worker'")
    reported = [f.text for f in run.check().missing if "(other) is not recorded" in f.text]
    assert len(recorded) + len(reported) == 1, (deployment.output(), run.check().findings)
    assert package or reported

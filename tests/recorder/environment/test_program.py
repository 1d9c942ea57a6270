"""Runs are named by the program of the client: its script, module or notebook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from dask_strata.analysis.list import list_run
from dask_strata.report.page.page import make_page
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.deployment import PRELOAD, Deployment
from tests.support.notebooks import notebook_of

PRINT = """
import json
from dask_strata.recorder.environment.program import program
print(json.dumps(program()[:2]))
"""

CLIENT = """
import sys
from distributed import Client
if __name__ == "__main__":
    with Client(scheduler_file=sys.argv[1]) as client:
        print(client.submit(sum, [1, 2]).result())
"""

#: Names that say nothing about the user's program.
EMPTY = ("scheduler", "dask", "spec", "ipykernel", "worker", "mpirun", "main", "launcher")


def printed_by(folder: Path, *command: Any, **environment: str) -> subprocess.Popen[str]:
    """Start a command in a folder, with its output as text."""
    return subprocess.Popen(
        [*map(str, command)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_program_of_a_process(tmp_path: Path) -> None:
    """A script, module, folder or command is known by its name, also below a profiler."""
    strange = os.fsdecode("späße & 'x' \n".encode() + b"\xff.py")
    for name in ("work.py", "dask-work.py", "analyse", "dask-scheduler", "jupyter-lab", strange):
        (tmp_path / name).write_text(PRINT, encoding="utf-8")
    for name in ("package/__init__.py", "package/step.py", "package/__main__.py", "dask_mpi.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if "__init__" in name else PRINT, encoding="utf-8")
    shutil.copytree(tmp_path / "package", tmp_path / "no package")
    python = sys.executable
    expected = {
        (python, "work.py"): ("script", "work"),
        (python, "dask-work.py"): ("script", "dask-work"),
        (python, "analyse"): ("script", "analyse"),
        (python, strange): ("script", "späße & 'x' \n\\xff"),
        (python, "-m", "package.step"): ("module", "step"),
        (python, "-m", "package"): ("module", "package"),
        (python, "no package"): ("script", "no package"),
        (python, "-m", "cProfile", "-o", "profile", "work.py"): ("script", "work"),
        (python, "-c", PRINT): ("interactive", "interactive"),
        (python, "-m", "IPython", "--simple-prompt", "-c", PRINT): ("interactive", "ipython"),
        (python, "-m", "IPython", "--simple-prompt", "work.py"): ("script", "work"),
        (python, "dask-scheduler"): ("script", None),
        (python, "jupyter-lab"): ("script", None),
        (python, "-m", "dask_mpi"): ("module", None),
    }
    started = [printed_by(tmp_path, *command) for command in expected]
    for process, (command, wanted) in zip(started, expected.items(), strict=True):
        output, errors = process.communicate(timeout=120)
        assert output, (command, errors)
        assert tuple(json.loads(output.splitlines()[-1])) == wanted, command


@pytest.mark.release
@pytest.mark.long
def test_a_scheduler_started_on_its_own_has_the_name_of_the_script(
    deployment: Deployment, script: Callable[..., Path]
) -> None:
    """Until a client is recorded its run is called "cluster"; then it has the script's name."""
    deployment.scheduler(*PRELOAD)
    deployment.worker()
    [run] = wait_until(lambda: runs_in(deployment.runs), what="the run")
    assert run.name == "cluster"
    for name in ("first one.py", "second.py"):
        done = printed_by(
            deployment.folder,
            *(sys.executable, script(CLIENT, name), deployment.file),
            DASK_DISTRIBUTED__CLIENT__PRELOAD="dask_strata",
        )
        assert done.communicate(timeout=60)[0] == "3\n"
    run = deployment.run()
    assert_whole(run)
    assert run.name == "first one"
    assert "-cluster-" in run.path.name
    assert list_run(run.path)["name"] == "first one"
    assert "first one" in repr(run)
    assert "<title>first one" in make_page(run)


@pytest.mark.long
def test_a_chosen_name_stays(deployment: Deployment, script: Callable[..., Path]) -> None:
    """The setting `name` counts more than the client's script."""
    deployment.environment["DASK_DASK_STRATA__NAME"] = "chosen"
    deployment.scheduler(*PRELOAD)
    deployment.worker()
    done = printed_by(
        deployment.folder,
        *(sys.executable, script(CLIENT), deployment.file),
        DASK_DISTRIBUTED__CLIENT__PRELOAD="dask_strata",
    )
    assert done.communicate(timeout=60)[0] == "3\n"
    assert deployment.run().name == "chosen"


CLUSTER_CELL = """
from distributed import Client
with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
    def total():
        return client.submit(sum, [1, 2]).result()
    print(total())
"""


@pytest.mark.long
def test_a_notebook_that_jupyter_executes_has_its_name(tmp_path: Path, runs: Path) -> None:
    """The kernel of `jupyter execute` has no variable with the name: its parent's command has."""
    notebook = tmp_path / "My analysis.ipynb"
    nbformat.write(notebook_of("1 + 1", CLUSTER_CELL), notebook)
    done = printed_by(
        tmp_path,
        *(Path(sys.executable).with_name("jupyter-execute"), notebook.name),
        DASK_DISTRIBUTED__SCHEDULER__PRELOAD="dask_strata",
        DASK_DISTRIBUTED__CLIENT__PRELOAD="dask_strata",
        DASK_DASK_STRATA__RUNS=str(runs),
    )
    _, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors
    [run] = runs_in(runs)
    assert_whole(run)
    assert run.name == run.manifest.name == "My analysis"
    assert (run.script["kind"], run.script["path"]) == ("notebook", str(notebook))
    assert "print(total())" in run.script["text"]
    assert "n_workers=1" in make_page(run)
    [sent] = run.sql("select cell, cell_code, code, function from graphs").to_arrow().to_pylist()
    assert sent["cell"] == 2
    assert sent["cell_code"] == CLUSTER_CELL.strip()
    assert sent["function"] == "total"


@pytest.mark.long
def test_a_cell_of_ipython_is_on_record(tmp_path: Path) -> None:
    """IPython's own command, a script outside the installed packages, is not taken for a cell."""
    command = tmp_path / "ipython"
    command.write_text("import IPython\nIPython.start_ipython()\n", encoding="utf-8")
    cells = (
        "import dask_strata, distributed",
        "client = distributed.Client(n_workers=1, processes=False, dashboard_address=':0')",
        "recording = dask_strata.record('runs', client=client)",
        "with recording: client.submit(sum, [1, 2]).result()",
        "",
        "client.close()",
    )
    done = subprocess.run(
        [sys.executable, command, "--simple-prompt", "--no-confirm-exit"],
        cwd=tmp_path,
        input="\n".join(cells) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "profile")},
    )
    found = runs_in(tmp_path / "runs")
    assert len(found) == 1, done.stdout + done.stderr
    sent = rows(found[0], "select cell, cell_code from client_submissions")
    assert sent == [{"cell": 4, "cell_code": cells[3]}]

"""``%%strata`` in a real kernel records one cell and shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")

from dask_strata import Run
from tests.conftest import assert_whole, rows, runs_in
from tests.support.notebooks import outputs_of, printed, shown

pytestmark = pytest.mark.long

CELLS = {
    "load": "%load_ext dask_strata",
    "no client": "%%strata runs\n6 * 7",
    "own client": """%%strata runs
from distributed import Client
client = Client(n_workers=1, threads_per_worker=1, dashboard_address=":0")
""",
    "recorded": """%%strata --name "my cell" --run recorded runs
print("printed")
x = client.submit(len, "four").result()
x + 1""",
    "after": """found = recorded.sql("select cell, line from graphs").to_arrow().to_pylist()
x, recorded.path.parent.name, found""",
    "failed": """%%strata -q runs
y = client.submit(sum, [1, 2]).result()
[][0]""",
    "after failed": "y",
    "no code": "%%strata --no-code -q runs\nz = client.submit(sum, [3, 4]).result()",
    "not recorded": """%%strata --run recorded /dev/null/runs
client.submit(abs, -8).result()""",
    "after not recorded": "recorded",
    "wrong option": "%%strata --nope\nnever = 1",
    "wrong syntax": "%%strata runs\ndef f(:",
    "await": "%%strata runs\nawait client",
    "asynchronous": """from distributed import Client
other = await Client(client.scheduler.address, asynchronous=True)
""",
    "asynchronous client": "%%strata runs\n1 + 1",
    "end": "await other.close()\nclient.close(); client.cluster.close()\n'never' in dir()",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a kernel, and the outputs of its cells."""
    folder = tmp_path_factory.mktemp("session")
    outputs = outputs_of(folder, *CELLS.values(), JPY_SESSION_NAME="work/Analysis 7.ipynb")
    return folder, dict(zip(CELLS, outputs, strict=True))


def key_of(run: Run) -> str:
    """Return the key of the only task of a run."""
    [row] = rows(run, "select key from tasks")
    return row["key"]


@pytest.fixture
def text(session: tuple[Path, dict[str, Any]]) -> Callable[[str], str]:
    """Return the printed text of a cell."""
    return lambda name: printed(session[1][name])


def test_a_cell_is_recorded_and_shown(session: tuple[Path, dict[str, Any]]) -> None:
    """Its own output and value come first, then its run; names stay in the namespace."""
    folder, outputs = session
    assert printed(outputs["recorded"]) == "printed\n"
    assert shown(outputs["recorded"])[0] == "5"
    [html] = shown(outputs["recorded"], "text/html")
    assert "my cell" in html
    assert shown(outputs["after"]) == ["(4, 'runs', [{'cell': 4, 'line': 2}])"]
    [run] = [run for run in runs_in(folder / "runs") if run.name == "my cell"]
    assert_whole(run)
    assert len(run.tasks) == 1


def test_an_exception_is_shown_once_and_its_run_is_kept(
    session: tuple[Path, dict[str, Any]],
) -> None:
    """The traceback contains the cell's lines only, and ends the notebook as usual."""
    folder, outputs = session
    [error] = outputs["failed"]
    assert (error.output_type, error.ename) == ("error", "IndexError")
    assert "----> 3 [][0]" in printed([error]) or "----> 2 [][0]" in printed([error])
    assert "magic" not in printed([error])
    assert shown(outputs["after failed"]) == ["3"]
    runs = {run.name: run for run in runs_in(folder / "runs")}
    assert_whole(runs["Analysis 7"])


def test_runs_have_the_name_of_the_notebook_and_the_text_of_the_cell(
    session: tuple[Path, dict[str, Any]],
) -> None:
    """A submission has the whole cell as it was written, unless code is left out."""
    folder, _ = session
    found = [run for run in runs_in(folder / "runs") if run.name == "Analysis 7"]
    found.sort(key=lambda run: rows(run, "select cell from client_submissions")[0]["cell"])
    sent = [rows(run, "select cell, cell_code, code from client_submissions") for run in found]
    assert sent == [
        [{"cell": 6, "cell_code": CELLS["failed"], "code": CELLS["failed"].splitlines()[1]}],
        [{"cell": 8, "cell_code": None, "code": None}],
    ]
    assert {run.script["path"] for run in found} == {"work/Analysis 7.ipynb"}
    assert {run.script["kind"] for run in found} == {"notebook"}
    with_code, without = found
    story = str(with_code.task(key_of(with_code)))
    assert "cell [6]" in story
    assert "[][0]" in story
    assert "[][0]" not in str(without.task(key_of(without)))


def test_one_line_states_why_a_cell_is_not_recorded(text: Callable[[str], str]) -> None:
    """Without a client, and with one that the cell starts or that is asynchronous, it runs."""
    for name in ("no client", "own client"):
        assert text(name).startswith("dask-strata: the cell was not recorded")
        assert "create it in an earlier cell" in text(name)
        assert text(name).count("\n") == 1
    assert "asynchronous" in text("asynchronous client")


def test_a_recording_that_cannot_start_is_one_line(session: tuple[Path, dict[str, Any]]) -> None:
    """The cell has its value, and its variable is not an earlier cell's run."""
    outputs = session[1]["not recorded"]
    assert shown(outputs) == ["8"]
    [line] = printed(outputs).splitlines()
    assert line.startswith("dask-strata does not record: This process cannot write /dev/null/runs")
    [variable] = shown(session[1]["after not recorded"])
    assert variable.startswith("<not recorded: This process cannot write /dev/null/runs")


def test_a_cell_that_is_not_recorded_has_its_value(session: tuple[Path, dict[str, Any]]) -> None:
    """It runs as if the magic was not there."""
    assert shown(session[1]["no client"]) == ["42"]
    assert shown(session[1]["asynchronous client"]) == ["2"]


def test_wrong_use_is_one_line_and_runs_nothing(session: tuple[Path, dict[str, Any]]) -> None:
    """An unknown option, `await` and an error in the syntax end the cell before it starts."""
    folder, outputs = session
    assert printed(outputs["wrong option"]).startswith("UsageError: %%strata: No such option")
    assert printed(outputs["await"]).startswith("UsageError: %%strata cannot run")
    assert "SyntaxError" in printed(outputs["wrong syntax"])
    assert shown(outputs["end"]) == ["False"]
    assert len(runs_in(folder / "runs")) == 3

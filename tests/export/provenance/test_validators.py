"""Run Crates, checked by roc-validator and runcrate in environments of their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dask_strata
from tests.export.provenance.conftest import flow, hostile_run
from tests.export.provenance.test_ro_crate import METADATA, as_list
from tests.support.own_venv import own_environment, own_venv
from tests.support.synthetic import Process, new_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

VALIDATE = Path(__file__).with_name("validate_crates.py")

SCRIPT = """
import argparse
from pathlib import Path

from distributed import Client, LocalCluster


def load(path):
    return Path(path).read_text()


def save(texts, path):
    Path(path).write_text("".join(texts))
    return len(texts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    folder = Path(parser.parse_args().folder)
    with LocalCluster(n_workers=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        texts = [client.submit(load, str(path)) for path in sorted(folder.glob("*.txt"))]
        print(client.submit(save, texts, str(folder / "the result")).result())
"""


def validated(*crates: Path, severity: str = "REQUIRED") -> list[list[tuple[str, str, str]]]:
    """Return the issues that roc-validator finds in each crate."""
    python = own_venv("roc-validator", ["roc-validator==0.13.*", "rocrate==0.13.0"])
    command = [str(python), str(VALIDATE), severity, *map(str, crates)]
    done = subprocess.run(
        command,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [[tuple(issue) for issue in found[str(each)]] for each in crates]


def export(run: Path, folder: Path, *options: str) -> Path:
    """Write a crate."""
    dask_strata.open_run(run).export(folder, to="ro-crate", options=options)
    return folder


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a script that reads and writes files, recorded by the command."""
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "script.py").write_text(SCRIPT)
    for name in ("a b.txt", "é.txt"):
        (folder / name).write_text(name)
    command = [sys.executable, "-m", "dask_strata", "record", "-o", "runs"]
    command += ["script.py", "--folder", str(folder)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=200)
    (run,) = [path for path in (folder / "runs").iterdir() if path.is_dir()]
    return run


def test_crates_have_no_required_issue(scripted: Path, eventful: Path, tmp_path: Path) -> None:
    """Of a recorded script in all forms, of failures, hostile texts, no code and no tasks."""
    empty = new_run(tmp_path / "empty")
    Process(empty, "scheduler-1", address="tcp://s:1").end()
    runs = {
        "script": (scripted, ()),
        "everything": (scripted, ("tasks", "tables")),
        "eventful": (eventful, ()),
        "hostile": (hostile_run(tmp_path / "hostile"), ()),
        "hostile-tasks": (tmp_path / "hostile", ("tasks",)),
        "no-code": (flow(tmp_path / "flow", ["/in a"], "/out", text=None), ()),
        "empty": (empty, ("tasks",)),
    }
    crates = [export(run, tmp_path / f"{name}-crate", *how) for name, (run, how) in runs.items()]
    assert dict(zip(runs, validated(*crates), strict=True)) == {name: [] for name in runs}


def _drop(entity: str, name: str) -> Callable[[Path, dict[str, Any]], None]:
    def fault(_: Path, graph: dict[str, Any]) -> None:
        del graph[entity][name]

    return fault


def _no_script(folder: Path, graph: dict[str, Any]) -> None:
    (folder / graph["./"]["mainEntity"]["@id"]).unlink()


def _no_profile(_: Path, graph: dict[str, Any]) -> None:
    profiles = graph["./"]["conformsTo"]
    graph["./"]["conformsTo"] = [each for each in profiles if "provenance" not in each["@id"]]


def _no_step(_: Path, graph: dict[str, Any]) -> None:
    graph["#control-load"]["instrument"] = {"@id": "#tool-load"}


def _no_tools(_: Path, graph: dict[str, Any]) -> None:
    del graph[graph["./"]["mainEntity"]["@id"]]["hasPart"]


#: Faults, and words of the requirement that each breaks.
FAULTS = {
    "license": (_drop("./", "license"), "license"),
    "date": (_drop("./", "datePublished"), "datePublished"),
    "instrument": (_drop("#action-load", "instrument"), "instrument"),
    "step": (_no_step, "HowToStep"),
    "tools": (_no_tools, "hasPart"),
    "work": (_drop("#step-load", "workExample"), "workExample"),
    "usage": (_drop("#compute-seconds-load", "propertyID"), "propertyID"),
    "profile": (_no_profile, "Provenance Run Crate profile"),
    "script": (_no_script, "script"),
}


def test_planted_faults_are_found(scripted: Path, tmp_path: Path) -> None:
    """So that no issue means that the validator looked."""
    good = export(scripted, tmp_path / "good")
    for name, (fault, _) in FAULTS.items():
        folder = Path(shutil.copytree(good, tmp_path / name))
        document = json.loads((folder / METADATA).read_text(encoding="utf-8"))
        fault(folder, {entity["@id"]: entity for entity in document["@graph"]})
        (folder / METADATA).write_text(json.dumps(document), encoding="utf-8")
    found = validated(*(tmp_path / name for name in FAULTS))
    for issues, (name, (_, words)) in zip(found, FAULTS.items(), strict=True):
        assert any(words in message for _, _, message in issues), (name, issues)
        assert {severity for severity, _, _ in issues} == {"REQUIRED"}


def test_few_recommendations_are_not_followed(scripted: Path, tmp_path: Path) -> None:
    """Tools are prefixes: they have neither home page nor version; the author is not known."""
    (issues,) = validated(export(scripted, tmp_path / "crate"), severity="RECOMMENDED")
    left = {message for _, _, message in issues if "README" not in message}
    allowed = ("url", "version", "absolute URI", "author", "publisher", "encodingFormat")
    assert [message for message in left if not any(word in message for word in allowed)] == []


@pytest.mark.parametrize("options", [(), ("tasks",)], ids=["prefixes", "tasks"])
def test_runcrate_reports_what_sql_counts(
    options: tuple[str, ...], scripted: Path, tmp_path: Path
) -> None:
    """The run's action and those of prefixes or tasks, with their files."""
    crate = export(scripted, tmp_path / "crate", *options)
    runcrate = own_venv("runcrate", ["runcrate==0.6.2"]).with_name("runcrate")
    command = [str(runcrate), "report", str(crate)]
    done = subprocess.run(
        command, env=own_environment(), capture_output=True, text=True, check=True
    )
    run = dask_strata.open_run(scripted)
    counted = "count(*)" if options else "count(distinct prefix)"
    (row,) = (
        run.sql(f"select {counted} as n from tasks where n_attempts > 0").to_arrow().to_pylist()
    )
    reports = [text for text in done.stdout.split("action: ") if text]
    assert len(reports) == 1 + row["n"]
    (main,) = [text for text in reports if text.startswith("#run\n")]
    inputs, _, outputs = main.partition("outputs:")
    modes = run.sql("select distinct uri, mode from task_inputs").to_arrow().to_pylist()
    reads = {row["uri"] for row in modes if row["mode"] == "read"}
    assert len(reads) == 2
    assert len(re.findall("<- #input-files", inputs)) == len(reads)
    assert len(re.findall("<- #output-files", outputs)) == 1
    steps = re.findall("step: (#step-[^\n]+)", done.stdout)
    assert len(steps) == row["n"]
    assert as_list(steps)

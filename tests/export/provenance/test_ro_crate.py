"""What Run Crates contain; `test_validators.py` has programs of others that check them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dask_strata
from dask_strata.cli import cli
from dask_strata.errors import UsageError
from dask_strata.export.export import export
from tests.export.provenance.conftest import flow
from tests.support.synthetic import SECOND, T0, Process, new_run

pytestmark = pytest.mark.long

METADATA = "ro-crate-metadata.json"


def crate(run: Path, folder: Path, *options: str, **values: str) -> dict[str, dict[str, Any]]:
    """Write a crate; return its entities by identifier."""
    done = export(dask_strata.open_run(run), "ro-crate", folder, options=options, values=values)
    found = entities(folder)
    for note in done.notes:
        assert note in found["./"]["description"]
    return found


def entities(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the entities of a crate, none of which is there twice."""
    graph = json.loads((folder / METADATA).read_text(encoding="utf-8"))["@graph"]
    found = {entity["@id"]: entity for entity in graph}
    assert len(found) == len(graph)
    return found


def of_type(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the entities of a type."""
    return [e for e in found.values() if kind in as_list(e["@type"])]


def as_list(value: Any) -> list[Any]:
    """Return a value of JSON-LD, which may be one or several, as a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def ids(value: Any) -> set[str]:
    """Return the identifiers of references."""
    return {each["@id"] for each in as_list(value)}


def by_name(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the entity of a file outside of the crate."""
    return next(e for e in found.values() if e.get("name") == path.name)


def test_a_run_is_described(recorded: Path, files: list[Path], tmp_path: Path) -> None:
    """Script, files with hashes, tools, steps, agents, settings and actions."""
    found = crate(recorded, tmp_path / "crate")
    root = found["./"]
    script = found[root["mainEntity"]["@id"]]
    assert (tmp_path / "crate" / script["@id"]).read_text() == "print()"
    assert script["name"] == "my_flow.py"
    assert ids(script["hasPart"]) == {"#tool-load", "#tool-sum", "#tool-save"}
    positions = {step["name"]: step["position"] for step in of_type(found, "HowToStep")}
    assert positions == {"load": "1", "sum": "2", "save": "3"}
    for path in files:
        entity = by_name(found, path)
        assert entity["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert entity["contentSize"] == str(path.stat().st_size)
        assert entity["@id"] in ids(root["hasPart"])
    load, save = found["#action-load"], found["#action-save"]
    assert ids(load["object"]) == {by_name(found, path)["@id"] for path in files[:3]}
    assert ids(save["result"]) == {by_name(found, files[3])["@id"], "#results-save"}
    assert ids(found["#action-sum"]["object"]) == {"#results-load", "#results-data"}
    assert ids(found["#run"]["result"]) == {by_name(found, files[3])["@id"], "#results-save"}
    (user,) = of_type(found, "Person")
    assert user["name"] == "jo <b>"
    assert {ids(found[each]["agent"]).pop() for each in ("#run", "#action-load")} == {user["@id"]}
    versions = {
        (e["name"], e.get("softwareVersion")) for e in of_type(found, "SoftwareApplication")
    }
    assert {("Python", "3.12"), ("dask", "1.2"), ("dask", "1.3")} <= versions
    values = {e["name"]: e["value"] for e in of_type(found, "PropertyValue")}
    assert values["a.b"] == '"c"'
    assert values["cpu seconds of save"] == "0.5"
    assert (tmp_path / "crate" / "requirements.txt").read_text() == "numpy==2.0\n"


def test_all_references_lead_to_entities(recorded: Path, tmp_path: Path) -> None:
    """Except those to vocabularies and web pages."""
    for options in ((), ("tasks",)):
        found = crate(recorded, tmp_path / f"crate{len(options)}", *options)
        references = {
            each["@id"]
            for entity in found.values()
            for value in entity.values()
            for each in as_list(value)
            if isinstance(each, dict)
        }
        outside = {each for each in references - found.keys() if not each.startswith("https://")}
        assert outside == set()


def test_changed_files_are_said_and_not_hashed(
    recorded: Path, files: list[Path], tmp_path: Path
) -> None:
    """Changed after they were read, or missing."""
    files[0].write_text("changed")  # now, which is after the run
    files[1].unlink()
    os.utime(files[3], (T0 / SECOND + 3600, T0 / SECOND + 3600))
    found = crate(recorded, tmp_path / "crate")
    for path in (files[0], files[3]):
        assert "Changed since the run" in by_name(found, path)["description"]
        assert "sha256" not in by_name(found, path)
    assert "Not at hand" in by_name(found, files[1])["description"]
    assert "sha256" in by_name(found, files[2])
    assert "changed since the run are not hashed: 2." in found["./"]["description"]
    assert "not at hand have no hash: 1." in found["./"]["description"]


def test_a_file_of_another_size_was_changed(tmp_path: Path) -> None:
    """Even if its time is older than the run."""
    path = tmp_path / "in"
    path.write_text("four")
    os.utime(path, (T0 / SECOND - 60, T0 / SECOND - 60))
    run = flow(tmp_path / "run", [str(path)], str(tmp_path / "out"))
    worker = Process(run, "worker-2", address="tcp://w:2")
    worker.write("file_opens", [{"key": "x", "uri": str(path), "mode": "read", "file_bytes": 5}])
    worker.end()
    assert "Changed" in by_name(crate(run, tmp_path / "crate"), path)["description"]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """A pipe has no reader meanwhile; folders, devices and links to them are described."""
    pipe, folder, link = tmp_path / "pipe", tmp_path / "folder", tmp_path / "link"
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to("/dev/zero")
    run = flow(tmp_path / "run", [str(pipe), "/dev/zero", str(folder), str(link)], "s3://b/o u")
    writer = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_WRONLY)), daemon=True)
    writer.start()
    found = crate(run, tmp_path / "crate")
    assert writer.is_alive()  # it waits for a reader
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    writer.join(30)
    assert by_name(found, folder)["@type"] == "Dataset"
    assert by_name(found, folder)["@id"].endswith("/folder/")
    assert found["s3://b/o%20u"]["name"] == "o u"
    hashed = [e["@id"] for e in found.values() if e["@id"].startswith("file:") and "sha256" in e]
    assert hashed == []


def test_hashes_can_be_left_out(recorded: Path, files: list[Path], tmp_path: Path) -> None:
    """The files are described."""
    found = crate(recorded, tmp_path / "crate", "no-hashes")
    assert "sha256" not in by_name(found, files[0])
    assert by_name(found, files[0])["contentSize"] == str(files[0].stat().st_size)


def test_tasks_are_actions_by_choice(eventful: Path, tmp_path: Path) -> None:
    """An action for each life of a key with an attempt; each used what it depends on."""
    found = crate(eventful, tmp_path / "crate", "tasks")
    run = dask_strata.open_run(eventful)
    rows = run.sql("select key, life, state from tasks where n_attempts > 0").to_arrow().to_pylist()
    tasks = [e for e in of_type(found, "CreateAction") if e["@id"] != "#run"]
    assert sorted(e["name"] for e in tasks) == sorted(row["key"] for row in rows)
    failed = [e["name"] for e in tasks if e.get("actionStatus", "").endswith("FailedActionStatus")]
    assert failed == ["failed"] == [row["key"] for row in rows if row["state"] == "erred"]
    assert len(ids(found["#task-total"]["object"])) == 40
    assert {"#task-again", "#task-again.life2"} <= found.keys()
    controlled = [each for e in of_type(found, "ControlAction") for each in ids(e["object"])]
    assert sorted(controlled) == sorted(e["@id"] for e in tasks)


def test_tables_are_inside_by_choice(recorded: Path, tmp_path: Path) -> None:
    """As Parquet with the rows of the run, each described with its hash."""
    found = crate(recorded, tmp_path / "crate", "tables")
    rows = pq.read_table(tmp_path / "crate" / "tables" / "tasks.parquet").num_rows
    assert rows == len(dask_strata.open_run(recorded).tasks)
    entity = found["tables/tasks.parquet"]
    data = (tmp_path / "crate" / "tables" / "tasks.parquet").read_bytes()
    assert entity["sha256"] == hashlib.sha256(data).hexdigest()
    assert "tables/" in ids(found["./"]["hasPart"])


def test_the_license_is_the_users_choice(recorded: Path, tmp_path: Path) -> None:
    """Without one, the crate states that none was chosen; text that is no URL is refused."""
    assert "No license" in crate(recorded, tmp_path / "none")["#license"]["name"]
    url = "https://spdx.org/licenses/CC-BY-4.0"
    command = ["export", str(recorded), "--to", "ro-crate", "-o", str(tmp_path / "by")]
    done = CliRunner().invoke(cli, [*command, "--license", url])
    assert done.exit_code == 0, done.output
    assert entities(tmp_path / "by")["./"]["license"] == {"@id": url}
    with pytest.raises(UsageError, match="not a URL"):
        crate(recorded, tmp_path / "x", license="CC BY")
    assert not (tmp_path / "x").exists()


def test_without_the_text_of_the_script_its_steps_are_the_workflow(tmp_path: Path) -> None:
    """As recorded with --no-code."""
    run = flow(tmp_path / "run", ["/in"], "/out", text=None)
    found = crate(run, tmp_path / "crate")
    assert found["./"]["mainEntity"] == {"@id": "workflow.json"}
    outline = json.loads((tmp_path / "crate" / "workflow.json").read_text())
    assert [step["name"] for step in outline["steps"]] == ["load", "sum", "save"]
    assert {"step": "sum", "depends_on": "load"} in outline["dependencies"]


def test_hostile_texts_are_values(hostile: Path, tmp_path: Path) -> None:
    """Identifiers are valid, and no file is outside of the crate."""
    found = crate(hostile, tmp_path / "crate")
    for identifier in found:
        assert all(" " < c < "\x7f" and c not in '"<>\\^`{|}' for c in identifier)
    names = {e["name"] for e in of_type(found, "HowToStep")}
    assert "a\"b'c" in names
    assert "a\ufffdb" in names or "a\\x00b" in names
    written = sorted(p.name for p in (tmp_path / "crate").rglob("*") if p.is_file())
    assert len(written) == 2 + ("requirements.txt" in written)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["crate", "hostile"]


def test_a_run_without_tasks_is_a_crate(tmp_path: Path) -> None:
    """With a placeholder, as a workflow has a tool."""
    run = new_run(tmp_path / "run")
    Process(run, "scheduler-1", address="tcp://s:1").end()
    for options in ((), ("tasks",)):
        found = crate(run, tmp_path / f"crate{len(options)}", *options)
        assert "No task ran" in found["./"]["description"]
        assert found["#action-nothing%20ran"]["instrument"] == {"@id": "#tool-nothing%20ran"}

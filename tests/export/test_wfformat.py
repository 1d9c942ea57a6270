"""WfFormat: WfCommons reads what the record contains."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dask_strata
from dask_strata.export.wfformat.lives import _in_cycles
from tests.support.own_venv import own_environment, own_venv
from tests.support.synthetic import T0, Process, life, moves, new_run
from tests.support.wfformat_schema import schema

READER = Path(__file__).parents[1] / "support" / "wfcommons_reader.py"

WORKER = "tcp://w:1"


def exported(folder: Path, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the instance of a run, and the notes."""
    done = dask_strata.open_run(folder).export(path, to="wfformat")
    return json.loads(path.read_text()), list(done.notes)


def a_run(
    folder: Path,
    transitions: list[dict[str, Any]],
    edges: list[tuple[str, str]],
    **tables: list[dict[str, Any]],
) -> Path:
    """Make a run of one worker with some tasks and dependencies, and further rows of the worker."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [
        {"time": T0, "worker": WORKER, "name": "w", "action": "add", "reason": "2 threads"}
    ])  # fmt: skip
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    rows = [{"submission": "u-1", "key": key, "dependency": needs} for key, needs in edges]
    if rows:
        scheduler.write("graph_edges", rows)
    scheduler.end()
    worker = Process(folder, "worker-1", address=WORKER, name="w", nthreads=2, host="node1")
    for table, contents in tables.items():
        worker.write(table, contents)
    worker.end()
    return folder


def specified(instance: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tasks of an instance by their keys."""
    return {task["key"]: task for task in instance["workflow"]["specification"]["tasks"]}


def parents(instance: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the dependencies of an instance, as keys."""
    tasks = specified(instance)
    keys = {task["id"]: key for key, task in tasks.items()}
    found = {(key, keys[parent]) for key, task in tasks.items() for parent in task["parents"]}
    back = {(keys[child], key) for key, task in tasks.items() for child in task["children"]}
    assert found == back
    return found


def test_dependencies_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    """On itself, on a later result, in a cycle, on a key without a task: each is a note."""
    transitions = [
        *life("a-1", 1, 2, WORKER),
        *life("b-1", 3, 4, WORKER),
        *life("late-1", 5, 6, WORKER),
        # Nothing is known of their times but when they were submitted.
        *moves("x-1", (7, "released", "waiting")),
        *moves("x-2", (7, "released", "waiting")),
        *moves("x-3", (7, "released", "waiting")),
    ]
    edges = [
        ("b-1", "a-1"), ("a-1", "a-1"), ("b-1", "late-1"), ("b-1", "nowhere-1"),
        ("x-1", "x-2"), ("x-2", "x-1"), ("x-3", "x-2"), ("x-1", "a-1"),
    ]  # fmt: skip
    instance, notes = exported(a_run(tmp_path / "run", transitions, edges), tmp_path / "x.json")
    found = parents(instance)
    assert {("b-1", "a-1"), ("x-3", "x-2"), ("x-1", "a-1")} <= found
    assert len(found & {("x-1", "x-2"), ("x-2", "x-1")}) == 1  # the cycle is open
    assert len(found) == 4
    for note in (
        "1 dependencies of a task on itself are left out.",
        "1 dependencies on results that were not complete when the task started are left out.",
        "1 dependencies that close a cycle are left out.",
        "1 dependencies on keys without a task on record are left out.",
        "3 tasks have no known duration: they are not in the execution.",
    ):
        assert note in notes
    assert instance["daskStrata"]["notes"] == notes


def test_cycles_are_found_in_any_graph() -> None:
    """Tasks that remain are those in cycles and between them: as by search from each task."""
    random = np.random.default_rng(7)
    for _ in range(200):
        n, m = int(random.integers(1, 9)), int(random.integers(0, 14))
        parent, child = random.integers(0, n, m), random.integers(0, n, m)
        reach = np.zeros((n, n), bool)
        reach[parent, child] = True
        for middle in range(n):
            reach |= reach[:, [middle]] & reach[[middle], :]
        cyclic = np.diag(reach)
        between = (reach[:, cyclic].any(axis=1)) & (reach[cyclic, :].any(axis=0))
        expected = cyclic | between
        assert _in_cycles(n, parent, child).tolist() == expected.tolist()


def test_each_life_of_a_key_depends_on_the_result_of_its_time(tmp_path: Path) -> None:
    """A key that was forgotten and submitted again is two tasks."""
    forgotten = moves("a-1", (2.5, "memory", "released"), (2.6, "released", "forgotten"))
    transitions = [
        *life("a-1", 1, 2, WORKER), *forgotten, *life("a-1", 5, 6, WORKER),
        *life("b-1", 7, 8, WORKER), *life("c-1", 2.1, 2.2, WORKER),
    ]  # fmt: skip
    edges = [("b-1", "a-1"), ("c-1", "a-1")]
    instance, _ = exported(a_run(tmp_path / "run", transitions, edges), tmp_path / "x.json")
    tasks = instance["workflow"]["specification"]["tasks"]
    lives = {task["id"]: (task["key"], task["life"]) for task in tasks}
    found = {lives[task["id"]]: [lives[p] for p in task["parents"]] for task in tasks}
    assert found == {
        ("a-1", 1): [], ("a-1", 2): [], ("b-1", 1): [("a-1", 2)], ("c-1", 1): [("a-1", 1)],
    }  # fmt: skip
    runtimes = {task["id"]: task["runtimeInSeconds"] for task in executed(instance)}
    assert {lives[i]: seconds for i, seconds in runtimes.items()} == pytest.approx({
        ("a-1", 1): 1, ("a-1", 2): 1, ("b-1", 1): 1, ("c-1", 1): 0.1,
    })  # fmt: skip


def executed(instance: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the executed tasks of an instance."""
    found: list[dict[str, Any]] = instance["workflow"]["execution"]["tasks"]
    return found


def test_files_have_the_size_on_record_or_are_left_out(tmp_path: Path) -> None:
    """Files that were read have a size; of one that was only written nothing is invented."""
    common = {"execution": 1, "key": "a-1", "worker": WORKER, "run_id": 1, "count": 1}
    opens = [
        {**common, "uri": "/data/in.root", "mode": "read", "file_bytes": 1234},
        {**common, "uri": "/data/both.h5", "mode": "update", "file_bytes": 0},
        {**common, "uri": "/data/out.csv", "mode": "write"},
    ]
    folder = a_run(tmp_path / "run", life("a-1", 1, 2, WORKER), [], file_opens=opens)
    instance, notes = exported(folder, tmp_path / "x.json")
    files = {
        f["id"]: (f["uri"], f["sizeInBytes"])
        for f in instance["workflow"]["specification"]["files"]
    }
    assert sorted(files.values()) == [("/data/both.h5", 0), ("/data/in.root", 1234)]
    task = specified(instance)["a-1"]
    assert [files[i][0] for i in task["inputFiles"]] == ["/data/both.h5", "/data/in.root"]
    assert [files[i][0] for i in task["outputFiles"]] == ["/data/both.h5"]
    assert {Path(i).suffix for i in files} == {".root", ".h5"}
    assert "1 files of unknown size are left out." in notes


def test_ids_lead_back_to_keys(tmp_path: Path) -> None:
    """Whatever a key contains, its id has only allowed characters, and its task has the key."""
    keys = ["a b/ç-1", "('x', 0)", "x" * 300, '"quoted"\n', "_ID0000001", "ä"]
    transitions = [row for i, key in enumerate(keys) for row in life(key, i + 1, i + 2, WORKER)]
    instance, _ = exported(a_run(tmp_path / "run", transitions, []), tmp_path / "x.json")
    tasks = instance["workflow"]["specification"]["tasks"]
    assert sorted(task["key"] for task in tasks) == sorted(keys)
    assert len({task["id"] for task in tasks}) == len(keys)
    for task in tasks:
        assert task["id"].isascii()
        assert not set(task["id"]) - set("-_.") - set(map(chr, range(48, 123)))
        assert len(task["id"]) < 80


def test_machines_have_the_facts_of_their_hosts(tmp_path: Path) -> None:
    """Those that are on record, in WfFormat's units."""
    facts = {
        "os.name": "Linux", "os.kernel": "6.1", "os.architecture": "x86_64",
        "memory.total": "1024", "cpu.logical-cores": "4", "cpu.max-khz": "3500000",
        "cpu.vendor": "",
    }  # fmt: skip
    job = [{"name": name, "value": value} for name, value in facts.items()]
    folder = a_run(tmp_path / "run", life("a-1", 1, 2, WORKER), [], job=job)
    instance, _ = exported(folder, tmp_path / "x.json")
    assert instance["workflow"]["execution"]["machines"] == [{
        "system": "linux", "architecture": "x86_64", "nodeName": "node1", "release": "6.1",
        "memoryInBytes": 1024, "cpu": {"coreCount": 4, "speedInMHz": 3500},
    }]  # fmt: skip
    assert executed(instance)[0]["machines"] == ["node1"]


def wfcommons(folder: Path, *paths: Path, recipe: str = "") -> Any:
    """Return what WfCommons finds in instances, or what a recipe made of them generates."""
    python = own_venv("wfcommons", ["wfcommons==1.6"])
    rules = folder / "schema.json"
    rules.write_text(json.dumps(schema("1.5")))
    # WfChef takes no schema: it looks for a downloaded one here.
    stored = folder / "cache" / "wfcommons" / "wfformat-v1.6-wfcommons-schema.json"
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(schema("1.5", "1.6")))
    environment = own_environment() | {
        "XDG_CACHE_HOME": str(folder / "cache"), "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(folder / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [python, "-I", READER, rules, recipe, *paths],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.long
def test_wfcommons_reads_the_tasks_edges_and_runtimes_of_sql(
    eventful: Path, tmp_path: Path
) -> None:
    """Of a recorded run; and its validator refuses planted faults."""
    path = tmp_path / "run.json"
    instance, _ = exported(eventful, path)
    faults = []
    for name, spoil in PLANTED.items():
        spoilt = json.loads(path.read_text())
        spoil(spoilt)
        faults.append(tmp_path / f"{name}.json")
        faults[-1].write_text(json.dumps(spoilt))
    found, *refused = wfcommons(tmp_path, path, *faults)
    assert [bool(each.get("errors")) for each in refused] == [True] * len(PLANTED), refused
    assert not [w for w in found["warnings"] if "no entry in the execution" not in w]

    run = dask_strata.open_run(eventful)
    tasks = {
        (row["key"], row["key_type"], row["life"]): row
        for row in run.sql("select * from tasks").to_arrow().to_pylist()
    }
    by_id = {
        task["id"]: (task["key"], task["keyType"], task["life"])
        for task in instance["workflow"]["specification"]["tasks"]
    }
    assert sorted(by_id.values()) == sorted(tasks)
    assert found["runtimes"].keys() == by_id.keys()
    for task_id, seconds in found["runtimes"].items():
        row = tasks[by_id[task_id]]
        assert seconds == pytest.approx(row["compute_seconds"] or 0)
    with_time = sum(row["compute_seconds"] is not None for row in tasks.values())
    assert sum(cores == 1 for cores in found["cores"].values()) == with_time > 40
    hosts = {row["host"] for row in run.sql("select host from workers").to_arrow().to_pylist()}
    assert {name for names in found["machines"].values() for name in names} == hosts
    # Keys with one life: the graph as the scheduler received it.
    lives = Counter(key[:2] for key in tasks)
    edges = {
        ((row["key"], row["key_type"]), (row["dependency"], row["dependency_type"]))
        for row in run.sql("select * from graph_edges").to_arrow().to_pylist()
    }
    expected = {(b, a) for a, b in edges if lives[a] == lives[b] == 1 and a != b}
    read = {(by_id[a][:2], by_id[b][:2]) for a, b in found["edges"]}
    assert {(a, b) for a, b in read if lives[a] == lives[b] == 1} == expected
    assert len(expected) > 40
    sizes = {
        row["uri"]: row["n"]
        for row in run.sql("select uri, max(file_bytes) as n from file_opens group by 1")
        .to_arrow()
        .to_pylist()
        if row["n"] is not None
    }
    assert 1000 in {size for files in found["inputs"].values() for size in files.values()}
    assert {size for files in found["inputs"].values() for size in files.values()} <= set(
        sizes.values()
    )
    assert found["levels"] == len(tasks)


def _cycle(instance: dict[str, Any]) -> None:
    tasks = instance["workflow"]["specification"]["tasks"]
    task = next(task for task in tasks if task["parents"])
    parent = next(other for other in tasks if other["id"] == task["parents"][0])
    parent["parents"].append(task["id"])


def _dangling(instance: dict[str, Any]) -> None:
    instance["workflow"]["specification"]["tasks"][0]["parents"].append("nowhere")


def _bad_id(instance: dict[str, Any]) -> None:
    instance["workflow"]["specification"]["tasks"][0]["children"].append("('x', 0)")


def _unknown_machine(instance: dict[str, Any]) -> None:
    executed(instance)[0]["machines"] = ["elsewhere"]


PLANTED = {
    "cycle": _cycle, "dangling": _dangling, "id": _bad_id, "machine": _unknown_machine,
}  # fmt: skip


@pytest.mark.long
def test_wfchef_makes_a_recipe_of_runs(tmp_path: Path) -> None:
    """And generates a larger workflow of the same tasks."""
    (tmp_path / "instances").mkdir()
    for n in (3, 6):
        rows, edges = [], []
        for i in range(n):
            rows += life(f"load-{i}", 1, 2, WORKER) + life(f"clean-{i}", 3, 4 + i / 10, WORKER)
            edges += [(f"clean-{i}", f"load-{i}"), ("total-0", f"clean-{i}")]
        rows += life("total-0", 6, 7, WORKER)
        folder = a_run(tmp_path / f"run-{n}", rows, edges)
        exported(folder, tmp_path / "instances" / f"run-{n}.json")
    paths = sorted((tmp_path / "instances").iterdir())
    made = wfcommons(tmp_path, *paths, recipe=str(tmp_path / "recipe"))
    kinds = Counter(made)
    assert kinds["total"] == 1
    assert kinds["load"] == kinds["clean"] > 6
    assert len(made) <= 20

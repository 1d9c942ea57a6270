"""PROV documents, read by the library of the standard's authors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prov.model import (
    ProvActivity,
    ProvAgent,
    ProvDerivation,
    ProvDocument,
    ProvEntity,
    ProvGeneration,
    ProvUsage,
)

import dask_strata
from dask_strata.cli import cli
from dask_strata.errors import UsageError
from tests.export.provenance.conftest import WORKER, executed, opened
from tests.support.synthetic import Process, life, moves, new_run

#: rdflib itself uses what it deprecates.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

by_detail = pytest.mark.parametrize("detail", [[], ["attempts"]], ids=["prefixes", "attempts"])


def exported(run: Path | dask_strata.Run, path: Path, *options: str) -> str:
    """Return the text of a document."""
    run = dask_strata.open_run(run) if isinstance(run, Path) else run
    run.export(path, to="prov", options=options)
    return path.read_text(encoding="utf-8")


def document(run: Path | dask_strata.Run, folder: Path, *options: str) -> ProvDocument:
    """Return the PROV-JSON of a run, as prov reads it."""
    text = exported(run, folder / f"{'-'.join(options)}.json", *options)
    return ProvDocument.deserialize(content=text, format="json")


def statements(provn: str) -> Counter[str]:
    """Return the statements of a PROV-N document, whose texts may have several lines."""
    lines: list[str] = []
    for line in provn.splitlines():
        if line.startswith("  ") and lines and lines[-1].count('"""') % 2 == 0:
            lines.append(line)
        elif lines:
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    # prov omits the digits of whole seconds.
    return Counter(line.strip().replace(".000000+00:00", "+00:00") for line in lines)


def scalar(run: dask_strata.Run, query: str) -> int:
    """Return the one number of a query."""
    found = run.sql(query).to_arrow().to_pylist()
    return int(next(iter(found[0].values())))


@by_detail
@pytest.mark.parametrize("which", ["eventful", "recorded", "hostile"])
def test_notations_are_one_document(
    which: str, detail: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """JSON, RDF and PROV-N by prov are equal, and our PROV-N and Turtle are those."""
    run = dask_strata.open_run(request.getfixturevalue(which))
    read = document(run, tmp_path, *detail)
    rdf = read.serialize(format="rdf")
    again = ProvDocument.deserialize(content=rdf, format="rdf")
    assert again == read
    theirs = statements(read.get_provn())
    ours = statements(exported(run, tmp_path / "x.provn", *detail, "n"))
    assert {line for line in ours if line.startswith("activity")}
    assert ours == theirs
    turtle = exported(run, tmp_path / "x.ttl", *detail, "o")
    assert ProvDocument.deserialize(content=turtle, format="rdf", rdf_format="turtle") == read


@by_detail
@pytest.mark.parametrize("which", ["eventful", "recorded", "hostile"])
def test_counts_equal_those_of_sql(
    which: str, detail: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of activities, entities and agents, by queries of users."""
    run = dask_strata.open_run(request.getfixturevalue(which))
    read = document(run, tmp_path, *detail)
    held = "n_attempts = 0 and (state = 'memory' or finished_before)"
    distinct = {
        "files": "select count(distinct uri) from task_inputs",
        "scripts": "select count(distinct process) from script where name = 'kind'",
        "workers": "select count(*) from (select worker from workers union "
        "select worker from attempts) where worker is not null",
        "clients": "select count(*) from (select client from clients union "
        "select client from submissions)",
        "users": "select count(distinct value) from job where name = 'process.user'",
        "software": "select count(distinct python) + count(distinct dask) + "
        "count(distinct distributed) + count(distinct dask_strata) from processes",
        "results": "select count(*) from attempts where outcome = 'memory'"
        if detail
        else "select count(*) from (select prefix from attempts where outcome = 'memory' "
        f"union select prefix from tasks where {held})",
        "data": f"select count(distinct (key, key_type)) from tasks where {held}"
        if detail
        else "select 0",
        "activities": "select count(*) from attempts"
        if detail
        else "select count(distinct prefix) from attempts",
    }
    n = {name: scalar(run, query) for name, query in distinct.items()}
    entities = n["files"] + n["scripts"] + n["results"] + n["data"]
    assert len(list(read.get_records(ProvEntity))) == entities
    assert len(list(read.get_records(ProvActivity))) == 1 + n["activities"]
    agents = n["workers"] + n["clients"] + n["users"] + n["software"]
    assert len(list(read.get_records(ProvAgent))) == agents
    assert min(entities, n["activities"], n["workers"]) > 0


@by_detail
def test_all_that_relations_name_is_declared(
    detail: list[str], eventful: Path, tmp_path: Path
) -> None:
    """No relation is to an element that the document lacks."""
    read = document(eventful, tmp_path, *detail)
    declared = {str(r.identifier) for r in read.get_records((ProvEntity, ProvActivity, ProvAgent))}
    named = {
        str(value)
        for record in read.get_records()
        if record.is_relation()
        for _, value in record.formal_attributes
        if value is not None
    }
    assert named
    assert named <= declared


def pairs(read: ProvDocument, kind: Any) -> list[tuple[str, str]]:
    """Return the first two arguments of relations, without prefixes of namespaces."""
    return [(str(record.args[0]), str(record.args[1])) for record in read.get_records(kind)]


def test_the_flow_has_its_chain(recorded: Path, files: list[Path], tmp_path: Path) -> None:
    """The output is derived from the sum, the sum from loads and data, loads from files."""
    read = document(recorded, tmp_path)
    derived = {(a.partition(":")[2], b.partition(":")[2]) for a, b in pairs(read, ProvDerivation)}
    sources = {b for a, b in derived if a == "load"}
    assert len(sources) == 3
    assert {b for a, b in derived if a == "sum"} == {"load", "data"}
    labels = {
        str(e.identifier).partition(":")[2]: str(e.label) for e in read.get_records(ProvEntity)
    }
    assert sorted(labels[each] for each in sources) == sorted(str(path) for path in files[:3])
    output = next(each for each, label in labels.items() if label == str(files[3]))
    assert {b for a, b in derived if a == output} == {"sum"}
    assert ("file:" + output, "prefix:save") in pairs(read, ProvGeneration)


def test_attempts_use_results_that_were_there(eventful: Path, tmp_path: Path) -> None:
    """Each dependency of each successful attempt, and an attempt at it that had ended before."""
    read = document(eventful, tmp_path, "attempts")
    run = dask_strata.open_run(eventful)
    attempts = {row["attempt"]: row for row in run.attempts.to_arrow().to_pylist()}
    edges: dict[Any, set[Any]] = {}
    for row in run.graph_edges.to_arrow().to_pylist():
        key = (row["key"], row["key_type"])
        edges.setdefault(key, set()).add((row["dependency"], row["dependency_type"]))
    found: dict[int, set[Any]] = {}
    for activity, entity in pairs(read, ProvUsage):
        if not entity.startswith("result:"):
            continue
        user, made = (attempts[int(each.partition(":")[2])] for each in (activity, entity))
        assert made["outcome"] == "memory"
        assert made["stop"] <= user["start"]
        later = [
            other["attempt"]
            for other in attempts.values()
            if (other["key"], other["key_type"]) == (made["key"], made["key_type"])
            and other["outcome"] == "memory"
            and made["stop"] < other["stop"] <= user["start"]
        ]
        assert not later
        found.setdefault(user["attempt"], set()).add((made["key"], made["key_type"]))
    with_attempts = {(row["key"], row["key_type"]) for row in attempts.values()}
    for number, row in attempts.items():
        needed = edges.get((row["key"], row["key_type"]), set()) & with_attempts
        if row["outcome"] == "memory":
            assert found.get(number, set()) == needed
    total = next(n for n, row in attempts.items() if row["key"] == "total")
    assert len(found[total]) == 40


def test_times_and_notes_are_in_the_document(recorded: Path, tmp_path: Path) -> None:
    """The prefix begins with its first and ends with its last attempt."""
    text = json.loads(exported(recorded, tmp_path / "x.json"))
    load = text["activity"]["prefix:load"]
    row = (
        dask_strata.open_run(recorded)
        .sql("select min(start) as a, max(stop) as b from attempts where prefix = 'load'")
        .to_arrow()
        .to_pylist()[0]
    )
    assert load["prov:startTime"] == row["a"].isoformat(timespec="microseconds")
    assert load["prov:endTime"] == row["b"].isoformat(timespec="microseconds")
    assert "aggregated" in text["activity"]["activity:run"]["strata:note"]


def test_attempts_that_were_retried_failed(tmp_path: Path) -> None:
    """As many as have an exception, whether or not a later attempt succeeded."""
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows: list[dict[str, Any]] = []
    for second, end in ((0, "released"), (2, "erred")):
        rows += moves("a-1", (second, "waiting", "processing"), worker=WORKER)
        end_row = (second + 1, "processing", end)
        rows += moves("a-1", end_row, worker=WORKER, exception="ValueError()")
    scheduler.write("scheduler_transitions", rows)
    scheduler.end()
    run = dask_strata.open_run(folder)
    outcomes = [row["outcome"] for row in run.rows("select outcome from attempts order by attempt")]
    assert outcomes == ["retried", "erred"]
    found = json.loads(exported(folder, tmp_path / "x.json"))["activity"]["prefix:a"]
    assert found["strata:failedAttempts"]["$"] == "2"


def test_a_file_of_several_sizes_has_none(tmp_path: Path) -> None:
    """As in crates: no size is that of the file that every attempt read."""
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 0, 1, WORKER) + life("b-1", 1, 2, WORKER))
    scheduler.end()
    worker = Process(folder, "worker-1", address=WORKER)
    worker.write("executions", [executed("a-1", 1, 0, 1), executed("b-1", 2, 1, 2)])
    sizes = {"/same": (5, 5), "/grew": (5, 7)}
    worker.write(
        "file_opens",
        [
            opened(key, number, uri, "read", file_bytes=size)
            for uri, both in sizes.items()
            for number, (key, size) in enumerate(zip(("a-1", "b-1"), both, strict=True), 1)
        ],
    )
    worker.end()
    found = json.loads(exported(folder, tmp_path / "x.json"))["entity"]
    assert found["file:%2Fsame"]["strata:bytes"]["$"] == "5"
    assert "strata:bytes" not in found["file:%2Fgrew"]


@pytest.mark.parametrize(
    ("options", "suffix"),
    [([], ".prov.json"), (["--with", "n"], ".provn"), (["--with", "o"], ".ttl")],
)
def test_the_name_is_that_of_the_notation(
    options: list[str],
    suffix: str,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the user gives one."""
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path / "made")
    done = CliRunner().invoke(cli, ["export", str(recorded), "--to", "prov", *options])
    assert done.exit_code == 0, done.output
    assert [path.name for path in Path().iterdir()] == [f"{recorded.name}{suffix}"]


def test_two_notations_are_refused(recorded: Path, tmp_path: Path) -> None:
    """With the remedy, and without a file."""
    with pytest.raises(UsageError, match="one notation"):
        exported(recorded, tmp_path / "x", "n", "o")
    assert not (tmp_path / "x").exists()

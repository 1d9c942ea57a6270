"""What holds for every format of an export."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

import dask_strata
from dask_strata.cli import cli
from dask_strata.errors import StrataError, UsageError
from dask_strata.export.builtin import BUILTIN
from dask_strata.export.registry import exporter, names
from dask_strata.run.finalise import finalise
from dask_strata.store.manifest import SEGMENTS
from tests.support.any_runs import AnyRun, any_runs
from tests.support.exported import files_of, fingerprint, texts_of
from tests.support.synthetic import T0, Process, life, new_run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

#: Databases have pages whose order is not that of the rows.
NOT_BYTE_FOR_BYTE = {"duckdb"}

every_format = pytest.mark.parametrize("to", names())


def target(folder: Path, to: str, name: str = "out") -> Path:
    """Return the path of an export."""
    return folder / f"{name}{exporter(to).suffix}"


def test_the_entry_points_are_those_of_the_registry() -> None:
    """Other programs find our formats where they find those of other packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["project"]["entry-points"]["dask_strata.exporters"]
    assert declared.keys() == BUILTIN.keys()
    for name, value in declared.items():
        module, _, class_name = value.partition(":")
        found = BUILTIN[name]()
        assert (found.__module__, found.__name__) == (module, class_name)
        assert found.name == name


@every_format
def test_an_export_is_whole_and_changes_nothing_else(
    to: str, eventful: Path, tmp_path: Path
) -> None:
    """The output is at its place, nothing is beside it, and the run's folder is as before."""
    before = fingerprint(eventful)
    path = target(tmp_path, to)
    done = dask_strata.open_run(eventful).export(path, to=to)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.is_dir() == (not exporter(to).suffix)
    assert done.size_bytes == sum(map(len, files_of(path).values())) > 0
    assert done.counts
    assert all(n >= 0 for n in done.counts.values())
    assert fingerprint(eventful) == before


def _lines_of(path: Path) -> dict[int, str]:
    return dict(enumerate(texts_of(path).splitlines()))


def _different(first: dict[Any, Any], second: dict[Any, Any]) -> list[Any]:
    """Return the keys of different values; pytest takes minutes to compare large ones."""
    return [key for key in {**first, **second} if first.get(key) != second.get(key)]


@every_format
def test_two_exports_of_a_run_are_equal(
    to: str, eventful: Path, small: Path, tmp_path: Path
) -> None:
    """Nothing in the output depends on when or where it was made."""
    first, second = target(tmp_path, to, "a"), target(tmp_path, to, "b")
    run = eventful
    if to == "bundle":
        # A process of the other run still records, so that each bundle finalises a copy of it,
        # where derived tables may have their rows in another order.
        finalise(run := small)
    for path in (first, second):
        dask_strata.open_run(run).export(path, to=to)
    if to not in NOT_BYTE_FOR_BYTE:
        assert _different(files_of(first), files_of(second)) == []
    assert _different(_lines_of(first), _lines_of(second)) == []


@every_format
def test_what_is_missing_is_said_in_the_output(to: str, tmp_path: Path) -> None:
    """Of a recording that was cut off, and of one with losses: on the screen and in the output."""
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    scheduler.write("losses", [{"time": T0, "what": "rows", "count": 3, "reason": "a full disk"}])
    scheduler.sink.close()
    for segment in (folder / SEGMENTS).iterdir():
        os.utime(segment, (0, 0))  # its process has written nothing for long
    path = target(tmp_path, to)
    done = dask_strata.open_run(folder).export(path, to=to)
    assert any("cut off" in note for note in done.notes)
    assert any("losses has" in note for note in done.notes)
    said = " ".join(texts_of(path).replace("\\n", " ").split())
    for note in done.notes:
        assert note in said or json.dumps(note)[1:-1] in said


@every_format
def test_facts_can_be_left_out(to: str, tmp_path: Path) -> None:
    """Of planted facts nothing is in any byte of the output."""
    folder = new_run(tmp_path / "run")
    facts = {"host": "planted-host", "address": "tcp://planted-host:8786"}
    scheduler = Process(folder, "scheduler-1", **facts)
    scheduler.write("script", [{"name": "text", "value": "planted_code()"}])
    rows = life("a-1", 1, 5, "tcp://planted-host:1")
    scheduler.write("scheduler_transitions", rows)
    scheduler.end()
    worker = Process(folder, "worker-1", host="planted-host", address="tcp://planted-host:1")
    worker.write(
        "file_opens",
        [{"execution": 1, "key": "a-1", "uri": "/planted/path", "mode": "read", "count": 1}],
    )
    worker.end()
    planted = ("planted-host", "planted_code", "/planted/path")
    run = dask_strata.open_run(folder)
    run.export(target(tmp_path, to), to=to, leave_out=["code", "paths", "hosts"])
    for name, data in files_of(target(tmp_path, to)).items():
        assert not [word for word in planted if word.encode() in data], name
    said = texts_of(target(tmp_path, to))
    assert not [word for word in planted if word in said]
    assert "Left out, or replaced by hashes: code, paths, hosts." in said.replace("\\n", " ")


@every_format
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=any_runs())
def test_any_run_can_be_exported(
    to: str, made: AnyRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows that contradict each other, repeat or lack values stop no export."""
    folder = tmp_path_factory.mktemp("any")
    run = dask_strata.open_run(made.write(folder / "run"))
    run.export(target(folder, to), to=to)
    assert files_of(target(folder, to))


@every_format
def test_hostile_names_are_only_names(to: str, tmp_path: Path) -> None:
    """Keys, hosts and clients of any text."""
    folder = new_run(tmp_path / "run")
    texts = [
        'a"b',
        "a'b",
        "<script>",
        "=1+1",
        "a\nb",
        "a\0b",
        "../../x",
        "é\ud800",
        "%s{}",
        "-" * 9999,
    ]
    worker = "tcp://w;drop:1"
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", name="<b>\0")
    events = {"time": T0, "worker": worker, "name": "=w", "action": "add", "reason": "2 threads"}
    scheduler.write("worker_events", [events])
    rows = [row for i, text in enumerate(texts) for row in life(text, i, i + 1, worker)]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=worker, name="=w", nthreads=2).end()
    path = target(tmp_path, to)
    dask_strata.open_run(folder).export(path, to=to)
    assert [file.name for file in sorted(tmp_path.iterdir())] == sorted([path.name, "run"])


@every_format
def test_an_interrupted_export_leaves_nothing(
    to: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a part nor, after a second try, the remains of the first one."""
    chosen = type(exporter(to))
    write = chosen.write

    def interrupted(self: Any, run: Any, path: Path, job: Any) -> None:
        write(self, run, path, job)
        raise KeyboardInterrupt

    out = tmp_path / "exports"
    out.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(chosen, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dask_strata.open_run(small).export(target(out, to), to=to)
    assert list(out.iterdir()) == []
    dask_strata.open_run(small).export(target(out, to), to=to)
    assert list(out.iterdir()) == [target(out, to)]


@pytest.mark.release
@every_format
def test_a_finalised_run_has_the_same_export(to: str, small: Path, tmp_path: Path) -> None:
    """Whether a run was compacted makes no difference for what is exported."""
    dask_strata.open_run(small).export(target(tmp_path, to, "segments"), to=to)
    finalise(small)
    dask_strata.open_run(small).export(target(tmp_path, to, "finalised"), to=to)
    assert texts_of(target(tmp_path, to, "segments")) == texts_of(target(tmp_path, to, "finalised"))


@every_format
def test_the_command(to: str, small: Path, tmp_path: Path) -> None:
    """It prints where the output is and what is in it; an option that is not there is refused."""
    path = target(tmp_path, to)
    done = CliRunner().invoke(cli, ["export", str(small), "--to", to, "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert str(path) in done.output.replace("\n", "")
    refused = ["export", str(small), "--to", to, "-o", str(path), "--with", "nonsense"]
    answer = CliRunner().invoke(cli, refused)
    assert answer.exit_code == 2
    assert "has no option 'nonsense'" in answer.output


def test_an_unknown_format_is_refused(small: Path, tmp_path: Path) -> None:
    """With the formats that there are."""
    answer = CliRunner().invoke(
        cli, ["export", str(small), "--to", "xml", "-o", str(tmp_path / "x")]
    )
    assert answer.exit_code == 2
    assert "There is no format 'xml'" in answer.output
    assert "perfetto" in answer.output


def test_places_that_cannot_be_used_are_refused(small: Path, tmp_path: Path) -> None:
    """The run's own folder, folders that are not there or not empty, and files for folders."""
    run = dask_strata.open_run(small)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(small)
    os.mkfifo(tmp_path / "pipe")
    refused = [
        ("parquet", small / "tables", "inside of the run's folder"),
        ("sqlite", tmp_path / "link" / "x.sqlite", "inside of the run's folder"),
        ("parquet", tmp_path / "no" / "tables", "does not exist"),
        ("parquet", tmp_path / "full", "not empty"),
        ("parquet", tmp_path / "file", "is a file"),
        ("sqlite", tmp_path / "full", "is a folder"),
        ("sqlite", small, "inside of the run's folder"),
        ("sqlite", tmp_path / "pipe", "device or a pipe"),
        ("sqlite", "http://127.0.0.1:1/x", "cannot be sent"),
        ("otlp", "ftp://127.0.0.1:1/x", "cannot be sent"),
    ]
    for to, path, message in refused:
        with pytest.raises(UsageError, match=message):
            run.export(path, to=to)
    assert (tmp_path / "full" / "x").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_or_forbidden_place_is_a_sentence(small: Path) -> None:
    """The error names the place and the reason."""
    for place in ("/proc/self/out.sqlite", small.with_name("x" * 300)):
        with pytest.raises(StrataError, match="cannot be written"):
            dask_strata.open_run(small).export(place, to="sqlite")


def test_what_cannot_be_left_out_is_refused(small: Path, tmp_path: Path) -> None:
    """Rather than exported with it."""
    with pytest.raises(UsageError, match="cannot be left out"):
        dask_strata.open_run(small).export(tmp_path / "x.sqlite", to="sqlite", leave_out=["moon"])


def test_a_file_that_is_there_is_replaced(small: Path, tmp_path: Path) -> None:
    """As with other commands that write a file."""
    path = tmp_path / "out.sqlite"
    path.write_text("old")
    dask_strata.open_run(small).export(path, to="sqlite")
    assert path.read_bytes()[:6] == b"SQLite"


def test_a_run_that_is_recorded_says_so(tmp_path: Path) -> None:
    """Its export has what is there, and a note."""
    folder = new_run(tmp_path / "growing")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a-1", 1, 5, "tcp://w:1"))
    run = dask_strata.open_run(folder)
    assert run.state == "recording"
    done = run.export(tmp_path / "x.sqlite", to="sqlite")
    assert any("still being recorded" in note for note in done.notes)
    scheduler.sink.close()

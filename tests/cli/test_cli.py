"""The command line: formats, errors in one or two lines, exit statuses."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from dask_strata import Run, open_run
from dask_strata.cli import cli
from dask_strata.errors import QueryError
from tests.support.synthetic import Process, life, new_run, small_run

NASTY = 'a,"b"\n\x00\x1b[31m é🦑'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a small complete run."""
    return small_run(tmp_path / "runs" / "r")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a small complete run, opened once."""
    return open_run(small_run(tmp_path_factory.mktemp("opened") / "r"))


def call(*arguments: object) -> Result:
    """Call the command in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_show_is_one_screen(run: Path) -> None:
    """At most 24 lines of 80 columns, but for paths; commands to type at the end."""
    done = call("show", run)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert all(len(line.rstrip()) <= 80 for line in lines if str(run) not in line)
    assert "2 tasks" in done.stdout
    assert f"dask-strata report {run}" in done.stdout
    assert json.loads(call("show", run, "--format", "json").stdout)["n_tasks"] == 2
    assert call("show", "--json", run).stdout == call("show", run, "--format", "json").stdout
    assert "Omit --follow, --format or --json." in call("show", "--json", "--follow", run).stderr


def test_show_names_compact_where_segments_are_large(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large segments lead to the command `compact`; a compact run does not."""
    assert "dask-strata compact" not in call("show", run).stdout
    monkeypatch.setattr("dask_strata.report.summary._LARGE_BYTES", 0)
    assert f"dask-strata compact {run}" in call("show", run).stdout
    assert call("compact", run).exit_code == 0
    assert "dask-strata compact" not in call("show", run).stdout


@pytest.mark.parametrize("verb", ["show", "map", "check"])
def test_json_of_answers_is_json(run: Path, verb: str) -> None:
    """Output with --format json can be parsed."""
    assert json.loads(call(verb, run, "--format", "json").stdout)


def test_check_exits_by_its_verdict(run: Path) -> None:
    """A complete record gives status 0; a cut segment gives status 1 and a finding."""
    done = call("check", run)
    assert (done.exit_code, "The record is complete." in done.stdout) == (0, True)
    segment = run / "segments" / "scheduler-1.seg"
    segment.write_bytes(segment.read_bytes()[:-5])
    os.utime(segment, (0, 0))
    done = call("check", run)
    assert done.exit_code == 1
    assert "MISSING" in done.stdout


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "table"])
def test_every_format_can_be_written_to_a_file(run: Path, tmp_path: Path, form: str) -> None:
    """All rows and columns arrive in a file of each format."""
    file = tmp_path / f"out.{form}"
    done = call("tasks", run, "--format", form, "-o", file)
    assert done.exit_code == 0, done.output
    if form == "parquet":
        assert pq.read_table(file)["key"].to_pylist() == ["a-1", "b-1"]
    else:
        text = file.read_text()
        assert "a-1" in text
        assert "compute_seconds" in text


def test_odd_keys_are_exact_in_data_and_harmless_on_a_terminal(tmp_path: Path) -> None:
    """A key with quotes, newlines, NUL and escape sequences is exact in CSV and JSON only."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life(NASTY, 1, 2, "tcp://w:1"))
    scheduler.end()
    found = json.loads(call("query", folder, "select key from tasks", "--format", "json").stdout)
    assert found == [{"key": NASTY}]
    text = call("query", folder, "select key from tasks", "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(text)))[1] == [NASTY]
    for verb in (("tasks", folder), ("story", folder, NASTY), ("show", folder)):
        shown = call(*verb).stdout
        assert "\x1b" not in shown
        assert "\x00" not in shown
    assert "\\x1b[31m" in call("tasks", folder).stdout


@pytest.mark.parametrize(
    "sql",
    [
        "selec 1",
        "select nonsense from tasks",
        "drop table tasks",
        "create table x as select 1",
        "insert into tasks select * from tasks",
        "update tasks set key = 'x'",
        "delete from tasks",
        "copy tasks to '/tmp/strata-should-not-exist'",
        "copy (select 1) to '/tmp/strata-should-not-exist'",
        "attach '/tmp/strata-should-not-exist'",
        "install httpfs",
        "load httpfs",
        "select 1; select 2",
        "",
        "set threads = 1",
        "reset enable_external_access",
        "pragma enable_external_access",
        "call pragma_version()",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "select * from read_parquet('https://example.org/x.parquet')",
        "export database '/tmp/strata-should-not-exist'",
        "explain analyze drop table tasks",
        "explain analyze create table x as select 1",
        "EXPLAIN ANALYZE create or replace temp view tasks as select 1",
        "with x as (select 1) delete from tasks",
    ],
)
def test_sql_that_is_wrong_or_not_read_only_is_refused(opened: Run, sql: str) -> None:
    """SQL that is wrong, writes, reads files or loads extensions is refused in one line or two."""
    done = call("query", opened.path, sql)
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith("Error: SQL: ")
    assert len(done.stderr.splitlines()) <= 2
    assert not Path("/tmp/strata-should-not-exist").exists()
    with pytest.raises(QueryError):
        opened.sql(sql)
    assert len(opened.sql("select * from tasks")) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "nowhere"], 1, "nowhere is not a run"),
        (["show"], 2, "Missing argument"),
        (["nonsense"], 2, "No such command"),
        (["list", "nowhere"], 1, "No such folder: nowhere"),
        (["story", "RUN", "nonsense"], 1, "The record has no task nonsense"),
        (["tasks", "RUN", "--sort", "nonsense"], 2, "No column nonsense"),
        (["tasks", "RUN", "--prefix", "nonsense"], 2, "No task has the prefix"),
        (["tasks", "RUN", "--format", "parquet"], 2, "Give a file"),
        (["tasks", "RUN", "-o", "no/such/folder/x", "--format", "csv"], 1, "cannot be written"),
        (["tables", "nonsense"], 2, "There is no table nonsense"),
        (["record"], 2, "nothing to run"),
        (["record", "nowhere.py"], 2, "No such script: nowhere.py"),
        (["record", "--flush-interval", "soon", "x.py"], 2, "flush-interval"),
        (["compact", "nowhere"], 1, "is not a run"),
    ],
)
def test_errors_are_two_lines_with_the_reason(
    run: Path, arguments: list[str], status: int, message: str
) -> None:
    """Each mistake ends with its exit status and a sentence, never a traceback."""
    done = call(*(run if a == "RUN" else a for a in arguments))
    assert done.exit_code == status, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not isinstance(done.exception, BaseException) or isinstance(done.exception, SystemExit)


def test_a_reader_that_stops_early_is_no_error(run: Path) -> None:
    """`dask-strata … | head` ends quietly when the pipe is closed."""
    command = [sys.executable, "-m", "dask_strata", "query", str(run)]
    sql = "select range, repeat('x', 1000) from range(100000)"
    with subprocess.Popen(
        [*command, sql, "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_list_shows_runs_and_why_others_are_unreadable(run: Path) -> None:
    """A list has a row for each run, and the reason where one cannot be read."""
    broken = run.parent / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    rows = {r["run"]: r for r in json.loads(call("list", run.parent, "--format", "json").stdout)}
    assert rows["r"]["tasks"] == 2
    assert rows["r"]["state"] == "complete"
    assert "damaged" in rows["broken"]["problem"]


@pytest.mark.skipif(not shutil.which("setpriv") or os.getuid() != 0, reason="setpriv needs root")
def test_a_folder_that_cannot_be_read_is_not_empty(run: Path) -> None:
    """`list` names the reason instead of advising to record a run."""
    run.parent.chmod(0)
    rights = "-dac_override,-dac_read_search"
    without = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    done = subprocess.run(
        [*without, sys.executable, "-m", "dask_strata", "list", str(run.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    run.parent.chmod(0o700)
    assert done.returncode == 1
    assert f"{run.parent} cannot be read: Permission denied." in done.stderr
    assert "Record a run" not in done.stderr


def test_errors_contain_no_control_characters(tmp_path: Path) -> None:
    """Control characters of the record are escapes in an error."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("evil\x1b]0;owned\x07-1", 1, 2, "tcp://w:1"))
    scheduler.end()
    done = CliRunner().invoke(cli, ["story", str(folder), "evil"], color=True)
    assert done.exit_code == 1
    assert "Did you mean evil\\x1b]0;owned" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("form", ["default", "json"])
def test_arguments_that_are_not_utf8(
    tmp_path: Path, form: str, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Keys and files that are not UTF-8 are found as the record spells them, else named so."""
    run = new_run(tmp_path / "r")
    scheduler = Process(run, "scheduler-1")
    scheduler.write("scheduler_transitions", life("caf\udce9", 1, 2, "tcp://w:1"))
    scheduler.write("claimed_inputs", [{"key": "caf\udce9", "uri": "/data/caf\udce9.txt"}])
    scheduler.end()
    options = [] if form == "default" else ["--format", form]
    for command, name in (("story", "caf"), ("lineage", "caf"), ("lineage", "/data/caf")):
        ending = ".txt" if "/" in name else ""
        found = strata(command, run, f"{name}\udce9{ending}", *options)
        assert (found.returncode, found.stderr) == (0, "")
        assert "caf\\udce9" in found.stdout.replace("\\\\", "\\")
        missing = strata(command, run, f"{name}\udcff", *options)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert re.match(
            r"Error: The record has (no task|neither a task nor a file) ", missing.stderr
        )
        assert f"{name}\\udcff" in missing.stderr
    wrong = strata("query", run, "select '\udcff'")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("Error: SQL: ")


def test_explaining_a_query_is_reading(run: Path) -> None:
    """Plans of queries and descriptions of tables are allowed."""
    for sql in ("explain select * from tasks", "describe tasks", "explain analyze select 1"):
        assert len(open_run(run).sql(sql)) > 0

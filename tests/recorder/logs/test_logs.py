"""What a real cluster logs and prints is on record once, and arrives at the user as before."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run
from dask_strata.analysis.logs import select_logs
from dask_strata.analysis.story import story
from dask_strata.errors import StrataError, UnknownTaskError, UsageError
from dask_strata.report.logs.lines import entry_lines, note_of
from dask_strata.report.page.page import make_page
from tests.conftest import rows, runs_in
from tests.recorder.logs import workload

#: Lines of Dask's own on standard error, with times and addresses; and the last one of ours.
_OTHERS = re.compile(rb"\d{4}-\d\d-\d\d |dask-strata: |.*resource_tracker")

_CALL_STACK = re.compile(rb"Call stack:\n.*?(?=Message: )", re.DOTALL)

TASKS = 3


@dataclass
class Recorded:
    """The script's output with and without recording, its run, and what its tasks noted."""

    run: Run
    output: tuple[bytes, bytes]
    plain_output: tuple[bytes, bytes]
    truth: list[list[str]]


def _start(command: list[Any], folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    return subprocess.Popen(
        [*map(str, command), workload.__file__, str(folder), str(TASKS)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run the script twice at the same time: with and without recording."""
    folder = tmp_path_factory.mktemp("logs")
    strata = Path(sys.executable).with_name("dask-strata")
    first = _start([strata, "record", "-q", "--no-compact", "-o", folder / "runs"], folder / "one")
    second = _start([sys.executable], folder / "two")
    output, plain = first.communicate(timeout=100), second.communicate(timeout=100)
    assert first.returncode == second.returncode == 0, output[1].decode(errors="replace")
    [run] = runs_in(folder / "runs")
    [truth] = (folder / "one").glob("truth-*.jsonl")
    lines = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    return Recorded(run, output, plain, lines)


def _of_worker(recorded: Recorded) -> str:
    [process] = rows(recorded.run, "select process from processes where role = 'worker'")
    return str(process["process"])


def test_each_record_is_on_record_once_in_order(recorded: Recorded) -> None:
    """The records of the worker's own handler are the rows, from INFO, in their order."""
    found = rows(
        recorded.run,
        "select level, logger, message || coalesce(chr(10) || exception, '') as text from logs "
        f"where process = '{_of_worker(recorded)}' and stream = 'log' and contains(message, 'W ') "
        "order by number",
    )
    expected = [
        [level, name, text.replace(workload.SECRET, "(redacted)")]
        for level, name, text in recorded.truth
        if level != "DEBUG" and "W " in text
    ]
    assert len(expected) == 7 * TASKS
    fitting = [row for row in found if "arguments that do not fit" not in row["text"]]
    assert [[*row.values()] for row in fitting] == expected
    assert len(found) == len(fitting) + TASKS


def test_what_is_printed_is_on_record_once(recorded: Recorded) -> None:
    """Lines of any origin are rows; printed forms of records and warnings are not among them."""
    found = rows(
        recorded.run,
        "select stream, message from logs where stream in ('stdout', 'stderr') "
        "and not regexp_matches(message, '^(Call stack|Message|Arguments|--- Logging|  |Traceback|"
        "TypeError)') order by number",
    )
    for stream, expected in (
        ("stdout", ["W print {}", "W os.write {}", "W puts {}", "W 100 % {}"]),
        ("stderr", ["DEBUG|user.code> W debug {}", "W same text", "W junk \\xff\\xfe\0 {}"]),
    ):
        lines = [row["message"] for row in found if row["stream"] == stream]
        assert lines == [line.format(i) for i in range(TASKS) for line in expected]


def test_warnings_are_on_record_once(recorded: Recorded) -> None:
    """A warning has its place and category, and neither its printed form nor its source line."""
    found = rows(
        recorded.run,
        "select stream, logger, level, message from logs where contains(message, 'W warning')",
    )
    for i, row in enumerate(found):
        assert re.fullmatch(rf".+:\d+: UserWarning: W warning {i}", row["message"]), row
        assert (row["stream"], row["logger"], row["level"]) == ("warning", "py.warnings", "WARNING")
    assert len(found) == TASKS
    assert not rows(recorded.run, "select 1 as n from logs where message like '  warnings.warn(%'")


def test_entries_of_a_task_have_its_key_and_attempt(recorded: Recorded) -> None:
    """Records of a task lead to the attempt and its thread; lines of output to their process."""
    found = rows(
        recorded.run,
        "select l.key, l.thread = a.thread as same, l.worker = a.worker as there, l.role, "
        "count(*) as n from logs l join attempts a using (attempt) "
        "where l.stream = 'log' group by all order by l.key",
    )
    assert [(row["key"], row["same"], row["there"], row["role"]) for row in found] == [
        (f"work-{i}", True, True, "worker") for i in range(TASKS)
    ]
    printed = rows(recorded.run, "select distinct process from logs where message like 'W print%'")
    assert printed == [{"process": _of_worker(recorded)}]


def test_no_secret_is_on_record(recorded: Recorded) -> None:
    """The password is in no table, neither as a record nor as a line."""
    for table in ("log_records", "output_lines", "logs"):
        found = recorded.run[table].to_arrow()
        assert len(found)
        assert workload.SECRET not in json.dumps(found.to_pylist(), default=str)


def test_the_client_only_logs_dasks_own(recorded: Recorded) -> None:
    """In the process of the user's script, records of Dask's loggers are on record, not others."""
    found = rows(recorded.run, "select message, worker from logs where message like 'from the %'")
    assert found == [{"message": "from the client", "worker": None}]


def test_the_user_gets_the_same_output(recorded: Recorded) -> None:
    """Standard output is the same bytes; so is standard error without lines that have times."""
    assert recorded.output[0] == recorded.plain_output[0]
    with_recording, without = (
        [
            line
            # Where logging reports an error of a handler, the stack has frames of the recorder.
            for line in _CALL_STACK.sub(b"", output[1]).splitlines(keepends=True)
            if not _OTHERS.match(line)
        ]
        for output in (recorded.output, recorded.plain_output)
    )
    assert b"W junk \xff\xfe\x00 0\n" in with_recording
    assert with_recording == without


def test_entries_are_selected(recorded: Recorded) -> None:
    """Worker, task, level and pattern select what SQL selects; the worker has three names."""
    run = recorded.run

    def count(condition: str) -> int:
        [row] = rows(run, f"select count(*) as n from logs where {condition}")
        return int(row["n"])

    [worker] = rows(run, "select process, address, name from processes where role = 'worker'")
    by_process = len(select_logs(run, worker=worker["process"]).rows)
    assert by_process == count(f"process = '{worker['process']}'") > 0
    assert len(select_logs(run, worker=worker["address"]).rows) >= by_process
    assert len(select_logs(run, worker=worker["name"]).rows) >= by_process
    assert len(select_logs(run, worker="scheduler").rows) == count("role = 'scheduler'")
    assert len(select_logs(run, key="work-1").rows) == count("key = 'work-1'") >= 7
    assert len(select_logs(run, level="error").rows) == count("level_number >= 40") == 3 * TASKS
    matching = select_logs(run, grep=r"^W (info|print) [01]$")
    assert sorted(matching.rows["message"].to_pylist()) == [
        f"W {kind} {i}" for kind in ("info", "print") for i in (0, 1)
    ]
    assert matching.total == count("true")


@pytest.mark.parametrize(
    ("selection", "error", "message"),
    [
        ({"worker": "nobody"}, UsageError, "No worker or process nobody"),
        ({"level": "loud"}, UsageError, "No level loud"),
        ({"level": "9" * 40}, UsageError, "No level 999"),
        ({"grep": "(a"}, UsageError, "is no regular expression: missing"),
        ({"key": "no-task"}, UnknownTaskError, "no task no-task"),
    ],
)
def test_a_wrong_selection_is_an_error(
    recorded: Recorded, selection: dict[str, str], error: type[StrataError], message: str
) -> None:
    """Each error names the problem in a sentence."""
    with pytest.raises(error, match=re.escape(message)):
        select_logs(recorded.run, **selection)


def test_entries_are_lines_of_text(recorded: Recorded) -> None:
    """A line has time, process, level, logger and message; control characters are spelled out."""
    entries = select_logs(recorded.run, key="work-0", level="ERROR")
    lines = list(entry_lines(entries))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}  worker 0 +ERROR +user\.code +W failed 0", lines[0]
    )
    assert lines[1] == "    W second line"
    assert lines[2] == "    Traceback (most recent call last):"
    assert any(line.endswith(r"W <script>alert(1)</script> \x1b[31m") for line in lines)
    assert note_of(entries) == f"3 of {entries.total:,} entries"


def test_a_story_has_the_records_of_its_task(recorded: Recorded) -> None:
    """The events of a task include what it logged, in their order."""
    events = [e for e in story(recorded.run.task("work-2")).events if e.layer == "log"]
    assert events[0].what == "INFO user.code: W info 2"
    assert len([e for e in events if "failed 2" in e.what and "ZeroDivision" in e.detail]) == 1


def test_the_page_has_warnings_and_errors(recorded: Recorded) -> None:
    """The page has records from WARNING, escaped, and none below."""
    page = make_page(recorded.run)
    assert page.count("W &lt;script&gt;alert(1)&lt;/script&gt; \\x1b[31m") >= TASKS
    assert "<script>alert" not in page
    assert "from the client" in page
    log = page[page.index('<details id="log">') : page.index('<section id="prefixes"')]
    assert "W info" not in log
    assert log.count("<li data-intervals=") == len(select_logs(recorded.run, level="30").rows)

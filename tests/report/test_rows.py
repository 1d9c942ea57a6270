"""Rows in files and on terminals: exact for programs, harmless where people open them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from dask_strata.report.rows import FORMATS, write_rows
from tests.support.synthetic import SECOND, T0, Process, life, new_run, small_run

pytestmark = pytest.mark.long

#: Texts that a spreadsheet runs as formulas, and the same with an apostrophe in front.
FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=cmd|' /C calc'!A0",
    "＝1+1",
]

#: Texts that begin as formulas do and are none, or look like nothing.
PLAIN = ["-1", "+2.5", "-1e-07", "", "a=b", "('x', 0)", "'=1", " x"]

#: Sequences that would change a terminal: colours, title, C1 codes, text from right to left, and
#: characters that are invisible or end a line.
CONTROLS = "\x1b[31mred\x1b]0;title\x07\x9b1mbold\u202etfel\u061c\u2028\u200b\ufeff\U000e0041"
UNSAFE = set("\x07\x9b\u202e\u061c\u2028\u200b\ufeff\U000e0041")


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    """Texts that a spreadsheet would run have an apostrophe in front; others are unchanged."""
    path = tmp_path / "rows.csv"
    write_rows(pa.table({"=name": FORMULAS + PLAIN}), "csv", path)
    with path.open(newline="", encoding="utf-8") as file:
        name, *found = [cells[0] if cells else "" for cells in csv.reader(file)]
    assert name == "'=name"
    assert found == ["'" + text for text in FORMULAS] + PLAIN


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_other_formats_have_the_exact_texts(form: str, tmp_path: Path) -> None:
    """JSON and Parquet are for programs: every text is as it was."""
    path = tmp_path / f"rows.{form}"
    write_rows(pa.table({"name": FORMULAS + PLAIN}), form, path)
    found = (
        json.loads(path.read_text()) if form == "json" else pd.read_parquet(path).to_dict("records")
    )
    assert [row["name"] for row in found] == FORMULAS + PLAIN


def on_a_terminal(*command: str) -> tuple[str, int]:
    """Return what a command writes to a terminal, and its exit status."""
    main, other = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dask_strata", *command],
        stdout=other,
        stderr=other,
        env=os.environ | {"COLUMNS": "1000"},
    ) as process:
        os.close(other)
        parts = []
        try:
            while part := os.read(main, 65536):
                parts.append(part)
        except OSError:  # Linux: the other end is closed
            pass
    os.close(main)
    return b"".join(parts).decode(), process.returncode


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "parquet"])
def test_nothing_controls_the_terminal(tmp_path: Path, form: str) -> None:
    """On a terminal, control characters are spelled out; through a pipe, they are exact."""
    run = small_run(tmp_path / "run")
    sql = "select '" + CONTROLS + "' as text"
    shown, status = on_a_terminal("query", str(run), sql, "--format", form)
    assert status == 0
    assert "red" in shown
    assert "bold" in shown
    assert not UNSAFE & set(shown)
    assert not re.search(r"\x1b(?!\[[012]m)", shown)  # bold and dim are our own
    if form == "json":
        assert json.loads(shown) == [{"text": CONTROLS}]
    piped = subprocess.run(
        [sys.executable, "-m", "dask_strata", "query", str(run), sql, "--format", form],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    if form == "csv":
        assert list(csv.reader(io.StringIO(piped)))[1] == [CONTROLS]
    if form == "json":
        assert json.loads(piped) == [{"text": CONTROLS}]


def hostile_run(folder: Path) -> Path:
    """Make a run whose texts all contain `CONTROLS`: keys, errors, files, names, reasons.

    It has rows for each command: Darshan's, chunks, a profile, and a file of an unknown mode.
    """
    run = new_run(folder)
    scheduler = Process(run, "scheduler-1")
    rows = life(CONTROLS, 1, 2, CONTROLS)
    scheduler.write("scheduler_transitions", [row | {"prefix": CONTROLS} for row in rows])
    worker = {"time": T0, "worker": CONTROLS, "name": CONTROLS, "action": "add"}
    scheduler.write("worker_events", [worker])
    scheduler.write("losses", [{"time": T0, "what": CONTROLS, "reason": CONTROLS}])
    scheduler.write("log_events", [{"time": T0, "topic": CONTROLS}])
    scheduler.write("job", [{"name": CONTROLS, "value": CONTROLS}])
    reading = {"key": CONTROLS, "uri": f"/data/{CONTROLS}"}
    events = {"unit": "entries", "first": 0, "last": 9, "tree": CONTROLS, "dataset": CONTROLS}
    scheduler.write("claimed_inputs", [reading | events])
    scheduler.end()
    process = Process(run, "worker-1", address=CONTROLS, name=CONTROLS, host=CONTROLS, pid=1)
    second, third = T0 + SECOND, T0 + 2 * SECOND
    execution = {"execution": 0, "key": CONTROLS, "worker": CONTROLS}
    measured = {"kind": "thread", "thread": 1, "start": second, "stop": third}
    process.write("executions", [execution | measured | {"outcome": "finished"}])
    opened = execution | {"uri": f"/data/{CONTROLS}-opened", "mode": CONTROLS, "count": 1}
    process.write("file_opens", [opened])
    seen = execution | {"uri": reading["uri"], "tree": CONTROLS, "first": 0, "last": 9}
    process.write("seen_chunks", [seen | {"dataset": CONTROLS, "build_seconds": 0.5}])
    function = {"name": CONTROLS, "module": CONTROLS, "owner": "library", "package": CONTROLS}
    times = {"time": third, "thread": 1, "total_seconds": 1.0, "own_seconds": 1.0, "ncall": 1}
    process.write("functions", [function | times | {"clock": "wall", "waiting": False}])
    log = {"log": CONTROLS, "file": CONTROLS, "host": CONTROLS, "program": CONTROLS, "nprocs": 1}
    matched = {"worker": CONTROLS, "tied_by": "pid", "certainty": 1.0, "pid": 1, "n_segments": 1}
    process.write("darshan_logs", [log | matched | {"start": second, "stop": third}])
    segment = {"log": CONTROLS, "module": "DXT_POSIX", "operation": "read", "uri": reading["uri"]}
    traced = {"thread": 1, "offset": 0, "length_bytes": 9, "start": second, "stop": third}
    process.write("darshan_segments", [segment | traced])
    counter = {"log": CONTROLS, "module": "POSIX", "uri": reading["uri"], "rank": 0}
    values = {"POSIX_BYTES_READ": 10.0, "POSIX_OPENS": 1.0, CONTROLS: 1.0}
    process.write(
        "darshan_counters", [counter | {"counter": n, "value": v} for n, v in values.items()]
    )
    process.end()
    return run


#: Each command with its exit status, and a text that it prints if it shows the run's rows.
COMMANDS = [
    (["show", "{run}"], 0, "1 task"),
    (["show", "{run}", "--format", "json"], 0, "n_tasks"),
    (["list", "{run}"], 0, "red"),
    (["list", "{run}", "--format", "json"], 0, "synthetic"),
    (["check", "{run}"], 1, "red"),
    (["check", "{run}", "--format", "json"], 1, "red"),
    (["tasks", "{run}"], 0, "red"),
    (["tasks", "{run}", "--format", "json"], 0, "red"),
    (["tasks", "{run}", "--format", "csv"], 0, "red"),
    (["story", "{run}", CONTROLS], 0, "uses /data/"),
    (["story", "{run}", CONTROLS, "--format", "json"], 0, "-opened"),
    (["story", "{run}", f"no {CONTROLS}"], 1, "The record has no task"),
    (["lineage", "{run}", CONTROLS], 0, "-opened"),
    (["lineage", "{run}", CONTROLS, "--format", "json"], 0, "-opened"),
    (["lineage", "{run}", f"/data/{CONTROLS}"], 0, "red"),
    (["lineage", "{run}", f"/data/{CONTROLS}-opened"], 0, "red"),
    (["io", "{run}"], 0, "all logs: 10 B read"),
    *((["io", "{run}", "--by", by], 0, "red") for by in ("task", "prefix", "file", "host")),
    (["io", "{run}", "--format", "json"], 0, "red"),
    (["chunks", "{run}"], 0, "1 chunk: 1 done"),
    (["chunks", "{run}", "--sort", "seconds"], 0, "red"),
    (["chunks", "{run}", "--format", "json"], 0, "red"),
    (["map", "{run}"], 0, "functions"),
    (["map", "{run}", "--format", "json"], 0, "functions"),
    (["profile", "{run}"], 0, "red"),
    (["profile", "{run}", "--format", "json"], 0, "red"),
    (["query", "{run}", f"select '{CONTROLS}' from {CONTROLS}"], 1, "SQL: "),
    (["report", "{run}"], 0, "open it in a browser"),
    (["compact", "{run}"], 0, " of Parquet in "),
    (["show", f"no {CONTROLS}"], 1, "no such folder"),
]


def test_no_command_lets_a_run_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command shows its rows, and spells out the control characters of texts and errors."""
    run = hostile_run(tmp_path / f"run-{CONTROLS}".replace("/", ""))
    monkeypatch.chdir(tmp_path)
    for command, expected, text in COMMANDS:
        arguments = [part.replace("{run}", str(run)) for part in command]
        shown, status = on_a_terminal(*arguments)
        assert status == expected, (command, shown)
        assert text in shown, (command, shown)
        assert not UNSAFE & set(shown), (command, shown)
        # Rich's own colours start from a plain terminal; a run's text "red" must not be coloured.
        assert "\x1b[31mred" not in shown, (command, shown)
        assert "\x1b]" not in shown, (command, shown)

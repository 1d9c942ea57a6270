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
from tests.support.synthetic import T0, Process, life, new_run, small_run

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


def output_on_a_terminal(*command: str) -> str:
    """Return what a command writes to a terminal."""
    main, other = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dask_strata", *command], stdout=other, stderr=other
    ):
        os.close(other)
        parts = []
        try:
            while part := os.read(main, 65536):
                parts.append(part)
        except OSError:  # Linux: the other end is closed
            pass
    os.close(main)
    return b"".join(parts).decode()


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "parquet"])
def test_nothing_controls_the_terminal(tmp_path: Path, form: str) -> None:
    """On a terminal, control characters are spelled out; through a pipe, they are exact."""
    run = small_run(tmp_path / "run")
    sql = "select '" + CONTROLS + "' as text"
    shown = output_on_a_terminal("query", str(run), sql, "--format", form)
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
    """Make a run whose texts all contain `CONTROLS`: keys, errors, files, names, reasons."""
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
    scheduler.write("claimed_inputs", [reading])
    scheduler.end()
    return run


COMMANDS = [
    ["show", "{run}"], ["show", "{run}", "--format", "json"], ["list", "{run}"],
    ["list", "{run}", "--format", "json"], ["check", "{run}"],
    ["check", "{run}", "--format", "json"],
    ["tasks", "{run}"], ["tasks", "{run}", "--format", "json"],
    ["tasks", "{run}", "--format", "csv"],
    ["story", "{run}", CONTROLS], ["story", "{run}", CONTROLS, "--format", "json"],
    ["story", "{run}", f"no {CONTROLS}"], ["lineage", "{run}", CONTROLS],
    ["lineage", "{run}", CONTROLS, "--format", "json"], ["lineage", "{run}", f"/data/{CONTROLS}"],
    ["io", "{run}"], ["chunks", "{run}"], ["map", "{run}"], ["map", "{run}", "--format", "json"],
    ["profile", "{run}"], ["query", "{run}", f"select '{CONTROLS}' from {CONTROLS}"],
    ["report", "{run}"], ["compact", "{run}"], ["show", f"no {CONTROLS}"],
]  # fmt: skip


@pytest.mark.long
def test_no_command_lets_a_run_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command spells the control characters of a run's texts out, errors included."""
    run = hostile_run(tmp_path / f"run-{CONTROLS}".replace("/", ""))
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        shown = output_on_a_terminal(*(part.replace("{run}", str(run)) for part in command))
        assert shown.strip(), command
        assert not UNSAFE & set(shown), (command, shown)
        # Rich's own colours start from a plain terminal; a run's text "red" must not be coloured.
        assert "\x1b[31mred" not in shown, (command, shown)
        assert "\x1b]" not in shown, (command, shown)

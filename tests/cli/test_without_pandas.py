"""Commands that only read do not import pandas; commands that run users' code can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dask_strata.cli.commands import VERBS
from dask_strata.cli.without_pandas import READERS
from tests.support.synthetic import small_run

pytest.importorskip("pandas")

_PROGRAM = """
import sys
from dask_strata.cli import main
sys.argv = ["dask-strata", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print("status", end.code, "pandas", "pandas" in sys.modules)
"""


def _lines(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", ["show", "check", "tasks", "query"])
def test_a_command_that_reads_imports_no_pandas(tmp_path: Path, command: str) -> None:
    """A command that only reads gives its answer without pandas, though it is installed."""
    sql = ["select count(*) from tasks"] if command == "query" else []
    found = _lines(command, str(small_run(tmp_path / "r")), *sql)
    assert len(found) > 1
    assert found[-1].startswith("status ")
    assert found[-1].endswith("pandas False")


def test_a_recorded_script_imports_pandas(tmp_path: Path) -> None:
    """A script that is recorded imports pandas as it does without dask-strata."""
    script = tmp_path / "script.py"
    script.write_text("import pandas\nprint('script with', pandas.__name__)\n")
    assert "script with pandas" in _lines("record", "-o", str(tmp_path), str(script))


def test_readers_are_commands() -> None:
    """Each name in the list of readers is that of a command."""
    assert set(VERBS) >= READERS

"""Rows of any values in all tables: no command fails, and none lets a run control the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dask_strata.cli import cli
from dask_strata.schema import RECORDED, Column
from dask_strata.store.bulk_writer import BulkRun
from dask_strata.store.manifest import Manifest

T0 = 1_700_000_000_000_000_000
ESCAPE = "\x1b[31m<script>"
KEY = "k-1"

COMMANDS = (
    "show",
    "show --format json",
    "why",
    "why --format json",
    "logs",
    "logs --level INFO",
    "profile",
    "profile --source dask",
    "tasks --by span",
    "check",
    f"story {KEY}",
)

#: Rows that name processes, so that others lead to them.
_OF_PROCESSES = ("processes", "clock_offsets")


def _texts(kind: str) -> Any:
    return {"bool": True, "text": ESCAPE, "long": ESCAPE, "key": KEY}.get(kind)


def nothing(_: Column, __: int) -> Any:
    """Return null."""
    return None


def negative(column: Column, i: int) -> Any:
    """Return a number below 0, a time, or a text with control characters."""
    numbers = {"time": T0 + i, "seconds": -1.5, "bytes": -5, "int": -3, "float": -1.0}
    return numbers.get(column.kind, _texts(column.kind))


def huge(column: Column, i: int) -> Any:
    """Return a number beyond any that is measured, a time, or such a text."""
    numbers = {"seconds": 1e300, "bytes": 1 << 62, "int": 1 << 62, "float": math.inf}
    return ({"time": T0 + i} | numbers).get(column.kind, _texts(column.kind))


@pytest.mark.long
@pytest.mark.parametrize("value", [nothing, negative, huge])
def test_no_command_fails(tmp_path: Path, value: Callable[[Column, int], Any]) -> None:
    bulk = BulkRun(tmp_path)
    for name, table in RECORDED.items():
        if name in _OF_PROCESSES:
            continue
        columns = [c for c in table.columns if c.name not in ("process", "seq")]
        rows = [{c.name: value(c, i) for c in columns} for i in range(3)]
        rows = [{k: v for k, v in row.items() if v is not None} for row in rows]
        bulk.write_rows(name, rows)
    waiting = {"time": T0, "key": KEY, "start_state": "released", "finish_state": "waiting"}
    bulk.write_rows("scheduler_transitions", [waiting])
    run = bulk.finish(Manifest("0a1b2c3d", "n", T0, "0"))
    for line in COMMANDS:
        command, *options = line.split()
        done = CliRunner().invoke(cli, [command, str(run), *options])
        assert done.exit_code in (0, 1), (line, done.output)
        assert "bug in dask-strata" not in done.output, (line, done.output)
        assert "\x1b[31m" not in done.output, line

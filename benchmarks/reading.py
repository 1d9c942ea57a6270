"""Cost of the commands of dask-strata on a run: seconds, CPU and peak memory of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

#: Query of the command `query`.
QUERY = "select prefix, count(*) as n from tasks group by prefix order by n desc limit 5"


def commands(run: Path, page: Path) -> dict[str, list[str]]:
    """Return the measured commands, by name."""
    return {
        "show": ["show", str(run)],
        "check": ["check", str(run)],
        "query": ["query", str(run), QUERY],
        "report": ["report", str(run), "-o", str(page)],
    }


def measured(arguments: list[str]) -> dict[str, float]:
    """Run one command; return its exit code, time and memory."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "dask_strata", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit": child.returncode,
        "seconds": time.perf_counter() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024,
    }


def read(run: Path, scratch: Path) -> dict[str, dict[str, float]]:
    """Run all commands on a run, print and return their costs."""
    found = {}
    for name, arguments in commands(run, scratch / "page.html").items():
        found[name] = measured(arguments)
        cost = found[name]
        print(
            f"  {name}: exit {cost['exit']}, {cost['seconds']:.1f} s, {cost['cpu']:.1f} s of CPU, "
            f"{cost['peak'] / 1e6:.0f} MB",
            flush=True,
        )
    return found


def table(found: dict[str, dict[str, float]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [
        "| command | exit | seconds | CPU seconds | peak memory |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {c['exit']} | {c['seconds']:.1f} | {c['cpu']:.1f} "
            f"| {c['peak'] / 1e6:.0f} MB |"
            for name, c in found.items()
        ),
    ]

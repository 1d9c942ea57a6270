"""Workloads with a planted cause, run under ``dask-strata record``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parents[1] / "diagnosis" / "workloads"
HEALTHY = Path(__file__).parents[1] / "diagnosis" / "healthy"

#: Longest time of a workload in seconds.
_LONGEST = 180


@dataclass(frozen=True)
class Recorded:
    """A workload that was recorded.

    Attributes
    ----------
    path : Path
        The run's folder.
    truth : dict
        What the script printed last: cause, seconds, planted, also, facts. Empty if it failed.
    status : int
        Its exit status.
    """

    path: Path
    truth: dict[str, Any]
    status: int


def names(folder: Path = WORKLOADS) -> list[str]:
    """Return the names of all workloads in a folder, such as ``memory/spill_1``."""
    depth = "*/*.py" if folder == WORKLOADS else "*.py"
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.glob(depth))


def cause_of(name: str) -> str:
    """Return the planted cause of a workload.

    >>> cause_of("memory/killed_worker_1")
    'killed-worker'
    """
    return name.rpartition("/")[2].rpartition("_")[0].replace("_", "-")


def accepted(cause: str) -> set[str]:
    """Return the causes of insights that name a planted one: some are kinds of each other.

    Parameters
    ----------
    cause : str
        The planted cause.
    """
    return _ACCEPTED.get(cause, {cause})


_ACCEPTED = {
    "dependency-failed": {"exception"},
    "killed-worker": {"killed-worker", "lost-worker"},
    "paused": {"paused", "unmanaged-memory"},
    "recomputation": {"recomputation", "lost-worker"},
}


def record(script: Path, runs: Path, *flags: str) -> Recorded:
    """Record a workload, and return its run and what it measured itself.

    Parameters
    ----------
    script : Path
        The script.
    runs : Path
        An empty folder for the run.
    *flags
        Arguments of the script, such as ``--mended``.
    """
    env = os.environ | {"PYTHONPATH": str(WORKLOADS), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "dask_strata", "record", "-o", str(runs), str(script), *flags]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"cause"')]
    found = [path for path in runs.iterdir() if (path / "run.json").exists()]
    assert len(found) == 1, done.stdout + done.stderr
    return Recorded(found[0], json.loads(lines[-1]) if lines else {}, done.returncode)

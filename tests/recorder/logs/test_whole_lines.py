"""A worker's output is passed on in whole lines: those of several workers do not mix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
import sys
from distributed import Client


def write(name):
    for i in range(300):
        os.write(2, f"{name} err {i} ".encode())
        os.write(2, b"x" * 50 + b"\\n")
        print(name, "out", i, flush=True)


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        workers = list(client.scheduler_info()["workers"])
        client.gather([client.submit(write, f"w{n}", workers=[w]) for n, w in enumerate(workers)])
"""


def test_lines_of_workers_stay_whole(tmp_path: Path) -> None:
    """Both streams go to one file, as in a batch job, and lines are written in two parts."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "dask_strata", "record", "-q", "--no-compact", "script.py"]
    output = tmp_path / "output"
    with output.open("wb") as file:
        subprocess.run(
            command, cwd=tmp_path, env=os.environ, stdout=file, stderr=file, check=True, timeout=120
        )
    lines = output.read_text(encoding="utf-8").splitlines()
    for n in range(2):
        for i in range(300):
            assert lines.count(f"w{n} err {i} {'x' * 50}") == 1
            assert lines.count(f"w{n} out {i}") == 1
        out = [line for line in lines if line.startswith(f"w{n} out")]
        assert out == [f"w{n} out {i}" for i in range(300)]

"""Open runs in a process with a limit on its address space: exceeding it is a failure.

``python -m tests.fuzz.child RUN…`` prints one line of JSON for each run: findings and costs.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Bytes of memory, and seconds, that any small run may take.
MEMORY = 1 << 30
SECONDS = 10

#: Limit on the address space in bytes; far above `MEMORY`, as libraries and the arenas of their
#: threads reserve much that they do not use.
_SPACE = 6 << 30


def look(run: Path) -> dict[str, Any]:
    """Open a run as `check`, `show` and `query` do; return findings, time and memory."""
    from dask_strata import open_run
    from dask_strata.analysis.summary import summarize
    from dask_strata.errors import StrataError

    result: dict[str, Any] = {"run": run.name}
    started = time.process_time()
    try:
        opened = open_run(run)
        result["missing"] = [f.text for f in opened.check().missing]
        summarize(opened)
        result["tasks"] = len(opened["tasks"])
    except StrataError as error:
        result["error"] = str(error)
    result["seconds"] = time.process_time() - started
    # Not ru_maxrss: in a forked process it starts with the value of the parent.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    result["memory"] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return result


def look_in_child(*runs: Path, timeout: float = 120) -> list[dict[str, Any]]:
    """Return the results of `look` in a child process; fail if the child fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.child", *map(str, runs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_SPACE, _SPACE))
    for name in sys.argv[1:]:
        sys.stdout.write(json.dumps(look(Path(name))) + "\n")
        sys.stdout.flush()

"""Opens runs in a process that may not take much: memory that is asked for is a failure.

``python -m tests.fuzz.child RUN…`` prints, for each run, what became of it, as a line of JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: The promise: bytes of memory, and seconds, that any small run may take.
MEMORY = 1 << 30
SECONDS = 10

#: Bytes of address space beyond which a process has surely lost its way: libraries, and the
#: arenas of their threads, take much of it without using it.
_SPACE = 6 << 30


def look(run: Path) -> dict[str, Any]:
    """Do what `check`, `show` and `query` do, and return what was said."""
    from dask_strata import open_run
    from dask_strata.analysis.summary import summarize
    from dask_strata.errors import StrataError

    said: dict[str, Any] = {"run": run.name}
    started = time.process_time()
    try:
        opened = open_run(run)
        said["missing"] = [f.text for f in opened.check().missing]
        summarize(opened)
        said["tasks"] = len(opened["tasks"])
    except StrataError as error:
        said["error"] = str(error)
    said["seconds"] = time.process_time() - started
    # Not ru_maxrss: of a forked process that begins with what its parent had.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    said["memory"] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return said


def look_in_child(*runs: Path, timeout: float = 120) -> list[dict[str, Any]]:
    """Return what a child of ours made of runs; it fails if the child did."""
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

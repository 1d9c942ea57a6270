"""Record ten runs of each workload, and keep their summaries beside this script."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WORKLOADS = ("images", "words")
RUNS = 10


def main() -> None:
    """Record the workloads in turns, so that a change of the machine concerns both."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(RUNS):
            for name in WORKLOADS:
                command = [sys.executable, "-m", "dask_strata", "record", "-q", "-o"]
                runs = Path(folder, name)
                subprocess.run([*command, str(runs), str(HERE / f"{name}.py")], check=True)
        for name in WORKLOADS:
            kept = [
                {"name": run.name, **parts(run / "parquet" / "summary.json")}
                for run in sorted(Path(folder, name).iterdir())
            ]
            text = json.dumps(kept, separators=(",", ":")).encode()
            (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def parts(path: Path) -> dict[str, object]:
    """Return the summary of a run, and its values that are compared."""
    stored = json.loads(path.read_bytes())
    return {name: stored[name] for name in ("summary", "compare")}


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of each reader of untrusted input; needs atheris.

    pip install atheris
    python benchmarks/fuzz.py --list
    python benchmarks/fuzz.py --target frame --seconds 60
    python benchmarks/fuzz.py --all --seconds 600 --seed 7 --inputs FOLDER

Each target runs in its own process, which may take 1 GB, and 10 s for one input. Inputs that make
it fail are kept in ``--findings``. The table is written to ``results/fuzz.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.md"
MEMORY_MB, INPUT_SECONDS, LONGEST = 1024, 10, 1 << 16

#: Endings of real files that may be seeds of a target.
INPUTS = {"darshan": ".darshan", "transitions.csv": "worker_transition.csv"}

_LAST = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+)", re.MULTILINE)


def fuzz(name: str, corpus: Path, options: list[str]) -> None:
    """Fuzz one target in this process; atheris exits at the end."""
    import atheris

    sys.path.insert(0, str(ROOT))
    with atheris.instrument_imports(include=["dask_strata"]):
        from tests.fuzz.targets import TARGETS
    with tempfile.TemporaryDirectory() as folder:
        read = TARGETS[name].make(Path(folder))
        atheris.Setup([sys.argv[0], str(corpus), *options], read)
        atheris.Fuzz()


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fuzz one target in a child process and return the statistics of libFuzzer."""
    from tests.fuzz.targets import TARGETS

    arguments.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus, seeds = Path(folder, "corpus"), Path(folder, "seeds")
        corpus.mkdir()
        seeds.mkdir()
        inputs = list(TARGETS[name].seeds(seeds))
        if arguments.inputs and name in INPUTS:
            real = sorted(arguments.inputs.rglob(f"*{INPUTS[name]}"))
            inputs += [_head(p) for p in real[:50]]
        for number, seed in enumerate(inputs):
            (corpus / f"seed-{number}").write_bytes(seed)
        options = [
            f"-max_total_time={arguments.seconds}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-timeout={INPUT_SECONDS}",
            f"-seed={arguments.seed}",
            f"-max_len={LONGEST}",
            f"-artifact_prefix={arguments.findings}/{name}-",
            "-print_final_stats=1",
        ]
        command = [sys.executable, __file__, "--child", name, "--corpus", str(corpus), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, cwd=ROOT
        )
    output = done.stderr + done.stdout
    covered = _LAST.findall(output)
    if done.returncode:
        print(output[-3000:], file=sys.stderr)
    return {
        "target": name,
        "executions": _stat(output, "number_of_executed_units"),
        "seconds": arguments.seconds,
        "coverage": int(covered[-1][0]) if covered else None,
        "memory": _stat(output, "peak_rss_mb"),
        "findings": 1 if done.returncode else 0,
    }


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LONGEST if path.suffix == ".darshan" else 1 << 12)


def _stat(output: str, name: str) -> int | None:
    found = re.search(rf"stat::{name}:\s+(\d+)", output)
    return int(found[1]) if found else None


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    head = ["target", "executions", "seconds", "edges covered", "peak MB", "findings"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for row in rows:
        cells = ["not measured" if v is None else f"{v:,}" for v in list(row.values())[1:]]
        lines.append(f"| {row['target']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Fuzz the chosen targets; return 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every target")
    parser.add_argument("--target", action="append", default=[], help="one target; repeatable")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--seconds", type=int, default=20, help="duration for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=Path, help="folder of real files to use as seeds")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir(), "findings"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    arguments, options = parser.parse_known_args()
    if importlib.util.find_spec("atheris") is None:
        print("NOT FUZZED: atheris is not installed here (pip install atheris)", file=sys.stderr)
        return 2
    if arguments.child:
        fuzz(arguments.child, arguments.corpus, options)
        return 0
    if options:
        parser.error(f"unknown options: {' '.join(options)}")
    sys.path.insert(0, str(ROOT))
    from tests.fuzz.targets import TARGETS

    names = list(TARGETS) if arguments.all else arguments.target
    unknown = set(names) - TARGETS.keys()
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}")
    if arguments.list or not names:
        print("\n".join(TARGETS))
        return 0
    rows = []
    for name in names:
        rows.append(measure(name, arguments))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if arguments.all:
        about = (
            "# Coverage-guided fuzzing\n\n"
            f"`python benchmarks/fuzz.py --all --seconds {arguments.seconds} --seed "
            f"{arguments.seed}`: atheris, guided by the edges of dask-strata's Python code; an "
            f"input of at most {LONGEST:,} bytes may take {INPUT_SECONDS} s, and a process "
            f"{MEMORY_MB:,} MB. A finding ends its target.\n\n"
        )
        RESULTS.write_text(about + table(rows) + "\n", encoding="utf-8")
    return int(any(row["findings"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())

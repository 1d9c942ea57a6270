"""What a change of dask-strata costs: two checkouts, measured alternately with one interpreter.

    python benchmarks/checkouts.py BASE CHANGED                 # instructions, CPU and memory
    python benchmarks/checkouts.py BASE CHANGED --repeats 9 --size full
    python benchmarks/checkouts.py BASE CHANGED --no-instructions
    DASK_DASK_STRATA__INTERRUPTIONS=false python benchmarks/checkouts.py BASE CHANGED

BASE and CHANGED are folders with the source tree of a version. Instructions are those of
`instructions.py` of this checkout, counted by valgrind: the scheduler's event loop (`strata`), and
with the recorder's thread (`encoding`). CPU seconds and peak resident memory are those of the
processes of a fresh cluster that runs trivial tasks while it is recorded; see `overhead.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from overhead import ROLES, compare, table

from cluster import HERE, RunError, run_once

VARIANTS = ("none", "strata", "encoding")


def source(checkout: Path) -> Path:
    """Return the folder to import a checkout from."""
    folder = checkout / "src"
    if not (folder / "dask_strata").is_dir():
        raise SystemExit(f"Error: no source tree of dask-strata: {checkout}")
    return folder.resolve()


def instructions(folder: Path, tasks: int) -> dict[str, dict[str, int]]:
    """Return the counts of a checkout by variant."""
    with tempfile.NamedTemporaryFile(suffix=".json") as found:
        subprocess.run(
            [
                sys.executable,
                HERE / "instructions.py",
                *("--tasks", str(tasks), "--variants", ",".join(VARIANTS), "--json", found.name),
            ],
            env=os.environ | {"PYTHONPATH": str(folder)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return json.loads(Path(found.name).read_text(encoding="utf-8"))


def print_instructions(base: Path, changed: Path, tasks: int) -> None:
    """Print the counts of both, with the difference as a share of those without recording."""
    one, other = instructions(base, tasks), instructions(changed, tasks)
    print(f"{'instructions':<16}{'base':>16}{'changed':>16}{'more, of none':>16}")
    for variant in VARIANTS:
        a, b = (each[variant]["instructions"] for each in (one, other))
        # What the interpreter does without recording differs a little, too.
        more = (b - a - other["none"]["instructions"] + one["none"]["instructions"]) / one["none"][
            "instructions"
        ]
        print(f"{variant:<16}{a:>16,}{b:>16,}{more:>16.2%}")


def recorded(folder: Path, size: str) -> dict:
    """Return the measurements of a recorded cluster of a checkout."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as runs:
            return run_once("a", size, Path(runs))
    finally:
        os.environ.pop("PYTHONPATH")
        if path is not None:
            os.environ["PYTHONPATH"] = path


def print_processes(base: Path, changed: Path, repeats: int, size: str) -> None:
    """Print CPU and memory of the processes by role; the first of both alternates."""
    rounds: list[dict[Path, dict]] = []
    for number in range(repeats):
        order = (base, changed) if number % 2 == 0 else (changed, base)
        rounds.append({folder: recorded(folder, size) for folder in order})
        print(f"  {number + 1} of {repeats}", file=sys.stderr, flush=True)

    def both(name: str, get, unit: str) -> dict:
        off, on = ([get(each[folder]) for each in rounds] for folder in (base, changed))
        return compare(name, off, on, unit)

    cpu = [both(f"CPU {role}", lambda r, k=role: r["cpu"][k], "s") for role in ROLES]
    memory = [both(role, lambda r, k=role: r["peak bytes"][k] / 1e6, "MB") for role in ROLES]
    print("\n(without: base; recorded: changed)")
    print(table("the workload", [both("wall", lambda r: r["wall"], "s"), *cpu]))
    print(table("peak memory", memory))
    print(
        f"\nmedian of {repeats}, size {size}: memory more by "
        + ", ".join(f"{row['what']} {row['difference']:+.1f} MB" for row in memory)
    )
    warnings = {line for each in rounds for run in each.values() for line in run["log"]}
    print("\n".join(sorted(warnings)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("base", type=Path, help="folder of the version to compare with")
    add("changed", type=Path, help="folder of the changed version")
    add("--repeats", type=int, default=5, help="pairs of clusters (default: %(default)s)")
    add("--size", choices=("quick", "full"), default="full", help="number of tasks")
    add("--tasks", type=int, default=1000, help="tasks whose instructions are counted")
    add("--no-instructions", action="store_true", help="leave out valgrind")
    options = parser.parse_args(argv)
    base, changed = source(options.base), source(options.changed)
    if base == changed:
        parser.error("both are the same folder; a copy of it shows the noise")
    try:
        if not options.no_instructions:
            print_instructions(base, changed, options.tasks)
        if options.repeats:
            print_processes(base, changed, options.repeats, options.size)
    except (RunError, subprocess.CalledProcessError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

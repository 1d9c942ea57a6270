"""A long recording: does anything grow? The same work with and without, at the same time.

Two clusters of separate processes do the same batches of work side by side, one of them
recorded: memory, descriptors and threads of their processes are compared at equal numbers
of tasks. The recorded run is then read, compacted, and read again.

    python benchmarks/soak.py --tasks 20000
    python benchmarks/soak.py --tasks 1000000 --minutes 30 --keep /tmp/million
    python benchmarks/soak.py --tasks 1000000 --plain-tasks 400000 --minutes 30
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from reading import measured, read, table

from cluster import HERE, environment, process, wait_for, warnings_in

WORKERS = 2
ROLES = ("scheduler", "worker", "nanny", "client")
GOAL_BYTES = 50e6


def side(name: str, runs: Path | None, tasks: int, seconds: float, *options: str) -> list[dict]:
    """Run all batches in one cluster; return its samples."""
    env = environment(runs, {})
    samples = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-soak-")))
        file = folder / "scheduler.json"
        common = ["--scheduler-file", str(file), "--no-dashboard"]
        scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
        stack.enter_context(process("scheduler", [*scheduler, *common], env, folder))
        worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--memory-limit", "2GB"]
        worker += ["--local-directory", str(folder)]
        nannies = [
            stack.enter_context(process(f"worker-{n}", [*worker, *common], env, folder))
            for n in range(WORKERS)
        ]
        command = [sys.executable, str(HERE / "soak_client.py"), wait_for(file)]
        command += ["--tasks", str(tasks), "--seconds", str(seconds), "--workers", str(WORKERS)]
        command += [*options, "--nannies", *map(str, nannies)]
        with (folder / "client.log").open("wb") as log:
            client = subprocess.Popen(
                command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                for line in client.stdout:
                    samples.append(json.loads(line))
                    if len(samples) % 10 == 0:
                        last = samples[-1]
                        print(
                            f"{name}: {last['tasks']:,} tasks, {last['seconds']:.0f} s", flush=True
                        )
            finally:
                client.terminate()
                client.wait()
        if not samples or samples[-1]["tasks"] < tasks:
            print((folder / "client.log").read_text(encoding="utf-8")[-3000:], file=sys.stderr)
        for line in warnings_in(folder):
            print(f"{name}: {line}", file=sys.stderr)
    return samples


def both(runs: Path, tasks: int, plain_tasks: int, seconds: float) -> dict[str, list[dict]]:
    """Run the batches in a recorded and in an unrecorded cluster at once; return all samples."""
    found: dict[str, list[dict]] = {}

    def run(name: str, where: Path | None, n: int) -> None:
        found[name] = side(name, where, n, seconds)

    others = threading.Thread(target=run, args=("nothing", None, plain_tasks))
    others.start()
    run("recorded", runs, tasks)
    others.join()
    return found


def largest(samples: dict, role: str, quantity: str) -> int:
    """Return the largest value of a role's processes."""
    return max((p[quantity] for p in samples["processes"][role]), default=0)


def differences(found: dict[str, list[dict]], role: str, quantity: str) -> list[tuple[int, float]]:
    """Return the difference that recording makes, at equal numbers of finished tasks."""
    plain = {s["tasks"]: s for s in found["nothing"]}
    return [
        (s["tasks"], largest(s, role, quantity) - largest(plain[s["tasks"]], role, quantity))
        for s in found["recorded"]
        if s["tasks"] in plain
    ]


def tenths(pairs: list[tuple[int, float]]) -> list[float]:
    """Return the median of each tenth of a series."""
    n = max(1, len(pairs) // 10)
    values = [value for _, value in pairs]
    return [statistics.median(values[i : i + n]) for i in range(0, len(values) - n + 1, n)][:10]


def slope(pairs: list[tuple[int, float]]) -> float:
    """Return the growth per million tasks, over the second half of a series."""
    half = pairs[len(pairs) // 2 :]
    if len(half) < 2:
        return float("nan")
    return statistics.linear_regression([t for t, _ in half], [v for _, v in half]).slope * 1e6


def growth(found: dict[str, list[dict]]) -> list[str]:
    """Return the lines of the table of growth."""
    lines = [
        (
            "| process | quantity | recorded minus unrecorded, median of each tenth "
            "of common tasks | slope of its second half, per million tasks "
            "| recorded, median of each tenth |"
        ),
        "|---|---|---|---|---|",
    ]
    for role in ROLES:
        for quantity, scale, unit in (("rss", 1e6, "MB"), ("fds", 1, ""), ("threads", 1, "")):
            pairs = differences(found, role, quantity)
            if pairs:
                own = [(s["tasks"], largest(s, role, quantity)) for s in found["recorded"]]
                more, total = (
                    ", ".join(f"{v / scale:.0f}" for v in tenths(series)) for series in (pairs, own)
                )
                growing = f"{slope(pairs) / scale:+.1f} {unit}"
                lines.append(f"| {role} | {quantity} {unit} | {more} | {growing} | {total} |")
    return lines


def folder_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def report(found: dict[str, list[dict]], facts: dict) -> str:
    """Return the result as Markdown."""
    last = {name: samples[-1] for name, samples in found.items()}
    tasks = last["recorded"]["tasks"]
    seconds = ", ".join(
        f"{name} {last[name]['tasks']:,} in {last[name]['seconds'] / 60:.0f} min"
        for name in ("recorded", "nothing")
    )
    return "\n".join(
        [
            "# A long recording",
            "",
            f"`benchmarks/soak.py`: {tasks:,} tasks in one recording ({seconds}; both clusters at",
            "the same time on 2 cores; one scheduler, two workers with nannies and one thread,",
            (
                f"one client each). Python {platform.python_version()}, distributed "
                f"{version('distributed')}."
            ),
            f"Load while it ran: {facts['load']}.",
            "",
            *growth(found),
            "",
            (
                f"On disk: {facts['segment bytes'] / tasks:.0f} bytes a task in segments "
                f"({facts['segment bytes'] / 1e6:.0f} MB), "
                f"{facts['parquet bytes'] / tasks:.0f} compacted."
            ),
            "",
            "Reading it as it was recorded, each command in a fresh process:",
            "",
            *table(facts["reading"]["segments"]),
            "",
            (
                f"Compacting: {facts['compact']['seconds']:.0f} s, "
                f"{facts['compact']['cpu']:.0f} s of CPU, {facts['compact']['peak'] / 1e6:.0f} MB. "
                "Reading it then:"
            ),
            "",
            *table(facts["reading"]["parquet"]),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--plain-tasks", type=int, help="tasks of the unrecorded cluster")
    parser.add_argument("--minutes", type=float, default=0.0, help="least duration")
    parser.add_argument("--keep", type=Path, help="folder to keep the recorded run in")
    parser.add_argument("--results", type=Path, help="folder for soak.md and soak.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes are stopped

    with tempfile.TemporaryDirectory(prefix="strata-soak-") as scratch:
        runs = options.keep or Path(scratch) / "runs"
        plain = options.plain_tasks or options.tasks
        found = both(runs, options.tasks, plain, options.minutes * 60)
        facts: dict = {"load": "{:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg())}
        run = max(runs.glob("*/run.json")).parent
        facts["segment bytes"] = folder_bytes(run)
        facts["reading"] = {"segments": read(run, Path(scratch))}
        facts["compact"] = measured(["compact", str(run)])
        facts["parquet bytes"] = folder_bytes(run)
        facts["reading"]["parquet"] = read(run, Path(scratch))
    text = report(found, facts)
    print(text)
    if options.results:
        (options.results / "soak.md").write_text(text, encoding="utf-8")
        (options.results / "soak.json").write_text(
            json.dumps({"facts": facts, "samples": found}) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()

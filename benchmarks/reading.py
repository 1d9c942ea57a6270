"""Cost of the commands of dask-strata on finalised runs: CPU seconds and peak memory of processes.

Runs of many tasks are simulated (`thousand.py`), one of them is recorded on a local cluster. The
limit next to each cost is that of DuckDB, which counts and sums the same Parquet in a process of
its own.

    python benchmarks/reading.py --tasks 100000 1000000 --recorded 100000
    python benchmarks/reading.py --tasks 10000                      # to test the program
    python benchmarks/reading.py --list 1000                        # the list of 1,000 runs
    python benchmarks/reading.py --compare 50                       # 50 runs of 10,000 tasks
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
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
    """Run one command of dask-strata; return its exit code, time and memory."""
    return measured_program([sys.executable, "-m", "dask_strata", *arguments])


def measured_program(arguments: list[str]) -> dict[str, float]:
    """Run a program; return its exit code, time and memory."""
    began = time.perf_counter()
    child = subprocess.Popen(
        arguments,
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


#: The query of the issue that this benchmark answers.
SUMS = "select prefix, count(*), sum(compute_seconds) from tasks group by 1"

LIMIT = """
import duckdb, sys
for table in ("scheduler_transitions", "tasks"):
    path = f"{sys.argv[1]}/parquet/{table}/*.parquet"
    duckdb.sql(f"select key_id, count(*) from '{path}' group by 1").aggregate("count(*)").fetchall()
path = f"{sys.argv[1]}/parquet/tasks/*.parquet"
print(duckdb.sql(f"select prefix, count(*), sum(compute_seconds) from '{path}' group by 1"))
"""


def finalised_commands(run: Path, page: Path) -> dict[str, list[str]]:
    """Return the commands that are measured on a finalised run, by name."""
    import duckdb

    keys = duckdb.sql(f"select key from '{run}/parquet/keys/*.parquet'")
    prefix = duckdb.sql(f"select any_value(prefix) from '{run}/parquet/tasks/*.parquet'")
    key = keys.limit(1, offset=len(keys) // 2).fetchall()[0][0]
    return {
        "query": ["query", str(run), SUMS],
        "show": ["show", str(run)],
        "check": ["check", str(run)],
        "story": ["story", str(run), key],
        "tasks": ["tasks", str(run), "--prefix", prefix.fetchall()[0][0], "--limit", "20"],
        "report": ["report", str(run), "-o", str(page)],
    }


def measure(run: Path, scratch: Path) -> dict[str, dict[str, float]]:
    """Finalise a run, and measure all commands on it."""
    found = {"compact": measured(["compact", str(run)])}
    for name, arguments in finalised_commands(run, scratch / "page.html").items():
        found[name] = measured(arguments)
    found["limit"] = measured_program([sys.executable, "-c", LIMIT, str(run)])
    for name, cost in found.items():
        print(f"  {name}: {cost['cpu']:.2f} s, {cost['peak'] / 1e6:.0f} MB", flush=True)
    return found


def record(runs: Path, n_tasks: int) -> Path:
    """Record a run of many small tasks on a local cluster; return its folder."""
    from distributed import Client, LocalCluster, wait

    import dask_strata

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        for _ in range(0, n_tasks, 10_000):
            wait(client.map(lambda x: x + 1, range(10_000), pure=False))
    return Path(run.path)


def many(scratch: Path, n_runs: int) -> dict[str, dict[str, float]]:
    """Measure the list of many finalised runs of 1,000 tasks."""
    from thousand import write

    from dask_strata.run.finalise import finalise

    runs = scratch / "runs"
    runs.mkdir()
    for number in range(n_runs):
        write(scratch / "one", workers=2, tasks=500).rename(runs / f"run-{number:04}")
        finalise(runs / f"run-{number:04}")
    first = measured(["list", str(runs)])
    return {"list, first": first, "list": measured(["list", str(runs)])}


def compared(scratch: Path, n_runs: int) -> dict[str, dict[str, float]]:
    """Measure the comparison of runs of 10,000 tasks, with and without their summaries."""
    from thousand import write

    from dask_strata.run.finalise import finalise

    runs = [write(scratch, 10, 1_000, run_id=f"run-{number:03}") for number in range(n_runs)]
    halves = [str(run) for run in runs[: n_runs // 2]], [str(run) for run in runs[n_runs // 2 :]]
    groups = ["compare", "--group", "a", *halves[0], "--group", "b", *halves[1]]
    for run in runs:
        finalise(run)
    return {
        "compare, without summaries": measured(groups),
        "compare": measured(groups),
        "compare, with the page": measured([*groups, "--report", str(scratch / "page.html")]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="*", default=[], help="tasks of simulated runs")
    parser.add_argument("--recorded", type=int, default=0, help="tasks of a recorded run")
    parser.add_argument("--list", type=int, default=0, help="number of runs in a list")
    parser.add_argument("--compare", type=int, default=0, help="number of compared runs")
    parser.add_argument("--scratch", type=Path, help="folder for the runs; kept")
    parser.add_argument("--results", type=Path, help="folder for reading.json")
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    scratch = options.scratch or Path(tempfile.mkdtemp(prefix="strata-reading-"))
    try:
        for n_tasks in options.tasks:
            from thousand import write

            print(f"{n_tasks:,} simulated tasks", flush=True)
            workers = min(1000, max(2, n_tasks // 1000))
            run = write(scratch / str(n_tasks), workers=workers, tasks=n_tasks // workers)
            found[f"{n_tasks:,} tasks"] = measure(run, scratch)
            shutil.rmtree(scratch / str(n_tasks))
        if options.recorded:
            print(f"{options.recorded:,} recorded tasks", flush=True)
            run = record(scratch / "recorded", options.recorded)
            found[f"{options.recorded:,} recorded tasks"] = measure(run, scratch)
        if options.list:
            found[f"{options.list:,} runs"] = many(scratch, options.list)
        if options.compare:
            found[f"{options.compare:,} compared runs"] = compared(scratch, options.compare)
    finally:
        if options.scratch is None:
            shutil.rmtree(scratch)
    for title, costs in found.items():
        print("\n".join(["", f"## {title}", "", *table(costs)]))
    if options.results:
        facts = {"load": os.getloadavg()[0], "costs": found}
        (options.results / "reading.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

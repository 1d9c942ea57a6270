"""Events that a killed process loses: SIGKILL at random times.

A cluster of processes (scheduler, two workers with one thread each, two clients) works, and the
workload marks its events in a file of its own (`loss_work.py`). A worker is killed at a random
time, then a client, then the scheduler. Afterwards the marks are compared with the run:

- **worker**: each beginning and end of a task in the killed process. Dask has a beginning just
  before its mark, and an end just after: the age of a lost end is an upper limit.
- **client**: each submission whose call had returned, at the time before the call.
- **scheduler**: each task whose result had been reported to a client, at the time of its end in
  the worker: an upper limit, by the time of two messages.

The age of an event is the time from its mark to the time just before the kill. An event is
*covered* if its mark precedes a call of `flush` in that process which returned True. Every other
cluster has such calls; the others measure the loss without.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import HERE, environment, process, wait_for

RESULTS = HERE / "results"
VICTIMS = ("worker", "client", "scheduler")
#: Range of the seconds from the previous kill, or from the first tasks, to a kill.
MOMENTS = (0.1, 2.5)
GOAL_MS = 100.0
#: Share of tasks and submissions that flush, in clusters with flushes.
OFTEN = 0.05


@dataclass
class Mark:
    """One line of the workload's file, with its line number."""

    number: int
    pid: int
    time: int
    event: str
    key: str


@dataclass
class Kill:
    """One kill and its losses; ages in milliseconds."""

    cluster: int
    victim: str
    flushes: bool
    after_seconds: float
    load: float
    events: int = 0
    lost: int = 0
    oldest_ms: float = 0.0
    covered: int = 0
    covered_lost: int = 0


def read_marks(path: Path) -> list[Mark]:
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines):
        pid, when, event, key = line.split(" ")
        found.append(Mark(number, int(pid), int(when), event, key))
    return found


def wait_for_work(path: Path, pids: list[int], seconds: float = 60) -> None:
    """Wait until each of these processes has written some marks."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        marks = read_marks(path)
        if all(sum(m.pid == pid for m in marks) > 20 for pid in pids):
            return
        time.sleep(0.02)
    raise RuntimeError(f"no work within {seconds} s: see {path.parent}")


def one_cluster(number: int, rng: random.Random, victims: tuple[str, ...]) -> list[Kill]:
    """Start a cluster, kill some of its processes in turn, and count the lost events."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-loss-")))
        runs, marks, file = folder / "runs", folder / "marks", folder / "scheduler.json"
        env = environment(runs, {}) | {"PYTHONPATH": os.pathsep.join((str(HERE), *path_of_env()))}
        done = []
        with ExitStack() as alive:
            common = ["--scheduler-file", str(file), "--no-dashboard"]
            pids, often = {}, OFTEN if number % 2 else 0.0
            arguments = ["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
            pids["scheduler"] = alive.enter_context(
                process("scheduler", [*arguments, *common], env, folder)
            )
            address = wait_for(file)
            arguments = ["distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1"]
            workers = [
                alive.enter_context(process(name, [*arguments, *common], env, folder))
                for name in ("w0", "w1")
            ]
            clients = [
                alive.enter_context(
                    process(
                        name,
                        ["loss_work", address, str(marks), name, seed, str(often)],
                        env,
                        folder,
                    )
                )
                for name, seed in (("a", str(rng.random())[2:]), ("b", str(rng.random())[2:]))
            ]
            pids["worker"], pids["client"] = workers[0], clients[0]
            wait_for_work(marks, [*workers, *clients])
            for victim in victims:
                after = rng.uniform(*MOMENTS)
                time.sleep(after)
                kill = Kill(number, victim, often > 0, round(after, 3), os.getloadavg()[0])
                when = time.time_ns()
                os.kill(pids[victim], signal.SIGKILL)
                done.append((kill, pids[victim], when))
            for pid in clients[1:]:
                os.kill(pid, signal.SIGKILL)  # SIGTERM would make them wait for the lost scheduler
        compare(runs, read_marks(marks), done)
        return [kill for kill, _, _ in done]


def path_of_env() -> list[str]:
    return [path for path in (os.environ.get("PYTHONPATH"),) if path]


def compare(runs: Path, marks: list[Mark], done: list[tuple[Kill, int, int]]) -> None:
    """Fill in the losses of each kill."""
    from dask_strata import open_run

    [manifest] = runs.glob("*/run.json")
    run = open_run(manifest.parent)
    for kill, pid, when in done:
        [row] = run.rows(
            "select process from processes where pid = ? and role = ?", pid, kill.victim
        )
        before = [m for m in marks if m.time <= when]
        events, flushes = happened(kill.victim, before, pid)
        recorded = recorded_events(run, kill.victim, row["process"])
        lost = [m for m in events if (m.event, m.key) not in recorded]
        last_flush = max(flushes, default=-1)
        covered = [m for m in events if m.number < last_flush]
        kill.events, kill.lost = len(events), len(lost)
        kill.oldest_ms = round(max(((when - m.time) / 1e6 for m in lost), default=0.0), 1)
        kill.covered = len(covered)
        kill.covered_lost = sum((m.event, m.key) not in recorded for m in covered)


def happened(victim: str, marks: list[Mark], pid: int) -> tuple[list[Mark], list[int]]:
    """Return the events of a process, and the line numbers of its successful flushes."""
    own = [m for m in marks if m.pid == pid]
    if victim == "worker":
        return [m for m in own if m.event in ("begin", "end")], flush_calls(own, "ask", "flushed")
    if victim == "client":
        # Calls that returned are certain; their events are at least as old as the call.
        returned = {m.key: m.number for m in own if m.event == "submitted"}
        events = [
            Mark(returned[m.key], m.pid, m.time, m.event, m.key)
            for m in own
            if m.event == "submit" and m.key in returned
        ]
        return events, flush_calls(own, "ask", "flushed")
    reported = {m.key: m.number for m in reversed(marks) if m.event == "heard"}
    ends = {m.key: m for m in marks if m.event == "end" and m.number < reported.get(m.key, -1)}
    events = [Mark(reported[m.key], m.pid, m.time, m.event, m.key) for m in ends.values()]
    found = []
    for each in {m.pid for m in marks}:
        marks_of = [m for m in marks if m.pid == each]
        found += flush_calls(marks_of, "ask-scheduler", "scheduler-flushed")
    return events, found


def flush_calls(marks: list[Mark], call: str, done: str) -> list[int]:
    """Return the line numbers of the calls of one process that succeeded."""
    found, calls = [], {}
    for m in marks:
        if m.event == call:
            calls[m.key] = m.number
        elif m.event == done:
            found.append(calls[m.key])
    return found


def recorded_events(run, victim: str, name: str) -> set[tuple[str, str]]:
    """Return the recorded events of a process, as pairs of event and key."""
    if victim == "worker":
        rows = run.rows(
            "select key, start_state, finish_state from worker_transitions where process = ?", name
        )
        return {("begin", r["key"]) for r in rows if r["finish_state"] == "executing"} | {
            ("end", r["key"])
            for r in rows
            if (r["start_state"], r["finish_state"]) == ("executing", "memory")
        }
    if victim == "client":
        rows = run.rows("select first_key from client_submissions where process = ?", name)
        return {("submit", r["first_key"]) for r in rows}
    rows = run.rows(
        "select key from scheduler_transitions where process = ? and finish_state = 'memory'", name
    )
    return {("end", r["key"]) for r in rows}


def table(kills: list[Kill]) -> str:
    late = f"kills that lost one older than {GOAL_MS:g} ms"
    lines = [
        f"| killed | kills | events seen | lost | oldest lost: median | largest | {late} |",
        "|---|---|---|---|---|---|---|",
    ]
    for victim in VICTIMS:
        killed = [kill for kill in kills if kill.victim == victim and not kill.flushes]
        if killed:
            ages = [kill.oldest_ms for kill in killed]
            lines.append(
                f"| {victim} | {len(killed)} | {sum(k.events for k in killed):,} "
                f"| {sum(k.lost for k in killed):,} | {statistics.median(ages):.0f} ms "
                f"| {max(ages):.0f} ms | {sum(age > GOAL_MS for age in ages)} |"
            )
    lines += ["", "| killed | kills | events seen | covered by a flush | of these lost |"]
    lines.append("|---|---|---|---|---|")
    for victim in VICTIMS:
        killed = [kill for kill in kills if kill.victim == victim and kill.flushes]
        if killed:
            lines.append(
                f"| {victim} | {len(killed)} | {sum(k.events for k in killed):,} "
                f"| {sum(k.covered for k in killed):,} | {sum(k.covered_lost for k in killed):,} |"
            )
    return "\n".join(lines)


def page(kills: list[Kill], seed: int) -> str:
    from dask_strata.config import read_settings

    interval = 1e3 * read_settings().flush_interval
    loads = [kill.load for kill in kills]
    made = (
        f"Made by `python benchmarks/loss.py --kills {len(kills)} --seed {seed}` on "
        f"{time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, a flush every {interval:g} ms, load of the machine at "
        f"the kills {statistics.median(loads):.1f} (median) to {max(loads):.1f}. Definitions of "
        "events and ages: [README](../README.md). All kills: [loss.json](loss.json)."
    )
    return "\n".join(["# Events that a killed process loses", "", made, "", table(kills), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kills", type=int, default=30, help="number of kills, three per cluster  [default: 30]"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of loss.md and .json")
    given = parser.parse_args()
    rng, kills = random.Random(given.seed), []
    while (left := given.kills - len(kills)) > 0:
        kills += one_cluster(len(kills) // len(VICTIMS), rng, VICTIMS[:left])
        print(*map(asdict, kills[-min(left, len(VICTIMS)) :]), sep="\n", flush=True)
    given.results.mkdir(parents=True, exist_ok=True)
    text = page(kills, given.seed)
    (given.results / "loss.md").write_text(text, encoding="utf-8")
    record = {"seed": given.seed, "kills": [asdict(kill) for kill in kills]}
    (given.results / "loss.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(text)
    if any(kill.covered_lost for kill in kills):
        raise SystemExit("events before a successful flush were lost")


if __name__ == "__main__":
    main()

"""Is the record of a trial right? Judged by what tasks and client said of themselves."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dask_strata import Run, open_run
from tests.chaos.cluster import Cluster
from tests.chaos.facts import Fact, alive
from tests.chaos.plan import DISK, NETWORK, Plan

#: What `architecture.md` promises to keep, but for what a killed process saw in its last:
FLUSH_SECONDS = 0.1
_FEW = 4
#: How often a nanny looks after its worker, and Dask hears of its end, on a busy machine.
_SAMPLE_SECONDS = 2.0
#: How long a worker may take to come.
_COMING_SECONDS = 10.0
#: After these Dask ends workers that are at work, so that what a task did may be nobody's news.
_ENDS_WORKERS = (*NETWORK, "restart", "scale-down", "kill-scheduler", "kill-client")
#: After these a task may be cancelled while it runs: what it needs is gone.
_KILLS_WORKERS = ("kill-worker", "kill-nanny", "memory-kill", "folder-read-only")


@dataclass
class Verdict:
    """What is wrong with a record, in words; all empty is as it should be."""

    unreadable: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All of them."""
        return [
            f"{kind}: {text}"
            for kind in ("unreadable", "lost", "wrong", "check")
            for text in getattr(self, kind)
        ]


def judge(plan: Plan, cluster: Cluster, *, slack_seconds: float) -> Verdict:
    """Judge the record of a trial that has ended.

    Parameters
    ----------
    plan : Plan
        What was injected.
    cluster : Cluster
        Where, after it was closed.
    slack_seconds : float
        How much later than promised a record may come on a machine that has much to do.
    """
    verdict = Verdict()
    folders = [path.parent for path in cluster.runs.glob("*/run.json")]
    removed = plan.has(("folder-removed",))
    if not folders and removed:
        return verdict
    if len(folders) != 1:
        verdict.unreadable.append(f"{len(folders)} runs, not one")
        return verdict
    try:
        truth = Truth(plan, cluster, folders[0], FLUSH_SECONDS + slack_seconds)
        read_all(truth.run)
        verdict.lost += [] if removed else few(truth.lost())
        verdict.wrong += few(truth.wrong())
        verdict.check += [] if removed else truth.check()
    except Exception as error:  # noqa: BLE001  whatever fails here is a run that cannot be read
        verdict.unreadable.append(f"{type(error).__name__}: {error}")
    return verdict


def few(texts: list[str]) -> list[str]:
    """Return the first few, and how many more there are."""
    return texts[:_FEW] + [f"and {len(texts) - _FEW} more"] * (len(texts) > _FEW)


def read_all(run: Run) -> None:
    """Read every table of a run, and what the first screen says of it."""
    from dask_strata.analysis.summary import summarize
    from dask_strata.schema import TABLES

    for name in TABLES:
        run[name].to_arrow()
    summarize(run)


class Truth:
    """What is known of a trial, next to its record."""

    def __init__(self, plan: Plan, cluster: Cluster, folder: Path, bound: float) -> None:
        self.plan, self.deaths, self.bound = plan, cluster.deaths, bound
        self.run: Run = open_run(folder)
        self.facts = cluster.facts()
        self.scheduler, self.client = cluster.scheduler.pid, cluster.client.pid
        self._log, self._signalled = cluster.log(), cluster.signalled
        self._full = cluster.full
        self._told: set[tuple[str, str, str]] = set()
        #: Where frames wait in memory, more may be lost with a process: it must be told.
        self.relayed = plan.hidden and plan.has(NETWORK)
        self.waits = plan.has(DISK) or self.relayed

    @cached_property
    def processes(self) -> dict[str, dict[str, Any]]:
        """Processes on record."""
        return {p["process"]: p for p in self.run.rows("select * from processes")}

    @cached_property
    def pids(self) -> dict[int, list[str]]:
        """Names on record of each process of the system."""
        found: dict[int, list[str]] = {}
        for name, row in self.processes.items():
            found.setdefault(row["pid"], []).append(name)
        return found

    @cached_property
    def disturbed(self) -> set[int]:
        """Processes that ended by a signal or with their nanny, and not as Dask ends them."""
        killed = self._signalled | set(self.deaths.killed)
        killed |= {int(p) for p in re.findall(r"Worker process (\d+) was killed by", self._log)}
        orphans = {p for p, parent in self.deaths.parent.items() if parent in self.deaths.killed}
        return killed | orphans

    @cached_property
    def named(self) -> set[str]:
        """Processes of which `check` says that something is missing."""
        return {finding.process for finding in self.run.check().missing}

    def of(self, what: str) -> Iterator[Fact]:
        """Yield facts of one kind, but for those of the task that is made to die."""
        return (f for f in self.facts if f.what == what and not f.key.startswith("hog"))

    def is_due(self, fact: Fact, recorder: int) -> bool:
        """Tell whether a fact must be on record, in the process that was to record it."""
        left = self.deaths.seconds_left(recorder, fact.mono)
        return left is None or left > self.bound

    # Rows that are not there.

    def lost(self) -> list[str]:
        """Find what should be on record and is not."""
        return [
            *self._missing("scheduler", self._of_scheduler(), lambda _: self.scheduler),
            *self._missing("client", self._of_client(), lambda _: self.client),
            *self._missing("worker", self._of_workers(), lambda fact: fact.pid),
            *self._exits(),
        ]

    def _missing(
        self, who: str, facts: list[Fact], recorder: Callable[[Fact], int]
    ) -> Iterator[str]:
        silent = [f for f in facts if not (self.waits and self._is_told(recorder(f)))]
        if silent:
            first = silent[0]
            left = self.deaths.seconds_left(recorder(first), first.mono)
            yield (
                f"{len(silent)} facts are not on record of the {who}, first {first}; "
                f"{left} s before its end"
            )

    def _is_told(self, pid: int) -> bool:
        names = self.pids.get(pid)
        return bool(self.named & set(names)) if names else bool(self.named)

    def _of_scheduler(self) -> list[Fact]:
        finished = {
            row["key"]
            for row in self.run.rows(
                "select distinct key from scheduler_transitions "
                "where start_state = 'processing' and finish_state = 'memory'"
            )
        }
        given = {row["key"] for row in self.run.rows("select distinct key from graph_tasks")}
        due = [f for f in self.of("known") if f.key not in finished]
        due += [f for f in self.of("begin") if f.key not in given]
        return [f for f in due if self.is_due(f, self.scheduler)]

    def _of_client(self) -> list[Fact]:
        sent = {r["first_key"] for r in self.run.rows("select first_key from client_submissions")}
        return [f for f in self.of("known") if f.key not in sent and self.is_due(f, self.client)]

    def _of_workers(self) -> list[Fact]:
        heard = {
            (row["key"], row["worker"])
            for row in self.run.rows(
                "select distinct key, worker from scheduler_transitions "
                "where start_state = 'processing' and finish_state = 'memory'"
            )
        }
        due = [f for f in self.of("end") if self.is_due(f, f.pid)]
        lost = []
        for rows, left_early in (
            # What is cancelled while it runs, as its inputs are lost, is run and does not finish.
            (self._finished(), (*_ENDS_WORKERS, *_KILLS_WORKERS)),
            (self._executed(), _ENDS_WORKERS),
        ):
            there = Counter((pid, key) for pid, key, _ in rows)
            strict = not self.plan.has(left_early)
            for fact in due:
                if not strict and (fact.key, fact.worker) not in heard:
                    continue
                there[fact.pid, fact.key] -= 1
                if there[fact.pid, fact.key] < 0:
                    lost.append(fact)
        return lost

    def _finished(self) -> list[tuple[int, str, str]]:
        """Return the tasks that workers recorded as finished: process, key, address."""
        return [
            (self.processes[row["process"]]["pid"], row["key"], row["worker"])
            for row in self.run.rows(
                "select process, key, worker from worker_transitions "
                "where start_state in ('executing', 'long-running') and finish_state = 'memory'"
            )
        ]

    def _executed(self) -> list[tuple[int, str, str]]:
        return [
            (self.processes[row["process"]]["pid"], row["key"], row["worker"])
            for row in self.run.rows(
                "select process, key, worker from executions where outcome = 'finished'"
            )
        ]

    def _exits(self) -> Iterator[str]:
        """Find workers that we killed, of whose end their nanny does not tell."""
        if self.waits or self.plan.has(("kill-client",)):
            return
        told = " ".join(
            f"{row['reason']};"
            for row in self.run.rows("from worker_events where action = 'process-exit'")
        )
        for pid, moment in self.deaths.killed.items():
            nanny = self.deaths.parent.get(pid, 0)
            to_tell = pid in self.pids and self._records_after(nanny, moment)
            if to_tell and f"pid {pid} was killed by SIGKILL;" not in told:
                yield f"the nanny does not tell that worker {pid} was killed"

    def _records_after(self, pid: int, moment: int) -> bool:
        """Tell whether a process was recorded until well after a moment."""
        wall = moment / 1e9 + time.time() - time.monotonic()
        stops = [self.processes[name]["stop"] for name in self.pids.get(pid, ())]
        enough = wall + self.bound + _SAMPLE_SECONDS
        return any(stop is not None and stop.timestamp() > enough for stop in stops)

    # Rows that should not be there, or say something else.

    def wrong(self) -> list[str]:
        """Find what is on record and is not so."""
        return [
            *self._unknown_keys(),
            *self._repeated(),
            *self._not_finished(),
            *self._not_executed(),
            *self._not_exited(),
        ]

    def _unknown_keys(self) -> Iterator[str]:
        known = {f.key for f in self.facts if f.what == "submitted"}
        for table in ("scheduler_transitions", "worker_transitions", "graph_tasks", "tasks",
                      "attempts", "executions", "transfer_keys"):  # fmt: skip
            keys = {r["key"] for r in self.run.rows(f"select distinct key from {table}")}
            if not keys <= known:
                yield f"{table} has keys that nobody submitted: {sorted(keys - known)[:3]}"

    def _repeated(self) -> Iterator[str]:
        for table in ("scheduler_transitions", "worker_transitions", "executions"):
            for row in self.run.rows(
                f"select process, seq, count(*) as n from {table} group by all having n > 1 limit 1"
            ):
                yield f"{table} has a row {row['n']} times: {row}"

    def _not_finished(self) -> Iterator[str]:
        ended = Counter((f.key, f.worker) for f in self.facts if f.what == "end")
        threads = {(f.key, f.worker, f.thread) for f in self.facts if f.what == "end"}
        for row in self.run.rows(
            "select key, worker, thread, run_id, startstops from scheduler_transitions "
            "where start_state = 'processing' and finish_state = 'memory'"
        ):
            if self._is_told_again(row):
                continue
            ended[row["key"], row["worker"]] -= 1
            if ended[row["key"], row["worker"]] < 0:
                yield f"the scheduler's record has a task finish that did not: {row}"
            if (row["key"], row["worker"], row["thread"]) not in threads:
                yield f"the scheduler's record has a wrong thread: {row}"
        by_process = Counter((f.pid, f.key, f.worker) for f in self.facts if f.what == "end")
        for row in self._finished():
            by_process[row] -= 1
            if by_process[row] < 0:
                yield f"a worker's record has a task finish that did not: {row}"

    def _is_told_again(self, row: dict[str, Any]) -> bool:
        """Tell whether a worker was asked for what it had already: it says so, and runs nothing.

        As it is asked when others that had it were lost, it fetched it or ran it before.
        """
        steps = row["startstops"] or []
        if not any(step["action"] == "compute" for step in steps):
            return row["run_id"] is not None and row["thread"] is None
        told = (row["key"], row["worker"], str(steps))
        if told in self._told:
            return True
        self._told.add(told)
        return False

    def _not_executed(self) -> Iterator[str]:
        began: dict[tuple[int, str, str, int], list[int]] = {}
        for fact in self.facts:
            if fact.what == "begin":
                began.setdefault((fact.pid, fact.key, fact.worker, fact.thread), []).append(fact.ns)
        # A run in whose middle the clock was set has no times that could be compared.
        jumps = sum(i.kind == "clock-jump" for i in self.plan.injections)
        for row in self.run.rows(
            "select process, key, worker, thread, epoch_ns(start) as start, "
            "epoch_ns(stop) as stop from executions"
        ):
            pid = self.processes[row["process"]]["pid"]
            times = began.get((pid, row["key"], row["worker"], row["thread"]), [])
            # SQL has microseconds.
            within = [t for t in times if row["start"] - 1000 <= t <= row["stop"] + 1000]
            if within:
                times.remove(within[0])
            elif jumps and times:
                jumps -= 1
            else:
                yield f"a task is on record as run that was not, or not then: {row}, it was {times}"

    def _not_exited(self) -> Iterator[str]:
        for row in self.run.rows("from worker_events where action = 'process-exit'"):
            pid = int(row["reason"].split()[1])
            if pid not in self.deaths.parent:
                yield f"a process is on record that was not there: {row}"
            if "was killed" in row["reason"] and pid not in self.disturbed:
                yield f"a process is on record as killed that was not: {row}"

    # What `check` says.

    def check(self) -> list[str]:
        """Find what `check` should say and does not, or says and should not."""
        return [*self._not_named(), *self._named_for_nothing()]

    def _is_coming(self, pid: int) -> bool:
        """Tell whether a nanny or its worker began just before the recording ended."""
        [ended] = self.run.rows("select max(stop) as t from processes where role = 'scheduler'")
        if ended["t"] is None:
            return False
        let_go = (ended["t"].timestamp() - time.time() + time.monotonic()) * 1e9
        early = let_go - _COMING_SECONDS * 1e9
        nanny = self.deaths.parent.get(pid)
        family = [p for p, parent in self.deaths.parent.items() if parent == nanny]
        return any(self.deaths.first[p] > early for p in family)

    def _ended_on_a_full_disk(self, pid: int) -> bool:
        """Tell whether a process ended when its last row could not be written."""
        ended = None if alive(pid) else self.deaths.seen.get(pid)
        before, after = self.bound * 1e9, _SAMPLE_SECONDS * 1e9
        return ended is not None and any(
            start - before <= ended <= stop + after for start, stop in self._full
        )

    def _not_named(self) -> Iterator[str]:
        for pid in self.disturbed:
            for name in self.pids.get(pid, ()):
                if self.processes[name]["stop"] is None and name not in self.named:
                    yield f"{name} (pid {pid}) was killed, and check does not say so"

    def _named_for_nothing(self) -> Iterator[str]:
        unrecorded = sum(pid not in self.pids for pid in self.disturbed)
        nameless = unrecorded
        for finding in self.run.check().missing:
            row = self.processes.get(finding.process)
            if row is not None and row["pid"] in self.disturbed:
                continue
            # Who ended while the line was cut could not send its last; nor who was just coming
            # when the client let go, of whom the scheduler takes nothing any more.
            by_comm = row is not None and row["transport"] == "comm"
            if by_comm and (self.relayed or (self.plan.attach and self._is_coming(row["pid"]))):
                continue
            if row is not None and self._ended_on_a_full_disk(row["pid"]):
                continue
            # Who was killed before its first row has a segment, and nothing that says who it was.
            if row is None and finding.process.startswith(("worker-", "nanny-")) and nameless > 0:
                nameless -= 1
                continue
            if finding.process == "workers" and (unrecorded > 0 or self.relayed):
                unrecorded -= 1
                continue
            # Of whoever did not answer when the client let go, that is said, not rows missed.
            if self.plan.attach and finding.text.startswith("recorders: not every recorder"):
                continue
            yield f"{finding.process}: {finding.text}"

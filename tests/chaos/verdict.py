"""Compare the record of a trial with the facts that its tasks and client wrote."""

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
from dask_strata.schema.values import KILLED_BY, PID
from tests.chaos.cluster import Cluster
from tests.chaos.facts import Fact, alive
from tests.chaos.plan import DISK, NETWORK, Plan

#: A killed process may lose the events of this last part of its life, see `architecture.md`.
FLUSH_SECONDS = 0.1
_LISTED = 4
#: Time until a nanny, or Dask, detects the end of a worker on a busy machine.
_DETECTION_SECONDS = 2.0
#: Time that a worker may take to start.
_STARTING_SECONDS = 10.0
#: Faults after which Dask ends busy workers, so that a finished task may be unknown to Dask.
_ENDS_WORKERS = (*NETWORK, "restart", "scale-down", "kill-scheduler", "kill-client")
#: Faults after which a task may be cancelled while it runs, as its inputs are lost.
_KILLS_WORKERS = ("kill-worker", "kill-nanny", "memory-kill", "folder-read-only")


@dataclass
class Verdict:
    """Defects of a record, as sentences; without any, all lists are empty."""

    unreadable: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All defects."""
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
        The injected faults.
    cluster : Cluster
        The cluster, closed.
    slack_seconds : float
        Delay of a flush that is tolerated on a loaded machine, beyond the interval of flushes.
    """
    verdict = Verdict()
    folders = [path.parent for path in cluster.runs.glob("*/run.json")]
    removed = plan.has(("folder-removed",))
    if not folders and removed:
        return verdict
    if len(folders) != 1:
        verdict.unreadable.append(f"{len(folders)} runs instead of one")
        return verdict
    try:
        truth = Truth(plan, cluster, folders[0], FLUSH_SECONDS + slack_seconds)
        read_all(truth.run)
        verdict.lost += [] if removed else first_few(truth.lost())
        verdict.wrong += first_few(truth.wrong())
        verdict.check += [] if removed else truth.check()
    except Exception as error:  # noqa: BLE001  any error means that the run cannot be read
        verdict.unreadable.append(f"{type(error).__name__}: {error}")
    return verdict


def first_few(texts: list[str]) -> list[str]:
    """Return the first few texts, and the number of the others."""
    return texts[:_LISTED] + [f"and {len(texts) - _LISTED} more"] * (len(texts) > _LISTED)


def read_all(run: Run) -> None:
    """Read every table of a run, and compute its summary."""
    from dask_strata.analysis.summary import summarize
    from dask_strata.schema import TABLES

    for name in TABLES:
        run[name].to_arrow()
    summarize(run)


class Truth:
    """Facts of a trial, compared with its record."""

    def __init__(self, plan: Plan, cluster: Cluster, folder: Path, bound: float) -> None:
        self.plan, self.lifetimes, self.bound = plan, cluster.lifetimes, bound
        self.run: Run = open_run(folder)
        self.facts = cluster.facts()
        self.scheduler, self.client = cluster.scheduler.pid, cluster.client.pid
        self._log, self._signalled = cluster.log(), cluster.signalled
        self._full = cluster.full
        self._seen: set[tuple[str, str, str]] = set()
        self.relayed = plan.hidden and plan.has(NETWORK)
        #: Frames may stay in memory for long: a killed process may lose more, and `check` names it.
        self.buffered = plan.has(DISK) or self.relayed

    @cached_property
    def processes(self) -> dict[str, dict[str, Any]]:
        """Rows of the table `processes`, by process."""
        return {p["process"]: p for p in self.run.rows("select * from processes")}

    @cached_property
    def pids(self) -> dict[int, list[str]]:
        """Recorded ids of each pid."""
        found: dict[int, list[str]] = {}
        for name, row in self.processes.items():
            found.setdefault(row["pid"], []).append(name)
        return found

    @cached_property
    def disturbed(self) -> set[int]:
        """Pids of processes that ended by a signal or with their nanny, and not regularly."""
        killed = self._signalled | set(self.lifetimes.killed)
        killed |= {int(p) for p in re.findall(r"Worker process (\d+) was killed by", self._log)}
        orphans = {
            p for p, parent in self.lifetimes.parent.items() if parent in self.lifetimes.killed
        }
        return killed | orphans

    @cached_property
    def named(self) -> set[str]:
        """Processes for which `check` reports missing rows."""
        return {finding.process for finding in self.run.check().incomplete}

    def of(self, kind: str) -> Iterator[Fact]:
        """Yield facts of one kind, without those of tasks that take too much memory."""
        return (f for f in self.facts if f.kind == kind and not f.key.startswith("hog"))

    def is_due(self, fact: Fact, recorder: int) -> bool:
        """Return whether a process must have recorded a fact, as it ran long enough afterwards."""
        left = self.lifetimes.seconds_left(recorder, fact.mono)
        return left is None or left > self.bound

    def lost(self) -> list[str]:
        """Find facts that are missing from the record."""
        return [
            *self._missing("scheduler", self._of_scheduler(), lambda _: self.scheduler),
            *self._missing("client", self._of_client(), lambda _: self.client),
            *self._missing("worker", self._of_workers(), lambda fact: fact.pid),
            *self._exits(),
        ]

    def _missing(
        self, role: str, facts: list[Fact], recorder: Callable[[Fact], int]
    ) -> Iterator[str]:
        missing = [f for f in facts if not (self.buffered and self._is_reported(recorder(f)))]
        if missing:
            first = missing[0]
            left = self.lifetimes.seconds_left(recorder(first), first.mono)
            yield (
                f"{len(missing)} facts are missing from the record of the {role}, first {first}; "
                f"{left} s before its end"
            )

    def _is_reported(self, pid: int) -> bool:
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
        in_graphs = {row["key"] for row in self.run.rows("select distinct key from graph_tasks")}
        due = [f for f in self.of("known") if f.key not in finished]
        due += [f for f in self.of("begin") if f.key not in in_graphs]
        return [f for f in due if self.is_due(f, self.scheduler)]

    def _of_client(self) -> list[Fact]:
        sent = {r["first_key"] for r in self.run.rows("select first_key from client_submissions")}
        return [f for f in self.of("known") if f.key not in sent and self.is_due(f, self.client)]

    def _of_workers(self) -> list[Fact]:
        known = {
            (row["key"], row["worker"])
            for row in self.run.rows(
                "select distinct key, worker from scheduler_transitions "
                "where start_state = 'processing' and finish_state = 'memory'"
            )
        }
        due = [f for f in self.of("end") if self.is_due(f, f.pid)]
        lost = []
        for rows, exempt in (
            # A task that is cancelled while it runs, as its inputs are lost, is not finished.
            (self._finished(), (*_ENDS_WORKERS, *_KILLS_WORKERS)),
            (self._executed(), _ENDS_WORKERS),
        ):
            recorded = Counter((pid, key) for pid, key, _ in rows)
            strict = not self.plan.has(exempt)
            for fact in due:
                if not strict and (fact.key, fact.worker) not in known:
                    continue
                recorded[fact.pid, fact.key] -= 1
                if recorded[fact.pid, fact.key] < 0:
                    lost.append(fact)
        return lost

    def _finished(self) -> list[tuple[int, str, str]]:
        """Return pid, key and address of each task that a worker recorded as finished."""
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
        """Find killed workers whose end is missing from the record of their nanny."""
        if self.buffered or self.plan.has(("kill-client",)):
            return
        reasons = " ".join(
            f"{row['reason']};"
            for row in self.run.rows("from worker_events where action = 'process-exit'")
        )
        for pid, moment in self.lifetimes.killed.items():
            nanny = self.lifetimes.parent.get(pid, 0)
            due = pid in self.pids and self._records_after(nanny, moment)
            if due and f"{PID}{pid} {KILLED_BY}SIGKILL;" not in reasons:
                yield f"the record of the nanny lacks that worker {pid} was killed"

    def _records_after(self, pid: int, moment: int) -> bool:
        """Return whether a process was recorded until well after a moment."""
        wall = moment / 1e9 + time.time() - time.monotonic()
        stops = [self.processes[name]["stop"] for name in self.pids.get(pid, ())]
        enough = wall + self.bound + _DETECTION_SECONDS
        return any(stop is not None and stop.timestamp() > enough for stop in stops)

    def wrong(self) -> list[str]:
        """Find rows that contradict the facts."""
        return [
            *self._unknown_keys(),
            *self._repeated(),
            *self._not_finished(),
            *self._not_executed(),
            *self._not_exited(),
        ]

    def _unknown_keys(self) -> Iterator[str]:
        submitted = {f.key for f in self.facts if f.kind == "submitted"}
        for table in ("scheduler_transitions", "worker_transitions", "graph_tasks", "tasks",
                      "attempts", "executions", "transfer_keys"):  # fmt: skip
            keys = {r["key"] for r in self.run.rows(f"select distinct key from {table}")}
            if not keys <= submitted:
                yield f"{table} has keys that were not submitted: {sorted(keys - submitted)[:3]}"

    def _repeated(self) -> Iterator[str]:
        for table in ("scheduler_transitions", "worker_transitions", "executions"):
            for row in self.run.rows(
                f"select process, seq, count(*) as n from {table} group by all having n > 1 limit 1"
            ):
                yield f"{table} has a row {row['n']} times: {row}"

    def _not_finished(self) -> Iterator[str]:
        ended = Counter((f.key, f.worker) for f in self.facts if f.kind == "end")
        threads = {(f.key, f.worker, f.thread) for f in self.facts if f.kind == "end"}
        for row in self.run.rows(
            "select key, worker, thread, run_id, startstops from scheduler_transitions "
            "where start_state = 'processing' and finish_state = 'memory'"
        ):
            if self._is_repeated(row):
                continue
            ended[row["key"], row["worker"]] -= 1
            if ended[row["key"], row["worker"]] < 0:
                yield f"the scheduler's record has a task as finished that did not finish: {row}"
            if (row["key"], row["worker"], row["thread"]) not in threads:
                yield f"the scheduler's record has a wrong thread: {row}"
        by_process = Counter((f.pid, f.key, f.worker) for f in self.facts if f.kind == "end")
        for row in self._finished():
            by_process[row] -= 1
            if by_process[row] < 0:
                yield f"a worker's record has a task as finished that did not finish: {row}"

    def _is_repeated(self, row: dict[str, Any]) -> bool:
        """Return whether a transition reports a result that its worker had already.

        The scheduler assigns a task again after it lost other replicas. A worker that has the
        result, computed or fetched before, reports it again without executing the task.
        """
        steps = row["startstops"] or []
        if not any(step["action"] == "compute" for step in steps):
            return row["run_id"] is not None and row["thread"] is None
        steps_of = (row["key"], row["worker"], str(steps))
        if steps_of in self._seen:
            return True
        self._seen.add(steps_of)
        return False

    def _not_executed(self) -> Iterator[str]:
        began: dict[tuple[int, str, str, int], list[int]] = {}
        for fact in self.facts:
            if fact.kind == "begin":
                began.setdefault((fact.pid, fact.key, fact.worker, fact.thread), []).append(fact.ns)
        # An execution during which the clock was set has no times that can be compared.
        jumps = sum(i.kind == "clock-jump" for i in self.plan.injections)
        for row in self.run.rows(
            "select process, key, worker, thread, epoch_ns(start) as start, "
            "epoch_ns(stop) as stop from executions"
        ):
            pid = self.processes[row["process"]]["pid"]
            times = began.get((pid, row["key"], row["worker"], row["thread"]), [])
            # DuckDB rounds to microseconds.
            within = [t for t in times if row["start"] - 1000 <= t <= row["stop"] + 1000]
            if within:
                times.remove(within[0])
            elif jumps and times:
                jumps -= 1
            else:
                yield f"an execution that did not happen, or not then: {row}, its begins: {times}"

    def _not_exited(self) -> Iterator[str]:
        for row in self.run.rows("from worker_events where action = 'process-exit'"):
            pid = int(row["reason"].split()[1])
            if pid not in self.lifetimes.parent:
                yield f"the end of a process that did not exist: {row}"
            if KILLED_BY in row["reason"] and pid not in self.disturbed:
                yield f"a process is recorded as killed that was not: {row}"

    def check(self) -> list[str]:
        """Find missing and unjustified findings of `check`."""
        return [*self._unnamed(), *self._wrongly_named()]

    def _was_starting(self, pid: int) -> bool:
        """Return whether a nanny or its worker started just before the recording ended."""
        [ended] = self.run.rows("select max(stop) as t from processes where role = 'scheduler'")
        if ended["t"] is None:
            return False
        end = (ended["t"].timestamp() - time.time() + time.monotonic()) * 1e9
        early = end - _STARTING_SECONDS * 1e9
        nanny = self.lifetimes.parent.get(pid)
        family = [p for p, parent in self.lifetimes.parent.items() if parent == nanny]
        return any(self.lifetimes.first[p] > early for p in family)

    def _ended_on_a_full_disk(self, pid: int) -> bool:
        """Return whether a process ended while the disk was full, without its last row."""
        ended = None if alive(pid) else self.lifetimes.last.get(pid)
        before, after = self.bound * 1e9, _DETECTION_SECONDS * 1e9
        return ended is not None and any(
            start - before <= ended <= stop + after for start, stop in self._full
        )

    def _unnamed(self) -> Iterator[str]:
        for pid in self.disturbed:
            for name in self.pids.get(pid, ()):
                if self.processes[name]["stop"] is None and name not in self.named:
                    yield f"{name} (pid {pid}) was killed, and check does not report it"

    def _wrongly_named(self) -> Iterator[str]:
        unrecorded = sum(pid not in self.pids for pid in self.disturbed)
        unidentified = unrecorded
        for finding in self.run.check().incomplete:
            row = self.processes.get(finding.process)
            if row is not None and row["pid"] in self.disturbed:
                continue
            # Processes that ended while the line was cut could not send their last rows, and the
            # scheduler ignores those that were starting when the recording ended.
            by_comm = row is not None and row["transport"] == "comm"
            if by_comm and (self.relayed or (self.plan.attach and self._was_starting(row["pid"]))):
                continue
            if row is not None and self._ended_on_a_full_disk(row["pid"]):
                continue
            # A process killed before its first row has a segment, but no row with its pid.
            if (
                row is None
                and finding.process.startswith(("worker-", "nanny-"))
                and unidentified > 0
            ):
                unidentified -= 1
                continue
            if finding.process == "workers" and (unrecorded > 0 or self.relayed):
                unrecorded -= 1
                continue
            # This finding is about processes that did not reply to the detach, not about rows.
            if self.plan.attach and finding.text.startswith("recorders: not every recorder"):
                continue
            yield f"{finding.process}: {finding.text}"

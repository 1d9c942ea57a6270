"""Hypothesis strategies for small synthetic runs with any rows about a few keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dask_strata.schema import wire_key
from dask_strata.store.manifest import Manifest
from tests.support.synthetic import SECOND, T0, Process, new_run

#: Keys of several prefixes, and keys that are equal in text but not in type.
KEYS = [
    wire_key(key)
    for key in ("a-1", "a-2", "b-1", ("a", 1), "('a', 1)", 7, "7", b"7", "sum-0a1b2c3d")
]
WORKERS = ["tcp://w:1", "tcp://w:2"]
CLIENTS = ["Client-a", "Client-b"]

Rows = list[dict[str, Any]]

keys = st.sampled_from(KEYS)
#: Few different times, so that rows of a key, of a worker and of several keys have the same.
times = st.integers(0, 40).map(lambda n: T0 + n * SECOND // 4)
stimuli = st.sampled_from(["s-1", "s-2", "reschedule-3", "steal-4", "handle-worker-cleanup-5"])
numbers = st.integers(0, 3)


def some(values: Any) -> Any:
    """Return the values or None."""
    return st.none() | values


def lists(most: int, **columns: Any) -> Any:
    """Return rows of a table."""
    return st.lists(st.fixed_dictionaries(columns), max_size=most)


@st.composite
def intervals(draw: Any) -> list[list[Any]] | None:
    """Phases of an attempt, as a worker reports them."""
    action = st.sampled_from(["compute", "transfer", "disk-read", "deserialize"])
    phase = st.tuples(action, times, st.integers(0, SECOND), some(st.sampled_from(WORKERS)))
    return draw(some(st.lists(phase.map(list), max_size=3)))


@st.composite
def lives(draw: Any) -> Rows:
    """One life of a key: a walk of its transitions, with retries, from any state to any state."""
    key, worker = draw(keys), draw(st.sampled_from(WORKERS))
    walks = [
        ["released", "waiting", "processing", "memory", "released", "forgotten"],
        ["released", "waiting", "processing", "released", "waiting", "processing", "memory"],
        ["released", "waiting", "no-worker", "processing", "erred", "forgotten"],
        ["released", "queued", "processing", "memory"],
        ["released", "memory", "released", "waiting", "processing"],
        ["processing", "erred"],
        ["memory", "forgotten"],
    ]
    walk = draw(st.sampled_from(walks))
    time, rows = draw(times), []
    for start, finish in pairwise(walk):
        row: dict[str, Any] = {"time": time, "key": key, "start_state": start}
        row |= {"finish_state": finish, "stimulus_id": draw(stimuli)}
        if finish == "processing" or draw(st.booleans()):
            row["worker"] = worker
        if start == "processing":
            row |= {"worker": worker, "thread": 1, "startstops": draw(intervals())}
            row |= {"run_id": draw(some(numbers)), "nbytes": draw(some(numbers))}
            row["exception"] = draw(some(st.just("ValueError()")))
        rows.append(row)
        time += draw(st.integers(0, 4)) * SECOND // 4
    return rows


SCHEDULER = {
    "worker_events": lists(
        4,
        time=times,
        worker=st.sampled_from(WORKERS),
        action=st.sampled_from(["add", "remove"]),
        stimulus_id=stimuli,
    ),
    "submissions": lists(
        3, submission=st.sampled_from(["u-1", "u-2"]), time=times, client=st.sampled_from(CLIENTS)
    ),
    "graph_tasks": lists(
        8,
        submission=some(st.sampled_from(["u-1", "u-2"])),
        key=keys,
        prefix=some(st.sampled_from(["a", "b"])),
        group=some(st.sampled_from(["a-g", "b-g"])),
        requested=some(st.booleans()),
    ),
    "graph_edges": lists(8, submission=st.sampled_from(["u-1", "u-2"]), key=keys, dependency=keys),
    "present_tasks": lists(2, time=times, key=keys, state=st.sampled_from(["memory", "waiting"])),
    "steals": lists(
        3,
        time=times,
        key=keys,
        source=st.sampled_from(WORKERS),
        destination=st.sampled_from(WORKERS),
        outcome=st.sampled_from(["confirmed", "rejected"]),
        stimulus_id=stimuli,
    ),
}

_STATES = st.sampled_from(
    ["released", "waiting", "ready", "executing", "fetch", "flight", "memory", "error", "forgotten"]
)


def worker_tables(address: str) -> dict[str, Any]:
    """Return the tables of a worker."""
    common = {"key": some(keys), "worker": st.just(address)}
    execution = {"execution": numbers, **common, "run_id": some(numbers)}
    return {
        "worker_transitions": lists(
            12,
            time=times,
            **common,
            start_state=_STATES,
            wanted_state=_STATES,
            finish_state=_STATES,
            stimulus_id=stimuli,
        ),
        "executions": lists(
            5,
            **execution,
            thread=numbers,
            start=times,
            stop=some(times),
            outcome=st.sampled_from(["memory", "erred", "rescheduled"]),
            cpu_seconds=some(st.sampled_from([0.25, 0.5])),
        ),
        "file_opens": lists(3, **execution, uri=st.just("/f"), mode=st.just("r"), count=numbers),
        "task_samples": lists(
            3,
            **execution,
            waiting=some(st.sampled_from(["lock", "gil"])),
            line=some(numbers),
            n_samples=numbers,
            seconds=st.just(0.25),
            first=times,
            last=times,
        ),
        "reports": lists(
            3, **execution, name=st.just("n"), kind=st.just("count"), value=st.just(1.0)
        ),
        "spills": lists(
            4,
            time=times,
            **common,
            action=st.sampled_from(["spill", "unspill"]),
            nbytes=numbers,
            seconds=st.sampled_from([0.25, 0.5]),
        ),
        "transfer_ends": lists(
            3,
            number=numbers,
            end=st.sampled_from(["incoming", "outgoing"]),
            start=times,
            stop=times,
            worker=st.just(address),
            peer=st.sampled_from(WORKERS),
            total_bytes=numbers,
            time=times,
        ),
        "transfer_end_keys": lists(5, number=numbers, key=some(keys), nbytes=numbers),
    }


@dataclass(frozen=True)
class AnyRun:
    """The rows of a run, by process and table."""

    only_client: str | None
    rows: dict[str, dict[str, Rows]]

    def write(self, folder: Path) -> Path:
        """Write the run as segments."""
        new_run(folder)
        manifest = replace(Manifest.read(folder), only_client=self.only_client)
        manifest.write(folder)
        addresses = {"scheduler-1": "tcp://s:1", "worker-1": WORKERS[0], "worker-2": WORKERS[1]}
        for name, tables in self.rows.items():
            process = Process(folder, name, address=addresses[name])
            for table, rows in tables.items():
                if rows:
                    process.write(table, rows)
            process.end()
        return folder


@st.composite
def any_runs(draw: Any) -> AnyRun:
    """Runs of a scheduler and two workers."""
    transitions = [row for rows in draw(st.lists(lives(), max_size=8)) for row in rows]
    transitions.sort(key=lambda row: row["time"])
    scheduler = {"scheduler_transitions": transitions, **draw(st.fixed_dictionaries(SCHEDULER))}
    workers = {
        f"worker-{i}": draw(st.fixed_dictionaries(worker_tables(address)))
        for i, address in enumerate(WORKERS, 1)
    }
    only = draw(some(st.just(CLIENTS[0])))
    return AnyRun(only, {"scheduler-1": scheduler, **workers})

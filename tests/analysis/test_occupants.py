"""Occupants of segments of the critical path, compared with a search through all executions."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.critical_path.data import PathData
from dask_strata.analysis.critical_path.occupants import Occupant, Occupants
from dask_strata.analysis.critical_path.walk import Segment
from tests.conftest import rows
from tests.support.synthetic import SECOND, T0, Process, moves, new_run

V, W, IDLE = "tcp://v:1", "tcp://w:1", "tcp://idle:1"
THREADS = (1, 2, 2**47 + 1)

#: Range of the times, in units of which each is a multiple: many are equal.
LAST, UNIT = 60, SECOND // 10

#: A part of a segment: start, stop, and the attempt in it.
Piece = tuple[int, int, int | None]


def executions(order: random.Random) -> list[tuple[str, int | None, int, int]]:
    """Return worker, thread, start and stop of executions that do not overlap on a thread."""
    found: list[tuple[str, int | None, int, int]] = []
    for worker in (V, W):
        for thread in (*THREADS, None):
            at = order.randrange(9)
            while at < LAST:
                stop = at + order.choice([1, 1, 2, 3, 20])
                found.append((worker, thread, at, stop))
                at = stop + order.choice([0, 0, 1, 4])
    order.shuffle(found)
    return found


def recorded(folder: Path, found: list[tuple[str, int | None, int, int]]) -> Run:
    """Make a run with these executions, some of which wait for results on disk first."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    transitions: list[dict[str, Any]] = []
    for number, (worker, thread, start, stop) in enumerate(found):
        begun = T0 + start * UNIT
        middle = begun + (stop - start) * UNIT // 2 * (number % 5 == 0)
        parts = [("disk-read", begun, middle), ("compute", middle, T0 + stop * UNIT)]
        transitions += moves(
            f"x-{number}",
            (start / 10, "released", "waiting"),
            (start / 10, "waiting", "processing"),
            (stop / 10, "processing", "memory"),
            worker=worker,
            thread=thread,
            startstops=[[action, a, b - a, None] for action, a, b in parts if b > a],
        )
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    scheduler.end()
    return open_run(folder)


def segments(order: random.Random, n: int) -> list[Segment]:
    """Return segments that waited for a thread, for any thread of a worker or for its loop."""
    found = []
    for _ in range(n):
        a, b = sorted(order.sample(range(-5, LAST + 25), 2))
        cause = order.choice(["waiting for a worker", "blocked event loop"])
        worker, thread = order.choice([V, W, IDLE, None]), order.choice([*THREADS, 5, None])
        times = T0 + a * UNIT, T0 + b * UNIT
        found.append(Segment(*times, cause, worker=worker, thread=thread))
    return found


def during(segment: Segment, phases: list[dict[str, Any]], thread: int | None) -> list[Any]:
    """Return starts, stops and attempts of the phases on a thread, clipped to a segment."""
    return [
        (max(row["a"], segment.start), min(row["b"], segment.stop), row["attempt"])
        for row in phases
        if row["worker"] == segment.worker
        and thread in (None, row["thread"])
        and row["a"] < segment.stop
        and row["b"] > segment.start
    ]


def by_thread(segment: Segment, phases: list[dict[str, Any]]) -> list[Piece]:
    """Return for each moment the first execution in it, as few parts as possible."""
    there = during(segment, phases, segment.thread)
    edges = sorted({segment.start, segment.stop, *(t for a, b, _ in there for t in (a, b))})
    pieces: list[Piece] = []
    for a, b in pairwise(edges):
        attempt = next((number for c, d, number in there if c <= a and b <= d), None)
        pieces.append((a, b, attempt))
    return joined(pieces)


def joined(pieces: list[Piece]) -> list[Piece]:
    """Join neighbours with the same attempt."""
    found: list[Piece] = []
    for a, b, attempt in pieces:
        if found and found[-1][1:] == (a, attempt):
            found[-1] = (found[-1][0], b, attempt)
        else:
            found.append((a, b, attempt))
    return found


def longest(segment: Segment, phases: list[dict[str, Any]]) -> int | None:
    """Return the attempt of the longest part of an execution, the first of several."""
    there = during(segment, phases, None)
    return max(there, key=lambda each: each[1] - each[0])[2] if there else None


@pytest.mark.parametrize("seed", [1, 2])
def test_occupants_are_those_of_a_search_through_all_executions(tmp_path: Path, seed: int) -> None:
    """On one thread executions do not overlap; those of one worker do."""
    order = random.Random(seed)
    run = recorded(tmp_path / "r", executions(order))
    phases = rows(
        run,
        "select worker, thread, attempt, key, epoch_ns(start) as a, epoch_ns(stop) as b "
        "from phases where action = 'compute' order by a, b, attempt",
    )
    keys = {row["attempt"]: row["key"] for row in phases}
    waits = segments(order, 300)
    found = Occupants(PathData(run)).of(waits)
    tasks = [part.occupant for part in found if part.occupant and part.occupant.kind == "task"]
    assert len(tasks) > len(waits) / 2
    assert all(each.name == keys[each.attempt] for each in tasks)
    idle = [part.occupant for part in found if part.worker == IDLE]
    assert set(idle) == {None, Occupant("worker", IDLE)}
    for segment in waits:
        pieces = pieces_of(found, segment)
        if segment.cause == "blocked event loop":
            assert pieces == [(segment.start, segment.stop, longest(segment, phases))]
        else:
            assert joined(pieces) == by_thread(segment, phases)
    assert not found


def pieces_of(found: list[Segment], segment: Segment) -> list[Piece]:
    """Take the parts of the next segment from all parts in order."""
    pieces: list[Piece] = []
    while not pieces or pieces[-1][1] < segment.stop:
        part = found.pop(0)
        pieces.append((part.start, part.stop, part.occupant and part.occupant.attempt))
    return pieces

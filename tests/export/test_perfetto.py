"""Traces, read by Perfetto's own trace processor: they have what the tables have."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.critical_path import critical_path
from dask_strata.export.perfetto import samples, tracks
from dask_strata.export.perfetto.samples import BY_SCHEDULER, OF_SCHEDULER, OF_WORKERS
from tests.support.any_runs import AnyRun, any_runs
from tests.support.browsing import CHROMIUM, DRIVER
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run
from tests.support.trace_processor import TraceProcessor, trace_processor

if not (CHROMIUM and DRIVER):
    warnings.warn(
        "chromium is absent: TRACES ARE NOT TESTED (apt-get install chromium chromium-driver)",
        stacklevel=1,
    )
    pytest.skip(
        "chromium or chromedriver is absent: TRACES ARE NOT TESTED", allow_module_level=True
    )

W, V = "tcp://w:1", "tcp://v:1"

SUFFIXES = {"perfetto": ".pftrace", "chrome": ".json"}

both = pytest.mark.parametrize("to", list(SUFFIXES))


@pytest.fixture(scope="module")
def processor() -> Iterator[TraceProcessor]:
    """One browser for all traces."""
    yield from trace_processor()


def exported(run: Run, folder: Path, to: str, *options: str) -> Any:
    """Export a run, and return what was done."""
    return run.export(folder / f"trace{SUFFIXES[to]}", to=to, options=options)


def loaded(processor: TraceProcessor, run: Run, folder: Path, to: str, *options: str) -> Any:
    """Export a run and load the trace, which has no errors; return what was done."""
    done = exported(run, folder, to, *options)
    processor.load(Path(done.path))
    assert processor.errors() == {}
    return done


def of_table(run: Run, table: str, *columns: str) -> list[dict[str, Any]]:
    """Return columns of a table, times in ns."""
    times = {"start", "stop", "time", "enqueued"}
    chosen = ", ".join(f"epoch_ns({c}) as {c}" if c in times else c for c in columns)
    return run.rows(f"select {chosen} from {table}")


def blocks(run: Run) -> dict[int, dict[str, Any]]:
    """Return attempts with their times on their threads, and their phases there."""
    found = {
        a["attempt"]: {**a, "phases": []}
        for a in of_table(
            run, "attempts", "attempt", "key", "worker", "thread", "outcome", "start", "stop"
        )
    }
    for phase in of_table(run, "phases", "attempt", "action", "start", "stop"):
        if phase["action"] != "transfer" and None not in {phase["start"], phase["stop"]}:
            found[phase["attempt"]]["phases"].append(phase)
    for each in found.values():
        if each["phases"]:
            each["start"] = min(p["start"] for p in each["phases"])
            each["stop"] = max(p["stop"] for p in each["phases"])
        if None not in {each["start"], each["stop"]}:
            each["stop"] = max(each["start"], each["stop"])
    return {number: each for number, each in found.items() if each["start"] is not None}


def duration(start: int, stop: int | None) -> int:
    """Return a duration as the processor has it: -1 of what has not ended."""
    return -1 if stop is None else max(0, stop - start)


def uses(run: Run) -> int:
    """Return the number of dependencies between attempts."""
    attempts = run.rows(
        "select attempt, key, key_type, outcome, epoch_ns(start) as start, epoch_ns(stop) as stop "
        "from attempts"
    )
    shown = blocks(run)
    edges = {
        (e["key"], e["key_type"], e["dependency"], e["dependency_type"])
        for e in run.graph_edges.to_arrow().to_pylist()
    }
    number = 0
    for key, kind, dependency, dependency_kind in edges:
        for user in attempts:
            if (user["key"], user["key_type"]) != (key, kind) or user["start"] is None:
                continue
            made = [
                a
                for a in attempts
                if (a["key"], a["key_type"], a["outcome"])
                == (dependency, dependency_kind, "memory")
                and a["stop"] is not None
                and a["stop"] <= user["start"]
            ]
            if made:
                maker = max(made, key=lambda a: (a["stop"], a["attempt"]))["attempt"]
                a, b = shown.get(maker), shown.get(user["attempt"])
                if a and b:
                    number += (a["start"], maker) < (b["start"], user["attempt"])
    return number


def assert_attempts(processor: TraceProcessor, run: Run, to: str) -> None:
    """Check attempts and phases, one by one."""
    prefix = "debug" if to == "perfetto" else "args"
    origin = processor.origin if to == "chrome" else 0
    rows = processor.sql(
        f"select extract_arg(s.arg_set_id, '{prefix}.attempt'), s.ts, s.dur, "
        f"extract_arg(s.arg_set_id, '{prefix}.key'), extract_arg(s.arg_set_id, '{prefix}.outcome'),"
        " p.name from slice s join thread_track k on k.id = s.track_id join thread using (utid)"
        " join process p using (upid) where s.category = 'attempt'"
    )
    expected = blocks(run)
    assert len(rows) == len(expected)
    for attempt, time, dur, key, outcome, process in rows:
        each = expected[int(attempt)]
        assert time + origin == each["start"]
        assert dur == duration(each["start"], each["stop"])
        assert outcome == each["outcome"]
        if to == "perfetto":
            assert key == each["key"].split("\0")[0]  # its tables' texts end there
        assert (each["worker"] or "unknown worker") in process
    phases = Counter(
        (p["action"], p["start"] - origin, duration(p["start"], p["stop"]))
        for each in expected.values()
        for p in each["phases"]
    )
    found = processor.sql("select name, ts, dur from slice where category = 'phase'")
    assert Counter(found) == phases


def assert_threads(processor: TraceProcessor, to: str) -> None:
    """Check that attempts on a track follow each other, with their phases within them."""
    if to == "perfetto":  # in Chrome's format, slices that begin at the same time have no order
        # Events at the same time are within each other.
        nested = processor.sql(
            "select category, count(*) from slice where depth > 0 and category not in "
            "('phase', 'failure', 'worker end', 'note') group by category"
        )
        assert nested == []
    overlapping = processor.sql(
        "select count(*) from (select ts, lag(ts + dur) over (partition by track_id order by ts, "
        "id) as before from slice where category = 'attempt' and dur > 0) where before > ts"
    )
    assert overlapping == [(0,)]


def assert_activity(processor: TraceProcessor, run: Run, *options: str) -> None:
    """Check what a trace has besides attempts."""
    known = processor.sql("select category, count(*), sum(dur) from slice group by category")
    found = {category: (number, total) for category, number, total in known}
    transfers = [
        t
        for t in of_table(run, "transfers", "transfer", "start", "stop", "source", "destination")
        if t["start"] is not None
    ]
    sides = {
        "transfer send": [t for t in transfers if t["source"]],
        "transfer receive": [t for t in transfers if t["source"] or t["destination"]],
    }
    for category, rows in sides.items():
        total = sum(duration(t["start"], t["stop"]) for t in rows)
        assert found.get(category, (0, 0)) == (len(rows), total)
    flows = len(sides["transfer send"]) + (uses(run) if options else 0)
    assert processor.sql("select count(*) from flow") == [(flows,)]
    path = critical_path(run)
    assert found.get("critical path", (0, 0)) == (
        len(path.segments),
        sum(s.stop - s.start for s in path.segments),
    )
    failed = run.rows(
        "select count(*) as n from attempts where outcome in ('erred', 'retried', 'lost')"
    )
    assert found.get("failure", (0, 0)) == (failed[0]["n"], 0)
    assert found.get("worker end", (0, 0)) == (run.n_rows("worker_ends"), 0)


def assert_counters(processor: TraceProcessor, run: Run, to: str) -> None:
    """Check that counters have the samples."""
    expected: Counter[str] = Counter()
    sums: dict[str, float] = {}
    workers = run.worker_samples.to_arrow().to_pylist()
    own = {row["worker"] for row in workers if row["seen_by"] == "worker"}
    groups = [
        (OF_WORKERS, [s for s in workers if s["seen_by"] != "scheduler" or s["worker"] not in own]),
        (BY_SCHEDULER, [s for s in workers if s["seen_by"] == "scheduler"]),
        (OF_SCHEDULER, run.scheduler_samples.to_arrow().to_pylist()),
    ]
    for counters, rows in groups:
        for counter in counters:
            values = [row[counter.column] for row in rows if row[counter.column] is not None]
            name = counter.name if to == "perfetto" else f"{counter.name} {counter.unit or 'value'}"
            expected[name] += len(values)
            sums[name] = sums.get(name, 0) + sum(values)
    found = processor.sql(
        "select t.name, count(*), sum(c.value) from counter c join counter_track t "
        "on t.id = c.track_id group by t.name"
    )
    shown = {str(name): (number, total) for name, number, total in found}
    assert {name: number for name, (number, _) in shown.items()} == +expected
    for name, (_, total) in shown.items():
        assert math.isclose(total, sums[name], rel_tol=1e-9, abs_tol=1e-9)


def assert_same(processor: TraceProcessor, run: Run, to: str, *options: str) -> None:
    """Check all of a loaded trace."""
    assert_attempts(processor, run, to)
    assert_threads(processor, to)
    assert_activity(processor, run, *options)
    assert_counters(processor, run, to)


@both
def test_a_recorded_run(to: str, eventful: Path, processor: TraceProcessor, tmp_path: Path) -> None:
    """Retries, failures, transfers, a lost worker: slices, times, flows and counters are equal."""
    run = open_run(eventful)
    done = loaded(processor, run, tmp_path, to, "dependencies")
    assert done.counts["dependencies"] > 80
    assert done.counts["transfers"] > 0
    assert done.counts["failures"] > 1
    assert done.counts["worker ends"] >= 1
    assert done.counts["counter values"] > 10
    assert_same(processor, run, to, "dependencies")
    names = {name for (name,) in processor.sql("select name from process")}
    assert {"run", "scheduler"} < names
    assert sum(str(name).startswith("worker ") for name in names) == len(
        {row["worker"] for row in of_table(run, "workers", "worker")}
    )


def intervals(*parts: tuple[str, float, float]) -> list[list[Any]]:
    """Return startstops: action, from, to in seconds."""
    return [[action, T0 + int(a * SECOND), int((b - a) * SECOND), None] for action, a, b in parts]


#: Keys that need care in JSON, in Protocol Buffers and on a screen.
KEYS = ["a-1", 'q"uo\\te', "</script>", "line\nbreak\ttab", "ключ-😀", "x" * 3000, "nul\0key", ""]


def odd_run(folder: Path) -> Path:
    """Make a run of what real ones have rarely: overlaps, clocks that differ, unknown ends."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [
            {"time": T0, "worker": W, "name": "w", "action": "add", "stimulus_id": "s"},
            {"time": T0, "worker": V, "name": V, "action": "add", "stimulus_id": "s"},
            {"time": T0 + 8 * SECOND, "worker": V, "action": "remove", "stimulus_id": "gone"},
        ],
    )
    rows = []
    for n, key in enumerate(KEYS):  # one after the other, without a pause, and one of no duration
        rows += life(key, n, n + 1, W)
    rows += life("instant", 8, 8, W)
    rows += life("next", 8, 9, W)
    phased = intervals(
        ("deserialize", 2, 2), ("disk-read", 2, 3), ("compute", 3, 6), ("nested", 4, 5),
        ("overlapping", 5, 7), ("transfer", 1, 2), ("compute", 6.5, 6), ("deserialize", 7, 7),
    )  # fmt: skip
    for key, thread, phases in (
        ("phased", 2, phased),
        ("at the same time", 2, intervals(("compute", 3, 4))),
        ("self", 3, intervals(("compute", 1, 2))),
        ("no thread", None, None),
        ("backwards", 3, intervals(("compute", 5, 4))),
    ):
        rows += moves(
            key,
            (1, "released", "waiting"),
            (1, "waiting", "processing"),
            (7.5, "processing", "memory"),
            worker=W,
            thread=thread,
            startstops=phases,
        )
    rows += moves("unfinished", (2, "released", "waiting"), (3, "waiting", "processing"), worker=V)
    rows += moves("under way", (2, "released", "waiting"), (4, "waiting", "processing"), worker=W)
    rows += moves(
        "failed",
        (2, "released", "waiting"),
        (3, "waiting", "processing"),
        (4, "processing", "erred"),
        worker=W,
        thread=2,
        exception="ValueError('\x01 \\ \"')",
        startstops=intervals(("compute", 7, 8)),
    )
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    edges = [("self", "self"), ("next", "a-1"), ("next", "instant"), ("a-1", "next")]
    scheduler.write(
        "graph_edges",
        [{"submission": "u", "key": key, "dependency": other} for key, other in edges],
    )
    scheduler.write("submissions", [{"submission": "u", "time": T0, "client": "Client-a"}])
    scheduler.write(
        "graph_tasks",
        [
            {"submission": "u", "key": key, "span": span}
            for key, span in (("self", "i"), ("next", "o"))
        ],
    )
    scheduler.write(
        "spans",
        [
            {"time": T0, "span": "o", "name": "outer", "tags": '["outer"]', "enqueued": T0 + 7},
            {
                "time": T0,
                "span": "i",
                "name": "outer / inner",
                "tags": '["outer", "inner"]',
                "parent": "o",
                "enqueued": T0 + SECOND // 2,
            },
            {"time": T0, "span": "e", "name": "empty", "tags": '["empty"]', "enqueued": T0},
        ],
    )
    scheduler.write("loop_blocks", [{"start": T0, "stop": T0 + SECOND, "seconds": 1.0}])
    scheduler.end()
    worker = Process(folder, "worker-1", address=W, name="w", nthreads=3)
    ends = [
        {"number": 1, "end": "incoming", "start": T0, "stop": T0 + 2 * SECOND, "peer": V},
        {"number": 2, "end": "incoming", "start": T0 + 1, "stop": T0 + SECOND, "peer": V},
        {"number": 3, "end": "incoming", "start": T0 + SECOND, "stop": T0, "peer": V},
        {"number": 4, "end": "outgoing", "start": T0 + SECOND, "stop": T0 + SECOND, "peer": None},
        {"number": 5, "end": "incoming", "start": None, "stop": T0, "peer": V},
    ]
    worker.write("transfer_ends", [{"worker": W, "total_bytes": 5, **end} for end in ends])
    worker.write(
        "worker_samples",
        [
            {"time": T0 + n, "worker": W, "seen_by": "worker", "rss_bytes": n, "cpu_percent": value}
            for n, value in enumerate([0.5, None, 1e300, 100.0])
        ],
    )
    worker.end()
    return folder


@both
def test_an_odd_run(to: str, processor: TraceProcessor, tmp_path: Path) -> None:
    """Nothing is dropped, nothing overlaps, and each difference from the record is noted."""
    run = open_run(odd_run(tmp_path / "odd"))
    done = loaded(processor, run, tmp_path, to, "dependencies")
    if to == "chrome":
        # The processor leaves escapes in texts of JSON.
        trace = json.loads(Path(done.path).read_text(encoding="utf-8"))
        assert trace["otherData"]["notes"] == list(done.notes)
        attempts = [e["args"] for e in trace["traceEvents"] if e.get("cat") == "attempt"]
        expected = {number: each["key"] for number, each in blocks(run).items()}
        assert {args["attempt"]: args["key"] for args in attempts} == expected
    assert_same(processor, run, to, "dependencies")
    times = "select name, ts + {}, dur from slice where category = '{}' order by name"
    origin = processor.origin if to == "chrome" else 0
    # A span has the time of its own tasks, and of those in the spans within it.
    assert processor.sql(times.format(origin, "span")) == [
        ("inner", T0 + SECOND // 2, 7 * SECOND),
        ("outer", T0 + 7, 9 * SECOND - 7),
    ]
    assert processor.sql(times.format(origin, "event loop")) == [("blocked", T0, SECOND)]
    noted = " ".join(done.notes)
    for sentence in (
        "Transfers without a time on record, not in the trace: 1.",
        "Spans without a finished attempt, not in the trace: 1.",
        "Transfers that end before they start, shown without duration: 1.",
        "Slices that end before they start, as clocks differ, without duration: 2.",
        "Phases that overlap others of their attempt, on further tracks: 1.",
        "Slices that overlap others of their thread, on further tracks",
        "Transfer phases of attempts, shown as their workers' transfers instead: 1.",
        "Uses of a dependency without an arrow, as no attempt that made its result before",
    ):
        assert sentence in noted
    shown = processor.sql("select name from slice where category = 'note'")
    assert sorted(str(name) for (name,) in shown) == sorted(done.notes)


@both
def test_a_run_without_anything(to: str, processor: TraceProcessor, tmp_path: Path) -> None:
    """Of an empty run there is a trace without slices."""
    run = open_run(new_run(tmp_path / "empty"))
    loaded(processor, run, tmp_path, to, "dependencies")
    assert processor.sql("select count(*) from slice where category <> 'note'") == [(0,)]


@both
def test_many_slices_at_the_same_time_are_events(
    to: str, processor: TraceProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a number of tracks, attempts become events without being lost."""
    monkeypatch.setattr(tracks, "MOST_LANES", 3)
    folder = new_run(tmp_path / "many")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = [row for n in range(8) for row in life(f"a-{n}", 1 + n / 8, 5, W)]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.end()
    done = loaded(processor, open_run(folder), tmp_path, to)
    assert "Slices shown as events, as more than 100 overlap on their thread: 5." in done.notes
    assert "Phases of attempts that are shown as events, not in the trace: 5." in done.notes
    assert done.counts["phases"] == 3
    assert processor.sql(
        "select t.name, count(*) from slice s join thread_track k on k.id = s.track_id "
        "join thread t using (utid) where s.category = 'attempt' group by t.name order by 1"
    ) == [("thread 1", 1), ("thread 1 (2)", 1), ("thread 1 (3)", 1), ("thread 1 (more)", 5)]


def test_many_samples_are_thinned(
    eventful: Path, processor: TraceProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more samples than a trace has, the last one of each interval is there, as is noted."""
    run = open_run(eventful)
    everything = exported(run, tmp_path, "chrome").counts["counter values"]
    monkeypatch.setattr(samples, "MOST_SAMPLES", 6)
    done = loaded(processor, run, tmp_path, "perfetto")
    assert any("Counters have the last sample" in note for note in done.notes)
    assert 0 < done.counts["counter values"] < everything
    number, value = processor.sql(
        "select count(*), max(c.ts) from counter c join counter_track t on t.id = c.track_id "
        "where t.name = 'memory: process'"
    )[0]
    assert number > 0
    last = run.rows(
        "select max(epoch_ns(time)) as t from (select time from worker_samples where rss_bytes is "
        "not null union all select time from scheduler_samples where rss_bytes is not null)"
    )
    assert value == last[0]["t"]


@pytest.mark.long
@given(any_run=any_runs())
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_run(
    any_run: AnyRun, processor: TraceProcessor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Traces of runs with any rows, finalised or not, aligned or not, equal their tables."""
    folder = tmp_path_factory.mktemp("any")
    path = any_run.write(folder / "run")
    for to, align in (("perfetto", True), ("chrome", False)):
        run = open_run(path, align=align)
        loaded(processor, run, folder, to, "dependencies")
        assert_same(processor, run, to, "dependencies")


@pytest.mark.long
@both
def test_a_finalised_run(
    to: str, eventful: Path, processor: TraceProcessor, tmp_path: Path
) -> None:
    """Of the stored tables the trace is the same as of the recorded ones."""
    folder = Path(shutil.copytree(eventful, tmp_path / "run"))
    first = exported(open_run(folder), tmp_path, to, "dependencies")
    before = Path(first.path).read_bytes()
    dask_strata.compact(folder)
    run = open_run(folder)
    second = loaded(processor, run, tmp_path, to, "dependencies")
    assert second.counts == first.counts
    assert Path(second.path).read_bytes() == before
    assert_same(processor, run, to, "dependencies")

"""Sums, flame graphs and exports of Dask's statistical profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dask_strata import Run, open_run
from dask_strata.analysis.profile import profile_source
from dask_strata.analysis.stacks import (
    Function,
    Stack,
    StackFilter,
    flame_graphs,
    select_functions,
    stacks,
)
from dask_strata.analysis.stacks import flame as flame_module
from dask_strata.cli import cli
from dask_strata.errors import StrataError, UsageError
from dask_strata.report.flame.files import collapsed, speedscope
from tests.support.synthetic import SECOND, T0, Process, new_run, small_run

SITE = "/v/lib/python3.11/site-packages"

#: Frames of each worker: number, caller, function, file and line.
FRAMES = (
    (1, None, "__call__", f"{SITE}/dask/_task_spec.py", 753),
    (2, 1, "load", "/home/u/pipeline.py", 7),
    (3, 2, "parse", f"{SITE}/pandas/io.py", 40),
    (4, 3, "load", "/home/u/pipeline.py", 7),
    (5, 1, "add", "/home/u/pipeline.py", 20),
)

#: Samples: cycle in seconds, prefix, innermost frame, number.
SAMPLES = ((0, "load", 2, 10), (0, "load", 3, 30), (1, "load", 4, 20), (1, "add", 5, 40))


def frame_row(number: int, parent: int | None, *function: Any) -> dict[str, Any]:
    """Return a row of `stack_frames`."""
    names = dict(zip(("function", "module", "line"), function, strict=True))
    return {"time": T0, "frame": number, "parent": parent, **names}


def sample_row(at: float, worker: str, prefix: str | None, frame: int, n: int) -> dict[str, Any]:
    """Return a row of `stacks`."""
    start = T0 + int(at * SECOND)
    return {
        "start": start,
        "stop": start + SECOND,
        "worker": worker,
        "kind": "event loop" if prefix is None else "task",
        "prefix": prefix,
        "frame": frame,
        "n_samples": n,
        "estimated_seconds": n * 0.01,
    }


@pytest.fixture
def profiled(tmp_path: Path) -> Run:
    """Return a run of two workers with the same samples; their frames have other numbers."""
    folder = small_run(tmp_path / "profiled")
    for number in (2, 3):
        address = f"tcp://w:{number}"
        worker = Process(folder, f"worker-{number}", address=address, name=f"w{number}", nthreads=1)
        shift = 100 * number
        worker.write(
            "stack_frames",
            [frame_row(n + shift, p and p + shift, *f) for n, p, *f in FRAMES],
        )
        worker.write("stacks", [sample_row(t, address, p, f + shift, n) for t, p, f, n in SAMPLES])
        if number == 2:
            worker.write("stacks", [sample_row(0, address, None, 1 + shift, 3)])
        worker.end()
    return open_run(folder)


def test_functions_have_their_own_and_their_total_samples(profiled: Run) -> None:
    """A function that occurs twice in a stack counts once in its total."""
    found = select_functions(profiled, StackFilter()).rows.to_pylist()
    assert {r["name"]: (r["own_samples"], r["total_samples"]) for r in found} == {
        "__call__": (0, 200),
        "load": (60, 120),
        "parse": (60, 100),
        "add": (80, 80),
    }
    add = found[0]
    assert (add["own_seconds"], add["own_share"], add["owner"]) == (pytest.approx(0.8), 0.4, "user")
    assert sum(r["own_share"] for r in found) == pytest.approx(1)


def test_other_sums(profiled: Run) -> None:
    """By module, owner, prefix, worker and second, each with all samples."""

    def sums(by: str, **which: Any) -> dict[Any, int]:
        found = select_functions(profiled, StackFilter(**which), by=by).rows.to_pylist()
        return {
            r.get("package") or r.get("owner") or str(r[by]): r.get(
                "own_samples", r.get("n_samples")
            )
            for r in found
        }

    assert sums("owner") == {"user": 140, "pandas": 60, "dask": 0}
    assert sums("prefix") == {"load": 120, "add": 80}
    assert sums("worker") == {"tcp://w:2": 100, "tcp://w:3": 100}
    assert list(sums("time").values()) == [80, 120]
    assert sums("prefix", worker="w2") == {"load": 60, "add": 40}
    assert sums("prefix", end=0.9) == {"load": 80}
    assert sums("prefix", begin=1.5, end=1.9) == {"load": 40, "add": 80}
    assert sums("prefix", begin=5.0) == {}
    assert sums("owner", event_loops=True) == {"dask": 3}


def test_a_restarted_worker_keeps_its_name(profiled: Run) -> None:
    """The samples of both of its processes are those of the name."""
    again = Process(Path(profiled.path), "worker-4", address="tcp://w:4", name="w2", nthreads=1)
    again.write("stack_frames", [frame_row(1, None, *FRAMES[0][2:])])
    again.write("stacks", [sample_row(3, "tcp://w:4", "load", 1, 7)])
    again.end()
    run = open_run(profiled.path)
    assert sum(s.n_samples for s in stacks(run, StackFilter(worker="w2"))) == 107
    assert sum(s.n_samples for s in stacks(run, StackFilter(worker="tcp://w:4"))) == 7


def test_rows_are_sorted_and_limited(profiled: Run) -> None:
    """As in other commands."""
    selected = select_functions(profiled, StackFilter(), sort="-total_samples", limit=1)
    assert selected.rows.to_pylist()[0]["name"] == "add"
    assert selected.total == 4


@pytest.mark.parametrize(
    ("which", "options", "message"),
    [
        ({"prefix": "nope"}, {}, "nope"),
        ({"worker": "nope"}, {}, "nope"),
        ({"begin": 3.0, "end": 2.0}, {}, "--from 3 is not before --to 2"),
        ({"begin": float("nan")}, {}, "--from nan is no time"),
        ({"end": float("inf")}, {}, "--to inf is no time"),
        ({}, {"by": "thread"}, "no sums by thread"),
        ({}, {"sort": "nope"}, "nope"),
    ],
)
def test_a_wrong_call_is_a_usage_error(
    profiled: Run, which: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    """Each names the wrong value."""
    with pytest.raises(UsageError, match=message):
        select_functions(profiled, StackFilter(**which), **options)


def test_a_run_without_a_profile(tmp_path: Path) -> None:
    """It has no flame graph, and the command names the reason."""
    run = open_run(small_run(tmp_path / "r"))
    assert flame_graphs(run) == ()
    with pytest.raises(StrataError, match="No statistical profile"):
        stacks(run)
    with pytest.raises(StrataError, match="No profile of event loops"):
        stacks(run, StackFilter(event_loops=True))


def test_frames_of_a_damaged_record(tmp_path: Path) -> None:
    """Frames that call each other in a circle, or are missing, end a stack."""
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1", address="tcp://w:1")
    worker.write("stack_frames", [frame_row(1, 2, "a", "a.py", 1), frame_row(2, 1, "b", "b.py", 1)])
    worker.write("stacks", [sample_row(0, "tcp://w:1", "x", n, 1) for n in (1, 9)])
    worker.end()
    found = {tuple(f.name for f in s.frames) for s in stacks(open_run(folder))}
    assert found == {("b", "a"), ()}
    assert flame_graphs(open_run(folder))[0].n_samples == 2


def test_the_profile_that_a_question_is_about(profiled: Run, tmp_path: Path) -> None:
    """Yappi's where it is on record, except for sums that only Dask's has."""
    assert profile_source(profiled, "function") == "dask"
    assert profile_source(profiled, "thread") == "yappi"
    worker = Process(profiled.path, "worker-9", address="tcp://w:9")
    worker.write("functions", [{"time": T0, "name": "f", "own_seconds": 1.0}])
    worker.end()
    both = open_run(profiled.path)
    assert profile_source(both, "function") == "yappi"
    assert profile_source(both, "prefix") == "dask"


def test_flame_graphs_add_up(profiled: Run) -> None:
    """Frames lie within those that called them, beside each other; widths are shares."""
    whole, *by_prefix = flame_graphs(profiled)
    assert [g.prefix for g in by_prefix] == ["load", "add"]
    assert (whole.prefix, whole.n_samples, whole.depth) == (None, 200, 4)
    assert [
        (f.function.name, f.depth, round(f.begin, 9), round(f.share, 9)) for f in whole.frames
    ] == [
        ("__call__", 0, 0.0, 1.0),
        ("load", 1, 0.0, 0.6),
        ("add", 1, 0.6, 0.4),
        ("parse", 2, 0.0, 0.5),
        ("load", 3, 0.0, 0.2),
    ]
    assert sum(f.own_share for f in whole.frames) == pytest.approx(1)
    assert sum(g.seconds for g in by_prefix) == pytest.approx(whole.seconds)


def test_flame_graphs_are_bounded(profiled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that are too small or too many are counted."""
    monkeypatch.setattr(flame_module, "SMALLEST", 0.45)
    whole = flame_graphs(profiled)[0]
    assert [f.function.name for f in whole.frames] == ["__call__", "load", "parse"]
    assert whole.n_left_out == 2
    monkeypatch.setattr(flame_module, "SMALLEST", 0)
    monkeypatch.setattr(flame_module, "MOST_FRAMES", 2)
    assert len(flame_graphs(profiled)[0].frames) == 2
    monkeypatch.setattr(flame_module, "MOST_GRAPHS", 1)
    assert [g.prefix for g in flame_graphs(profiled)] == [None, "load"]


HOSTILE = Stack("a;b\nc", (Function("f;g", "x y.py", 1), Function("h\r\n9", None, None)), 7, 0.07)


def test_collapsed_stacks(profiled: Run) -> None:
    """A line for each stack: frames joined by semicolons, a space and the samples."""
    lines = collapsed(stacks(profiled)).splitlines()
    parsed = {
        tuple(frames.split(";")): int(n) for frames, _, n in (x.rpartition(" ") for x in lines)
    }
    assert sum(parsed.values()) == 200
    assert parsed["add", "__call__ (_task_spec.py:753)", "add (pipeline.py:20)"] == 80
    [line] = collapsed([HOSTILE]).splitlines()
    assert len(line.split(";")) == 3
    assert line.endswith(" 7")


def assert_is_speedscope(text: str) -> dict[str, Any]:
    """Check the fields that speedscope's schema requires, and return the file's content."""
    content: dict[str, Any] = json.loads(text)
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert isinstance(content["name"], str)
    assert content["exporter"].startswith("dask-strata ")
    frames = content["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
    assert 0 <= content["activeProfileIndex"] < len(content["profiles"])
    for profile in content["profiles"]:
        assert profile.keys() == {
            "type", "name", "unit", "startValue", "endValue", "samples", "weights",
        }  # fmt: skip
        assert (profile["type"], profile["unit"]) == ("sampled", "seconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert {n for sample in profile["samples"] for n in sample} <= set(range(len(frames)))
        assert profile["endValue"] - profile["startValue"] == pytest.approx(sum(profile["weights"]))
    return content


def test_speedscope(profiled: Run) -> None:
    """A profile for each prefix, with the estimated seconds of each stack."""
    content = assert_is_speedscope(speedscope(stacks(profiled), "run", "1"))
    seconds = {p["name"]: p["endValue"] for p in content["profiles"]}
    assert seconds == pytest.approx({"load": 1.2, "add": 0.8})
    frames = content["shared"]["frames"]
    add = next(p for p in content["profiles"] if p["name"] == "add")
    assert [frames[n]["name"] for n in add["samples"][0]] == ["__call__", "add"]
    assert_is_speedscope(speedscope([HOSTILE], "run", "1"))


def invoke(*arguments: Any) -> Any:
    """Run the command."""
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_the_command(profiled: Run, tmp_path: Path) -> None:
    """Table, exports to files, and options that do not fit the source."""
    run = profiled.path
    done = invoke("profile", run, "--prefix", "load")
    assert "parse" in done.output
    assert "seconds are an estimate" in done.output
    file = tmp_path / "profile.json"
    assert invoke("profile", run, "--format", "speedscope", "-o", file).exit_code == 0
    assert_is_speedscope(file.read_text())
    assert invoke("profile", run, "--format", "collapsed").output.count("\n") == 4
    for wrong, message in (
        (("--prefix", "load", "--process", "w2"), "--process is no option of the source dask"),
        (("--source", "yappi", "--from", "0"), "--from is no option of the source yappi"),
        (("--source", "yappi", "--from", "1"), "--from is no option of the source yappi"),
        (("--source", "yappi", "--format", "collapsed"), "is for Dask's profile"),
        (("--source", "dask", "--by", "thread"), "no sums by thread"),
    ):
        done = invoke("profile", run, *wrong)
        assert done.exit_code == 2, done.output
        assert message in done.output
    assert "No profile is on record" in invoke("profile", run, "--waiting").output
    missing = invoke("profile", run, "--format", "collapsed", "-o", tmp_path / "no" / "file")
    assert missing.exit_code == 1
    assert "cannot be written" in missing.output

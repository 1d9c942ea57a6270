"""The engine: rows that cannot be written cost only themselves, and are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dask_strata import open_run
from dask_strata.config import read_settings
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.store.limits import FRAME_BYTES
from dask_strata.store.manifest import Manifest
from dask_strata.store.segments.frames import Batch
from tests.conftest import wait_until
from tests.support.synthetic import new_run


def test_one_odd_row_costs_itself_only(tmp_path: Path) -> None:
    """A value that cannot be encoded costs its own row only, and the row is counted as lost."""
    (tmp_path / "segments").mkdir()
    Manifest("0a1b", "odd", 0, "0").write(tmp_path)
    engine = Engine("client", "0a1b", tmp_path, read_settings({}))
    engine.start(address="c")
    for i in range(20):
        engine.add("spills", time=i, nbytes=i, worker=["odd"] if i == 7 else "w")
    engine.finish("done")
    run = open_run(tmp_path)
    assert run["spills"].to_arrow()["nbytes"].to_pylist() == [i for i in range(20) if i != 7]
    [loss] = run["losses"].to_arrow().to_pylist()
    assert (loss["count"], "spills" in loss["reason"]) == (1, True)


def test_large_frames_are_split(tmp_path: Path) -> None:
    """Rows of a flush are split into frames within the limits; a larger row counts as lost."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    engine.start(address="c")
    n, text = 48, "x" * (FRAME_BYTES // 32)
    for i in range(n):
        engine.add("job", name=f"n{i}", value=text + str(i))
    engine.add("job", name="huge", value="x" * (FRAME_BYTES + 1))
    engine.flush()
    engine.finish("done")
    run = open_run(folder)
    names = run["job"].to_arrow()["name"].to_pylist()
    assert sorted(set(names) & {f"n{i}" for i in range(n)}) == sorted(f"n{i}" for i in range(n))
    assert "huge" not in names
    assert any("bytes in one frame" in r for r in run["losses"].to_arrow()["reason"].to_pylist())


@pytest.mark.long
def test_many_intervals_in_one_batch_can_be_read(tmp_path: Path) -> None:
    """A batch with more lists than a frame may have is split into several frames."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    engine.start(address="c")
    n, intervals = 160_000, [["compute", 1, 1, None]] * 7
    batch = Batch("scheduler_transitions", n, {"startstops": [intervals] * n})
    batches = [batch]

    class OneBatch(Source):
        def rows(self) -> list[Batch]:
            return [batches.pop()] if batches else []

    engine.sources.append(OneBatch())
    engine.flush()
    engine.finish("done")
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == n
    assert not [f.text for f in run.check().missing if "lists" in f.text]


def test_a_counter_is_written_after_the_rows_that_it_counts(tmp_path: Path) -> None:
    """A counter that is sampled during a flush is written with the next one."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    n = iter(range(20, 10_000, 10))  # each value includes the ten rows of the next call

    class Counted(Source):
        def rows(self) -> list[Batch]:
            value = next(n)
            engine.count("scheduler.transitions", value, recorded=value - 10, final=False)
            return [Batch("scheduler_transitions", 10, {"key": ["x"] * 10})]

        def slow_rows(self) -> list[Batch]:
            return [Batch("job", 1, {"name": ["slow"]})]

    engine.sources.append(Counted())
    engine.start(address="c")
    for _ in range(3):
        assert engine.flush_all(10)
        rows = open_run(folder).rows(
            "select max(value) <= (select count(*) from scheduler_transitions) as on_record "
            "from counters having count(*) > 0"
        )
        assert all(row["on_record"] for row in rows)
    engine.finish("done")
    assert len(open_run(folder)["counters"]) > 2


def test_a_source_that_raises_everywhere_ends_no_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its errors are recorded and logged once, other sources go on, and the end is written.

    `flush_all` does not claim success, as it cannot know whether rows are left.
    """
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({"sample-interval": "10ms"}))
    called: set[str] = set()

    def raises(name: str) -> Callable[[Any], Any]:
        def method(self: Any) -> Any:
            called.add(name)
            raise RuntimeError(f"in {name}")

        method.__qualname__ = name
        return method

    methods = [n for n, each in vars(Source).items() if callable(each) and not n.startswith("_")]
    broken = type("Broken", (Source,), {name: raises(name) for name in methods})

    class Healthy(Source):
        n_rows = n_samples = 0
        ended: ClassVar[list[str]] = []

        def rows(self) -> Iterator[Batch]:
            self.n_rows += 1
            yield Batch.of_rows("script", [{"name": f"row-{self.n_rows}", "value": ""}])

        def sample(self) -> None:
            self.n_samples += 1

        def detach(self) -> None:
            self.ended.append("detach")

        def finish(self) -> None:
            self.ended.append("finish")

        def after_last_row(self) -> None:
            self.ended.append("after_last_row")

    healthy = Healthy()
    engine.start(broken(), healthy, address="c")
    assert not engine.flush_all(60)  # at once: asking again would not help
    wait_until(lambda: {"end_reason", "sample"} <= called and healthy.n_samples > 2)
    engine.finish("done")
    assert called == set(methods)
    assert healthy.ended == ["detach", "finish", "after_last_row"]
    run = open_run(folder)
    assert run["script"].to_arrow()["name"].to_pylist() == [
        f"row-{i}" for i in range(1, healthy.n_rows + 1)
    ]
    reasons = " ".join(run["losses"].to_arrow()["reason"].to_pylist())
    # The record is complete when `after_last_row` is called: its error is only logged.
    missing = [name for name in methods if f"RuntimeError: in {name}" not in reasons]
    assert missing == ["after_last_row"]
    assert len(run["losses"]) < 10 * healthy.n_rows
    logged = [record.getMessage() for record in caplog.records]
    assert sorted(text.rpartition(" in ")[2] for text in logged) == sorted(methods)
    assert run["processes"].to_arrow()["exit_reason"].to_pylist() == ["done"]

"""The output of a nanny's worker: what happens where something is missing, and counts of losses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dask_strata.recorder.logs import budget, pipes
from dask_strata.recorder.logs.forwarder import Forwarder, Lines
from dask_strata.recorder.logs.output import OutputSource


class _Engine:
    """What the source needs of an engine."""

    settings, process = SimpleNamespace(code=True), "nanny-0"

    def __init__(self) -> None:
        self.counts: list[int] = []

    def add(self, table: str, **row: Any) -> None:
        """Keep the count of a row of losses."""
        assert table == "losses"
        self.counts.append(row["count"])

    def call(self, action: Callable[[], None], name: str) -> None:
        """Call an action."""
        action()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OutputSource]:
    """The source of a nanny without a worker."""
    monkeypatch.setattr(pipes, "folder_of", lambda nanny: tmp_path / "pipes")
    nanny = SimpleNamespace(address="tcp://127.0.0.1:1", env={}, preload=[], preload_argv=[])
    made = OutputSource(nanny, _Engine())  # type: ignore[arg-type]
    yield made
    made.finish()


def test_without_a_thread_nobody_has_the_pipes_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that could open pipes which nobody reads would block when they are full."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(RuntimeError, match="new thread"):
        Forwarder(tmp_path / "pipes", lambda lines: None, lambda: None)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert pipes.open_to_write(tmp_path / "pipes") == {}


def test_a_nanny_starts_its_worker_without_a_thread(
    source: OutputSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error reaches the nanny that is about to start a process."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        source.before_start()


def test_losses_are_counted_once(source: OutputSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample while lines are taken counts no line that is recorded after all."""
    engine: Any = source._engine
    take, samples = source._budget.take, []

    def take_while_sampling(sizes: list[int]) -> int:
        n = take(sizes)
        samples.append(threading.Thread(target=source.sample))
        samples[-1].start()
        samples[-1].join(0.1)
        return n

    monkeypatch.setattr(source._budget, "take", take_while_sampling)
    n = budget.LINES_AT_ONCE + 150
    source.take(Lines("stdout", 1, 17, [(b"x", 0)] * n))
    samples[-1].join()
    source.process_ended()
    source.sample()
    recorded = sum(batch.n for batch in source.rows())
    assert recorded + sum(engine.counts) == n
    assert min(engine.counts, default=0) >= 0

"""Samples keep no frame: the local variables of tasks are released when their functions return."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from dask_strata.recorder.profiling.conflicts import active_profiler
from dask_strata.recorder.sampling.frames import other_frames, place_of
from dask_strata.recorder.sampling.sums import Sampled
from dask_strata.recorder.sampling.tasks import TaskSampler


class Data:
    """A local variable of a task."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Without the garbage collector, an object in a reference cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def released_after(look: Callable[[int], None]) -> bool:
    """Look at a thread in a function; return whether its local variable is gone afterwards."""
    begun, end = threading.Event(), threading.Event()
    found: list[weakref.ref[Data]] = []

    def task() -> None:
        data = Data()
        found.append(weakref.ref(data))
        begun.set()
        end.wait(60)

    thread = threading.Thread(target=task)
    thread.start()
    assert begun.wait(60)
    look(thread.ident or 0)
    end.set()
    thread.join()
    return found[0]() is None


def sample(thread: int) -> None:
    """Take two samples of a thread, in time and late."""
    now = time.monotonic_ns()
    task = Sampled(1, "k", 1, thread, start_ns=time.time_ns())
    sampler = TaskSampler("tcp://w:1", lambda: [task])
    sampler.start()
    sampler.look(now, now, now - 80_000_000)
    sampler.look(now + 900_000_000, now + 80_000_000, now)
    assert list(sampler.rows()) is not None
    sampler.finish()


def enter(thread: int) -> None:
    """Look at the frames of all threads."""
    with other_frames() as frames:
        assert threading.get_ident() not in frames
        assert place_of(frames[thread]).function == "task"


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("look", [sample, enter, lambda _: active_profiler()])
def test_local_variables_are_released(look: Callable[[int], None]) -> None:
    """They may be large, and CPython 3.11 may crash when it collects a memoryview among them."""
    assert released_after(look)

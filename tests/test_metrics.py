"""Sections and counters from the inside of a task; probes in a library's classes."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import importlib.machinery
import inspect
import json
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import dask_strata
from dask_strata.metrics import MAX_NAMES, OTHERS, current_execution
from dask_strata.recorder.sources import libraries
from dask_strata.recorder.sources.attribute_probes import Probes
from dask_strata.recorder.sources.executions import Execution
from dask_strata.recorder.sources.library_reads import LibraryUse, located
from dask_strata.report.rows import write_json


@pytest.fixture
def execution() -> Iterator[Execution]:
    """The current execution of a task's function."""
    made = Execution("key", 1, "thread", threading.get_ident(), 0)
    token = current_execution.set(made)
    yield made
    current_execution.reset(token)


@dask_strata.track_metrics
def twice(x: int, *, add: int = 0) -> int:
    """Return twice the number."""
    dask_strata.count("calls")
    return 2 * x + add


def test_a_decorated_function_keeps_its_interface(execution: Execution) -> None:
    """Name, signature, docstring and result stay; each call is a section and its counter."""
    assert (twice.__name__, twice.__doc__) == ("twice", "Return twice the number.")
    assert list(inspect.signature(twice).parameters) == ["x", "add"]
    assert twice(3, add=1) + twice(4) == 15
    assert execution.reported["counter", "calls"] == (2, 2)
    seconds, count = execution.reported["section", "twice"]
    assert (seconds > 0, count) == (True, 2)


def test_nothing_happens_outside_a_task() -> None:
    """Without an execution, functions work, and no metric is stored."""
    assert current_execution.get() is None
    with dask_strata.section("alone"):
        dask_strata.count("alone", 5)
    assert twice(1) == 2


def test_the_decorator_does_not_import_the_recorder() -> None:
    """In a process without a recorder the decorator imports neither the recorder nor Dask."""
    code = (
        "import sys, dask_strata\n"
        "@dask_strata.track_metrics\n"
        "def f(x): \n with dask_strata.section('s'): return x\n"
        "print(f(7), [m for m in sys.modules if m.split('.')[0] in ('dask', 'distributed')"
        " or 'recorder' in m and m.startswith('dask_strata')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "7 []\n"


def test_sections_nest_and_survive_exceptions(execution: Execution) -> None:
    """An inner section is part of the outer's time; an exception passes, and both count."""
    with (
        pytest.raises(ZeroDivisionError) as caught,
        dask_strata.section("outer"),
        dask_strata.section("inner"),
    ):
        1 / 0  # noqa: B018
    assert len(caught.traceback) == 1
    outer, inner = execution.reported["section", "outer"], execution.reported["section", "inner"]
    assert outer[0] >= inner[0] > 0
    assert (outer[1], inner[1]) == (1, 1)


def test_threads_count_for_the_task_of_their_context(execution: Execution) -> None:
    """Counts of a thread belong to the task if the thread has a copy of its context."""

    def work() -> None:
        for _ in range(500):
            dask_strata.count("steps", 2)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work,)) for _ in range(4)
    ]
    threads.append(threading.Thread(target=contextvars.Context().run, args=(work,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert execution.reported["counter", "steps"] == (4000, 2000)


def test_nothing_fails_that_would_not_without_a_recorder(execution: Execution) -> None:
    """A value that is not a number is ignored; names beyond the bound are summed as others."""
    dask_strata.count("odd", "three")  # type: ignore[arg-type]
    assert execution.reported == {}
    for i in range(MAX_NAMES + 10):
        dask_strata.count(f"event-{i}", 2)
    assert len(execution.reported) == MAX_NAMES + 1
    assert execution.reported["counter", OTHERS] == (20, 10)


def test_methods_coroutines_and_pickles(execution: Execution) -> None:
    """Methods keep their instance, coroutines are awaited, and cloudpickle includes both."""

    class Processor:
        factor = 3

        @dask_strata.track_metrics
        def process(self, x: int) -> int:
            return self.factor * x

        @dask_strata.track_metrics
        async def later(self, x: int) -> int:
            return self.process(x) + 1

    again: Any = pickle.loads(cloudpickle.dumps(Processor()))
    assert again.process(2) == 6
    assert inspect.iscoroutinefunction(again.later)
    assert asyncio.run(again.later(1)) == 4
    assert execution.reported["section", "Processor.process"][1] == 2
    assert execution.reported["section", "Processor.later"][1] == 1
    assert pickle.loads(pickle.dumps(twice)) is twice


@pytest.mark.parametrize("value", [int, "process", None])
def test_only_functions_can_be_tracked(value: Any) -> None:
    """Decorating anything but a function is an error that names functions and methods."""
    with pytest.raises(TypeError, match="functions and methods"):
        dask_strata.track_metrics(value)


# Probes.


class Library:
    """A class of a library with probes on its members."""

    def __init__(self) -> None:
        self.counter = 0

    def read(self, n: int) -> int:
        """Count the read items."""
        self.counter += n
        return n

    @classmethod
    def make(cls) -> Library:
        """Return one."""
        return cls()


def probed(note: Callable[..., None]) -> Probes:
    """Place probes in the library."""
    probes = Probes()
    probes.on_change(Library, "counter", note)
    probes.on_look(Library, "make", note)
    probes.on_look(Library, "read", note)
    return probes


def test_probes_report_and_leave_no_trace() -> None:
    """Probes report changes and look-ups; instances and the class stay as they were."""
    plain = copy.copy(Library())  # copying adds an attribute to the class
    plain.read(7)
    before = dict(vars(Library))
    reports: list[Any] = []
    probes = probed(lambda *report: reports.append(report))
    seen = Library.make()
    assert seen.read(7) == 7
    assert seen.counter == 7
    assert reports[0] == (None,)
    assert [report[1:3] for report in reports if len(report) == 4] == [(None, 0), (0, 7)]
    assert pickle.dumps(seen) == pickle.dumps(plain)
    assert vars(copy.copy(seen)) == {"counter": 7}
    assert inspect.ismethod(Library.make)
    with pytest.raises(AttributeError):
        _ = Library.counter  # type: ignore[attr-defined]
    del seen.counter
    assert not hasattr(seen, "counter")
    probes.remove()
    assert dict(vars(Library)) == before


def test_exceptions_of_a_probe_are_suppressed() -> None:
    """An exception in a callback does not reach the library or its tracebacks; it is a loss."""

    def fail(*_: Any) -> None:
        raise RuntimeError("in the callback")

    libraries.take_errors()
    probes = probed(fail)
    library = Library.make()
    assert library.read(1) == 1
    with pytest.raises(TypeError) as caught:
        library.read("x")  # type: ignore[arg-type]
    probes.remove()
    assert [entry.name for entry in caught.traceback] == [
        "test_exceptions_of_a_probe_are_suppressed",
        "read",
    ]
    # Many times the same, reported once.
    assert libraries.take_errors() == [
        "a probe of a library failed: fail: RuntimeError('in the callback')"
    ]
    assert libraries.take_errors() == []


def test_a_covered_probe_stops_reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch on top of a probe stays after removal, and the probe below no longer reports."""
    reports: list[Any] = []
    probes = probed(lambda *report: reports.append(report))
    probe = vars(Library)["read"]
    monkeypatch.setattr(Library, "read", lambda self, n: probe.__get__(self)(n) + 1)
    probes.remove()
    reports.clear()
    assert Library.make().read(1) == 2
    assert reports == []


def test_an_unknown_version_of_a_library_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without the expected members is not changed, and the record has a loss."""
    strange = types.ModuleType("coffea.nanoevents.factory")
    strange.__spec__ = importlib.machinery.ModuleSpec(strange.__name__, None)
    monkeypatch.setitem(sys.modules, strange.__name__, strange)
    before = dict(vars(strange))
    libraries.attach(current_execution)
    libraries.detach()
    assert dict(vars(strange)) == before
    [reason] = libraries.take_errors()
    assert "coffea.nanoevents.factory" in reason
    assert libraries.take_errors() == []


# Reads of an execution.


def test_ranges_are_merged_and_unknown_ones_make_all_unknown() -> None:
    """Adjacent ranges become one; an unknown range makes all unknown, but not their sum."""
    use = LibraryUse(threading.get_ident())
    use.add("/a", requested=20, requests=1, ranges=2, span=[(10, 20), (0, 10)])
    use.add("/a", requested=5, requests=1, ranges=1, span=[(30, 35)])
    use.add("/b", requested=5, requests=1, ranges=1, span=None)
    a, b = use.reads()
    assert (a["spans"], a["requested_bytes"], a["requests"]) == ("[[0,20],[30,35]]", 25, 2)
    assert (b["spans"], b["requested_bytes"]) == (None, 5)


def test_phases_of_another_thread_are_ignored() -> None:
    """Opening and building in another thread has no phases in the execution; its bytes count."""
    use = LibraryUse(threading.get_ident())

    def elsewhere() -> None:
        use.opening()
        use.opened("/a")
        use.building()
        use.add("/a", requested=3, span=[(0, 3)])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    use.finish()
    [read] = use.reads()
    assert (read["requested_bytes"], read["open_seconds"]) == (3, None)
    assert list(use.seen_chunks()) == []


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("file:///data/x.root", "/data/x.root"),
        ("/data//y/../x.root", "/data/x.root"),
        ("https://me:secret@host/x.root", "https://***@host/x.root"),
        ("root://eos.example//store/x.root", "root://eos.example//store/x.root"),
    ],
)
def test_locations_of_files_have_no_credentials(path: str, location: str) -> None:
    """Local files have absolute paths; URLs only lose their credentials."""
    assert located(path) == location


def test_json_of_names_that_are_no_text(tmp_path: Path) -> None:
    """A file name that is not UTF-8 survives a round trip through JSON."""
    names = {"caf\udce9.root": ["ü", "new\nline"]}
    write_json(names, tmp_path / "names.json")
    assert json.loads((tmp_path / "names.json").read_text()) == names

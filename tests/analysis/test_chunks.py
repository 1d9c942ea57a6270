"""Chunks of coffea's Runner and of uproot: real libraries, real files, a real cluster."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.chunks.chunks import fileset_to_run_again, summarize_chunks
from tests.conftest import rows, wait_until
from tests.support.nanoaod import read_with, write_events

pytest.importorskip("coffea", reason="coffea is not installed: pip install 'dask-strata[coffea]'")

import awkward as ak
import numpy as np
import uproot
from coffea import processor
from coffea.nanoevents import NanoAODSchema, NanoEventsFactory
from coffea.processor.executor import WorkItem

REAL = Path(__file__).parents[3] / "shared/fixtures/coffea/nanoAOD_2015_CMS_Open_Data_ttbar.root"
N_EVENTS = 5000
N_FILES = 4

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")


class Schema(NanoAODSchema):
    """NanoAOD without warnings about branches that the test files lack."""

    warn_missing_crossrefs = False


class Muons(processor.ProcessorABC):
    """Sums up muons by dataset."""

    def process(self, events: Any) -> dict[str, Any]:
        """Return counts and sums."""
        return {
            events.metadata["dataset"]: {
                "events": len(events),
                "muons": len(ak.flatten(events.Muon.pt)),
                "pt": float(ak.sum(abs(events.Muon.pt))),
            }
        }

    def postprocess(self, accumulator: Any) -> Any:
        """Return the argument."""
        return accumulator


class TrackedMuons(Muons):
    """The same processor with sections and counters."""

    @dask_strata.track_metrics
    def process(self, events: Any) -> dict[str, Any]:
        """Return counts and sums."""
        with dask_strata.section("selection"):
            selected = events[ak.num(events.Muon) > 1]
            dask_strata.count("selected", len(selected))
        return super().process(events)


class Failing(Muons):
    """Fails on the last chunk of a file, a given number of times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def process(self, events: Any) -> dict[str, Any]:
        """Fail, or return counts and sums."""
        last = events.metadata["entrystop"] == N_EVENTS and events.metadata["filename"][-6] == "3"
        if last:
            tries = len(list(self.folder.iterdir()))
            if tries < self.times:
                (self.folder / f"{tries}").touch()
                raise ValueError(f"no muons for you, {tries}")
        return super().process(events)


def plain(events: Any) -> dict[str, Any]:
    """Count muons; a plain callable is a processor, too."""
    return {events.metadata["dataset"]: {"eta": float(ak.sum(abs(events.Muon.eta)))}}


def build(path: str, first: int, last: int) -> Any:
    """Make events of a range of a file."""
    return NanoEventsFactory.from_root(
        {path: "Events"},
        entry_start=first,
        entry_stop=last,
        schemaclass=Schema,
        metadata={"dataset": "mine"},
        access_log=[],
    ).events()


def from_root(path: str, first: int, last: int) -> float:
    """Make events of a range of a file, as anybody's function may."""
    return float(ak.sum(build(path, first, last).Muon.phi))


def only_build(path: str, first: int, last: int) -> int:
    """Make events of a range of a file and compute nothing."""
    return len(build(path, first, last))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes, two threads each."""
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the cluster."""
    with Client(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """A fileset of two datasets."""
    folder = tmp_path_factory.mktemp("data with spaces")
    fileset: dict[str, list[str]] = {}
    for i in range(N_FILES):
        path = folder / f"events-{i}.root"
        write_events(path, N_EVENTS, cluster=1000, seed=i)
        fileset.setdefault(("signal", "background")[i % 2], []).append(str(path))
    return fileset


def runner(client: Client, retries: int = 0, **kwargs: Any) -> processor.Runner:
    """Return a Runner on the cluster."""
    executor = processor.DaskExecutor(client=client, status=False, retries=retries)
    return processor.Runner(
        executor=executor, schema=Schema, chunksize=1700, savemetrics=True, **kwargs
    )


Worked = tuple[Run, Any, dict[str, Any]]

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "class": (Muons(), {}),
    "class, no compression": (Muons(), {"processor_compression": None}),
    "callable": (plain, {}),
    "callable, no compression": (plain, {"processor_compression": None}),
    "aligned": (Muons(), {"align_clusters": True}),
    "inside": (TrackedMuons(), {}),
}


@pytest.fixture(scope="module")
def worked(
    client: Client, files: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Worked]:
    """Run the Runner in one of several ways, recorded; each way once."""
    done: dict[str, Worked] = {}

    def work(way: str) -> Worked:
        if way not in done:
            what, options = WAYS[way]
            with dask_strata.record(tmp_path_factory.mktemp("runs"), client=client) as run:
                output, report = runner(client, **options)(files, what, treename="Events")
            done[way] = open_run(run.path), output, report
        return done[way]

    return work


@pytest.mark.parametrize("way", WAYS)
def test_sums_equal_coffeas_own_report(worked: Callable[[str], Worked], way: str) -> None:
    """Bytes, events and number of chunks are those of coffea's report, to the byte."""
    run, _, report = worked(way)
    [sums] = rows(
        run,
        "select count(*) as chunks, sum(read_bytes)::bigint as bytesread, sum(events)::bigint "
        "as entries from chunks where state = 'done'",
    )
    assert sums == {name: report[name] for name in sums}
    assert sums["entries"] == N_FILES * N_EVENTS


@pytest.mark.parametrize("way", ["class", "callable, no compression"])
def test_a_chunk_has_its_place_and_its_phases(worked: Callable[[str], Worked], way: str) -> None:
    """Chunks tile each file; worker, thread and phases are those of the attempt that ran it."""
    run, _, _ = worked(way)
    found = rows(
        run,
        "select c.*, a.worker as on_worker, a.thread as in_thread, a.compute_seconds, "
        "a.library_bytes from chunks c join attempts a using (attempt) order by uri, first",
    )
    for before, after in itertools.pairwise(found):
        edge = before["last"] if before["uri"] == after["uri"] else 0
        assert after["first"] == edge
    for chunk in found:
        assert chunk["dataset"] in ("signal", "background")
        assert chunk["tree"] == "Events"
        assert (chunk["worker"], chunk["thread"]) == (chunk["on_worker"], chunk["in_thread"])
        assert chunk["read_bytes"] == chunk["library_bytes"]
        phases = [chunk[f"{name}_seconds"] for name in ("open", "build", "process")]
        assert all(seconds > 0 for seconds in phases)
        assert 0 < sum(phases) <= (chunk["stop"] - chunk["start"]).total_seconds()
        assert chunk["n_attempts"] == 1
        assert chunk["requests"] >= 4
    assert len({(chunk["worker"], chunk["thread"]) for chunk in found}) > 2
    seen = rows(run, "select distinct columns from seen_chunks")
    assert all("nMuon" in json.loads(row["columns"]) for row in seen)


def test_results_are_the_same_bytes_with_and_without_a_recording(
    worked: Callable[[str], Worked], client: Client, files: dict[str, list[str]]
) -> None:
    """The Runner's result pickles to the same bytes with and without a recording."""
    for way in ("class", "callable, no compression", "inside"):
        what, options = WAYS[way]
        output, report = runner(client, **options)(files, what, treename="Events")
        _, recorded, of_recorded = worked(way)
        names = sorted(output)
        assert pickle.dumps([output[n] for n in names]) == pickle.dumps(
            [recorded[n] for n in names]
        )
        assert report["bytesread"] == of_recorded["bytesread"]


def failure(client: Client, function: Callable[..., Any], *arguments: Any) -> str:
    """Return the traceback of a task that fails, from the function on."""
    future = client.submit(function, *arguments, pure=False)
    error = future.exception()
    assert error is not None
    return type(error).__name__ + "".join(traceback.format_tb(future.traceback()))


def test_tracebacks_are_the_same_with_and_without_a_recording(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """The traceback for a damaged or missing file has no frame of dask-strata."""
    cut = tmp_path / "cut.root"
    cut.write_bytes(Path(files["signal"][0]).read_bytes()[:20_000])
    late = tmp_path / "late.root"
    whole = Path(files["signal"][0]).read_bytes()
    late.write_bytes(whole[:100_000] + bytes(50_000) + whole[150_000:])
    calls = [
        (from_root, str(cut), 0, 100),
        (from_root, str(tmp_path / "gone.root"), 0, 100),
        (from_root, str(late), 0, N_EVENTS),
        (read_with, str(cut), "MemmapSource"),
    ]
    without = [failure(client, *call) for call in calls]
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        recorded = [failure(client, *call) for call in calls]
    assert recorded == without
    assert not any("dask_strata/recorder" in text for text in recorded)
    failed = rows(open_run(run.path), "select * from attempts where outcome = 'erred'")
    assert len(failed) == len(calls)


@pytest.mark.parametrize("handler", ["FSSpecSource", "MemmapSource", "MultithreadedFileSource"])
def test_counters_are_those_of_uproots_source(
    client: Client, files: dict[str, list[str]], tmp_path: Path, handler: str
) -> None:
    """Bytes, requests and ranges of a run are those that uproot's own source has counted."""
    path = files["signal"][0]
    with dask_strata.record(tmp_path, client=client) as run:
        counted = client.submit(read_with, path, handler, pure=False).result()
    [read] = rows(open_run(run.path), "select * from library_reads")
    assert {name: read[name] for name in counted} == counted
    assert (read["library"], read["uri"]) == ("uproot", path)
    spans = json.loads(read["spans"])
    assert sum(stop - start for start, stop in spans) <= counted["requested_bytes"]
    assert spans == sorted(spans)
    assert spans[-1][1] <= Path(path).stat().st_size


def test_a_library_that_a_task_loads_is_seen_from_its_first_byte(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    """A task that is the first to import uproot in its worker has all bytes on record."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as fresh,
        Client(fresh) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        loaded = client.run(lambda: "uproot" in __import__("sys").modules)
        assert set(loaded.values()) == {False}
        path = files["signal"][0]
        counted = client.submit(read_with, path, "FSSpecSource").result()
    [read] = rows(open_run(run.path), "select * from library_reads")
    assert read["requested_bytes"] == counted["requested_bytes"]


def test_events_made_in_any_function_are_a_chunk(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """`NanoEventsFactory.from_root` in a function is a chunk, with range, columns and bytes."""
    path = files["background"][1]
    with dask_strata.record(tmp_path, client=client) as run:
        client.submit(from_root, path, 1000, 3000, key="mine", pure=False).result()
    opened = open_run(run.path)
    [chunk] = rows(opened, "select * from chunks")
    assert (chunk["dataset"], chunk["uri"], chunk["tree"]) == ("mine", path, "Events")
    assert (chunk["first"], chunk["last"], chunk["events"]) == (1000, 3000, 2000)
    assert (chunk["key"], chunk["state"]) == ("mine", "done")
    assert min(chunk["open_seconds"], chunk["build_seconds"], chunk["process_seconds"]) > 0
    [seen] = rows(opened, "select columns from seen_chunks")
    assert json.loads(seen["columns"]) == ["Muon_phi", "nMuon"]


def two_chunks(path: str) -> float:
    """Make events of two ranges of one file."""
    return from_root(path, 0, 1000) + from_root(path, 1000, 3000)


def test_bytes_of_two_chunks_in_a_task_are_not_divided_by_guess(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """Two ranges of a file in one task are two chunks with phases of their own, bytes in common."""
    with dask_strata.record(tmp_path, client=client) as run:
        client.submit(two_chunks, files["signal"][0], pure=False).result()
    opened = open_run(run.path)
    found = rows(opened, "select * from chunks order by first")
    assert [(chunk["first"], chunk["last"]) for chunk in found] == [(0, 1000), (1000, 3000)]
    assert {chunk["read_bytes"] for chunk in found} == {None}
    assert len({chunk["build_seconds"] for chunk in found}) == 2
    [attempt] = rows(opened, "select library_bytes from attempts")
    assert attempt["library_bytes"] > 10_000
    total = summarize_chunks(opened).total
    assert (total.unread, total.read_bytes) == (2, None)


def hold(item: WorkItem, name: str) -> None:
    """Wait with a chunk until it may go on."""
    assert Event(name).wait(60), item


def test_a_chunk_that_is_under_way_is_running(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """A chunk whose task goes on when the recording ends is running, and not to run again."""
    item = WorkItem("signal", files["signal"][0], "Events", 0, 1000, b"")
    with dask_strata.record(tmp_path, client=client) as run:
        future = client.submit(hold, item, "go on", key="held")
        wait_until(
            lambda: any("held" in keys for keys in client.processing().values()),
            what="the chunk to be under way",
        )
    Event("go on", client=client).set()
    future.result()
    summary = summarize_chunks(open_run(run.path))
    assert summary.states == {"running": 1}
    assert fileset_to_run_again(summary).fileset == {}


class Killing(Muons):
    """Kills its worker, once."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def process(self, events: Any) -> dict[str, Any]:
        """Die, or return counts and sums."""
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return super().process(events)


@pytest.mark.long
def test_chunks_of_a_killed_worker_are_retried(files: dict[str, list[str]], tmp_path: Path) -> None:
    """When a worker dies, its chunks are done on another, and sums are those of coffea again."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as doomed,
        Client(doomed) as client,
        dask_strata.record(tmp_path / "runs", client=client) as run,
    ):
        _, report = runner(client)(files, Killing(tmp_path / "mark"), treename="Events")
    summary = summarize_chunks(open_run(run.path), report=report)
    assert summary.states.keys() == {"done", "retried"}
    assert [number.equal for number in summary.compared] == [True, True, True]


def test_four_threads_of_the_clients_own_process(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    """In a cluster within this process, four threads a worker, each byte goes to its chunk."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as inner,
        Client(inner) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        work = runner(client, processor_compression=None)
        _, report = work(files, Muons(), treename="Events")
    compared = summarize_chunks(open_run(run.path), report=report).compared
    assert [number.equal for number in compared] == [True, True, True]
    assert placed() == []


def test_a_retried_chunk_is_done_with_its_exception(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """A chunk that fails twice and then works is one chunk, retried, of three attempts."""
    marks = tmp_path / "marks"
    marks.mkdir()
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        _, report = runner(client, retries=3)(files, Failing(marks, 2), treename="Events")
    opened = open_run(run.path)
    [chunk] = rows(opened, "select * from chunks where state <> 'done'")
    assert (chunk["state"], chunk["n_attempts"], chunk["last"]) == ("retried", 3, N_EVENTS)
    assert "no muons for you, 1" in chunk["exception"]
    compared = summarize_chunks(opened, report=report).compared
    assert [number.equal for number in compared] == [True, True, True]


def test_a_failed_chunk_is_in_the_fileset_to_run_again(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """A chunk that always fails is in the fileset to run again."""
    marks = tmp_path / "marks"
    marks.mkdir()
    with (
        dask_strata.record(tmp_path / "runs", client=client) as run,
        pytest.raises(Exception, match="no muons for you"),
    ):
        runner(client)(files, Failing(marks, 100), treename="Events")
    opened = open_run(run.path)
    [chunk] = rows(opened, "select * from chunks where state = 'failed'")
    again = fileset_to_run_again(summarize_chunks(opened, state="failed")).fileset
    spec = {"object_path": "Events", "steps": [[chunk["first"], N_EVENTS]]}
    assert again == {"background": {"files": {files["background"][1]: spec}}}


def test_skipped_chunks_are_found_and_can_be_run_again(
    client: Client,
    files: dict[str, list[str]],
    tmp_path: Path,
    strata: Callable[..., Any],
) -> None:
    """Chunks that `skipbadfiles` skips are on record with the reason and can be run again."""
    here = {
        name: [str(shutil.copy(path, tmp_path)) for path in paths] for name, paths in files.items()
    }
    whole, _ = runner(client)(here, Muons(), treename="Events")
    skipping = runner(client, skipbadfiles=True)
    items = list(skipping.preprocess(here, treename="Events"))
    victim = Path(here["signal"][1])
    content = victim.read_bytes()
    victim.write_bytes(content[:20_000])
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        first = skipping.run(items, Muons())
    victim.write_bytes(content)
    opened = open_run(run.path)
    skipped = rows(opened, "select * from chunks where state = 'skipped' order by first")
    assert {chunk["uri"] for chunk in skipped} == {str(victim)}
    assert [chunk["last"] for chunk in skipped][-1] == N_EVENTS
    assert all("Failed" in chunk["exception"] for chunk in skipped)
    compared = summarize_chunks(opened, report=first["metrics"]).compared
    assert [(n.name, n.equal) for n in compared] == [
        ("bytesread", True),
        ("entries", True),
        ("chunks", True),
    ]

    told = strata("chunks", run.path, "--rerun", tmp_path / "again.json", check=True)
    assert f"skipped: signal {victim}:Events [0, " in told.stdout
    fileset = json.loads((tmp_path / "again.json").read_text())
    rest = [
        WorkItem(dataset, file, spec["object_path"], *step, b"")
        for dataset, found in fileset.items()
        for file, spec in found["files"].items()
        for step in spec["steps"]
    ]
    second = runner(client).run(rest, Muons())
    sums = first["out"]["signal"]["muons"] + second["out"]["signal"]["muons"]
    assert sums == whole["signal"]["muons"]
    assert set(second["out"]) == {"signal"}


def test_a_file_that_cannot_be_opened_is_reported(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """A truncated file that the Runner leaves out before it has chunks is named with the reason."""
    bad = tmp_path / "bad.root"
    bad.write_bytes(Path(files["signal"][0]).read_bytes()[:1000])
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        runner(client, skipbadfiles=True)(
            {**files, "broken": [str(bad)]}, Muons(), treename="Events"
        )
    summary = summarize_chunks(open_run(run.path))
    [lost] = summary.lost_files
    assert (lost["dataset"], lost["uri"]) == ("broken", str(bad))
    assert lost["exception"]
    again = {"broken": {"files": {str(bad): {"object_path": "Events"}}}}
    assert fileset_to_run_again(summary).fileset == again
    assert set(summary.states) == {"done"}


def test_aligned_chunks_share_no_cluster(worked: Callable[[str], Worked]) -> None:
    """Chunks that end within clusters request some bytes twice, aligned ones do not."""
    crossing = summarize_chunks(worked("class")[0])
    aligned = summarize_chunks(worked("aligned")[0])
    assert sum(reading.by_some_bytes for reading in aligned.reading) == 0
    assert sum(reading.by_some_bytes for reading in crossing.reading) > 0
    assert "align to clusters" in {advice.what for advice in crossing.advice}
    assert "align to clusters" not in {advice.what for advice in aligned.advice}
    for reading in crossing.reading:
        assert reading.file_bytes == Path(reading.uri).stat().st_size
        assert 0 < reading.amplification < 1
        assert 0 < reading.repeated_bytes < reading.requested_bytes


def advice_on(
    client: Client, folder: Path, function: Callable[..., Any], *calls: tuple[Any, ...]
) -> set[str]:
    """Record tasks of a function, one for each call, and return the advice on their chunks."""
    with dask_strata.record(folder, client=client) as run:
        client.gather([client.submit(function, *call, pure=False) for call in calls])
    return {advice.what for advice in summarize_chunks(open_run(run.path)).advice}


def test_no_advice_on_larger_chunks_than_a_file(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """Time to open files counts as the price of small chunks where a file has several chunks."""
    paths = [path for of_dataset in files.values() for path in of_dataset]
    whole = [(path, 0, N_EVENTS) for path in paths]
    assert advice_on(client, tmp_path / "whole", only_build, *whole) == set()
    first = [(path, 0, 100) for path in paths]
    assert advice_on(client, tmp_path / "first", only_build, *first) == set()
    parts = [(path, n, n + 1000) for path in paths for n in range(0, N_EVENTS, 1000)]
    found = advice_on(client, tmp_path / "parts", only_build, *parts)
    assert "larger chunks: seconds" in found


def read_item(item: WorkItem) -> float:
    """Read one branch of a chunk."""
    with uproot.open(item.filename) as file:
        tree = file[item.treename]
        return float(
            ak.sum(tree["x"].array(entry_start=item.entrystart, entry_stop=item.entrystop))
        )


def test_bytes_that_open_a_file_for_each_of_its_trees(client: Client, tmp_path: Path) -> None:
    """Two whole trees of a file need its header twice, whatever the size of the chunks."""
    path = str(tmp_path / "trees.root")
    with uproot.recreate(path) as file:
        for name in "ab":
            file.mktree(name, {"x": "float64"}).extend({"x": np.arange(1000.0)})

    def item(tree: str, first: int, last: int) -> tuple[WorkItem]:
        return (WorkItem("signal", path, tree, first, last, b""),)

    whole = item("a", 0, 1000), item("b", 0, 1000)
    assert advice_on(client, tmp_path / "whole", read_item, *whole) == set()
    parts = item("a", 0, 500), item("a", 500, 1000), item("b", 0, 1000)
    found = advice_on(client, tmp_path / "parts", read_item, *parts)
    assert "larger chunks: bytes" in found


def test_sections_counters_and_columns_of_the_inside(worked: Callable[[str], Worked]) -> None:
    """`track_metrics`, `section` and `count` in a processor are on record, by attempt."""
    run, output, _ = worked("inside")
    found = {
        (row["kind"], row["name"]): row
        for row in rows(
            run,
            "select kind, name, sum(value) as value, sum(count) as count, count(distinct attempt) "
            "as attempts from custom_metrics group by all",
        )
    }
    [n_chunks] = rows(run, "select count(*) as n from chunks")
    for what in (
        ("section", "TrackedMuons.process"),
        ("section", "selection"),
        ("counter", "selected"),
        ("column", "Muon_pt"),
    ):
        assert found[what]["attempts"] == n_chunks["n"]
    assert (
        found["section", "TrackedMuons.process"]["value"] >= found["section", "selection"]["value"]
    )
    assert 0 < found["counter", "selected"]["value"] < N_FILES * N_EVENTS
    assert output.keys() == {"signal", "background"}


def placed() -> list[str]:
    """Return the probes in uproot and coffea in this process."""
    import coffea.nanoevents.factory
    import coffea.processor.executor
    import uproot

    owners = [
        uproot.source.chunk.Source,
        uproot.source.fsspec.FSSpecSource,
        uproot.reading.ReadOnlyFile,
        uproot.reading.ReadOnlyDirectory,
        coffea.nanoevents.factory.NanoEventsFactory,
        coffea.processor.executor,
    ]
    return [
        f"{owner.__name__}.{name}"
        for owner in owners
        for name, value in vars(owner).items()
        if type(value).__module__.startswith("dask_strata") or hasattr(value, "note")
    ]


def test_nothing_is_left_in_the_libraries(
    client: Client, files: dict[str, list[str]], tmp_path: Path
) -> None:
    """Probes are in uproot and coffea until the last of two recordings ends."""
    with dask_strata.record(tmp_path / "one", client=client):
        with dask_strata.record(tmp_path / "two", client=client):
            client.submit(from_root, files["signal"][0], 0, 10, pure=False).result()
        assert all(len(found) >= 9 for found in client.run(placed).values())
    assert set(map(tuple, client.run(placed).values())) == {()}


@pytest.mark.long
def test_the_command_shows_chunks(
    worked: Callable[[str], Worked], tmp_path: Path, strata: Callable[..., Any]
) -> None:
    """The command shows the screen, rows in every format, and the comparison with coffea."""
    run, _, report = worked("class")
    names = ("bytesread", "entries", "chunks")
    (tmp_path / "report.json").write_text(json.dumps({name: report[name] for name in names}))
    screen = strata("chunks", run.path, "--coffea-report", "report.json", check=True).stdout
    assert screen.startswith(f"{report['chunks']} chunks: {report['chunks']} done · 20,000 events")
    assert screen.count(": equal") == 3
    assert "NOT EQUAL" not in screen
    (tmp_path / "report.json").write_text('{"bytesread": 1}')
    screen = strata("chunks", run.path, "--coffea-report", "report.json", check=True).stdout
    assert f"bytesread: 1 reported, {report['bytesread']:,} on record: NOT EQUAL" in screen
    found = json.loads(strata("chunks", run.path, "--format", "json", check=True).stdout)
    assert sum(row["read_bytes"] for row in found) == report["bytesread"]
    lines = strata("chunks", run.path, "--dataset", "signal", "--sort", "seconds", check=True)
    assert lines.stdout.count("events-") == report["chunks"] / 2
    strata("chunks", run.path, "--format", "parquet", "-o", "chunks.parquet", check=True)
    assert (tmp_path / "chunks.parquet").read_bytes()[:4] == b"PAR1"
    wrong = strata("chunks", run.path, "--state", "happy")
    assert (wrong.returncode, "There are: done" in wrong.stderr) == (2, True)
    (tmp_path / "report.json").write_text("[]")
    wrong = strata("chunks", run.path, "--coffea-report", "report.json")
    assert (wrong.returncode, "not a report of coffea's" in wrong.stderr) == (2, True)


def test_a_run_without_chunks_is_one_sentence(
    client: Client, tmp_path: Path, strata: Callable[..., Any]
) -> None:
    """Without chunks, the command prints one sentence and has no rows."""
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        assert client.submit(abs, -1).result() == 1
    told = strata("chunks", run.path, check=True)
    assert told.stdout.startswith("No chunk is on record")
    assert json.loads(strata("chunks", run.path, "--format", "json", check=True).stdout) == []


@pytest.mark.skipif(not REAL.exists(), reason=f"the real NanoAOD file is not here: {REAL}")
def test_a_real_file(client: Client, tmp_path: Path) -> None:
    """A file of CMS Open Data, 947 branches: the sums are coffea's, and the file is named."""
    with dask_strata.record(tmp_path, client=client) as run:
        _, report = processor.Runner(
            executor=processor.DaskExecutor(client=client, status=False),
            schema=Schema,
            chunksize=70,
            savemetrics=True,
        )({"ttbar": [str(REAL)]}, plain, treename="Events")
    opened = open_run(run.path)
    compared = summarize_chunks(opened, report=report).compared
    assert [(number.name, number.equal) for number in compared] == [
        ("bytesread", True),
        ("entries", True),
        ("chunks", True),
    ]
    assert {row["uri"] for row in rows(opened, "select uri from chunks")} == {str(REAL)}
    assert compared[1].reported == 200

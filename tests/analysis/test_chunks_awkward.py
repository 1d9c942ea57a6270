"""Chunks of `uproot.dask` and coffea's dataset tools, whose reading is fused into larger tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.chunks.chunks import summarize_chunks
from tests.conftest import rows, wait_until
from tests.support.nanoaod import write_events

pytest.importorskip("dask_awkward", reason="dask_awkward is not installed: coffea[dask-awkward]")

import awkward as ak
import dask
import dask_awkward
import uproot
from coffea.dataset_tools import apply_to_fileset, preprocess
from coffea.nanoevents import NanoAODSchema

N_EVENTS = 5000

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")


class Schema(NanoAODSchema):
    """NanoAOD without warnings about branches that the test files lack."""

    warn_missing_crossrefs = False


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of two worker processes, two threads each."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files of events."""
    folder = tmp_path_factory.mktemp("data")
    for i in range(2):
        write_events(folder / f"events-{i}.root", N_EVENTS, cluster=1000, seed=i)
    return [str(folder / f"events-{i}.root") for i in range(2)]


STEPS = [[0, 2000], [2000, 4000], [4000, N_EVENTS]]


def places(run: Any) -> list[tuple[Any, ...]]:
    """Return the chunks that are done, in order."""
    found = rows(run, "select * from chunks where state = 'done' order by uri, first")
    return [(row["uri"], row["tree"], row["first"], row["last"]) for row in found]


def muons(events: Any) -> Any:
    """Sum up muons."""
    return dask_awkward.sum(events.Muon.pt)


def test_apply_to_fileset(client: Client, files: list[str], tmp_path: Path) -> None:
    """Each step of coffea's dataset tools is a chunk, with bytes and worker, and sums are equal."""
    fileset = {"signal": {"files": {path: {"object_path": "Events"} for path in files}}}
    ready, _ = preprocess(fileset, step_size=2000, align_clusters=False, save_form=False)
    steps = [
        (path, "Events", *step)
        for path, spec in sorted(ready["signal"]["files"].items())
        for step in spec["steps"]
    ]
    with dask_strata.record(tmp_path, client=client) as run:
        lazy = apply_to_fileset(muons, ready, schemaclass=Schema)
        [found] = dask.compute(lazy)
    expected = sum(ak.sum(uproot.open(f"{path}:Events")["Muon_pt"].array()) for path in files)
    assert found["signal"] == pytest.approx(float(expected), rel=1e-3)
    opened = open_run(run.path)
    assert places(opened) == steps
    _assert_read(opened)


@pytest.mark.parametrize("open_files", [False, True])
def test_uproot_dask(client: Client, files: list[str], tmp_path: Path, *, open_files: bool) -> None:
    """Each partition of `uproot.dask` is a chunk, with files opened before or by the task."""
    with dask_strata.record(tmp_path, client=client) as run:
        events = uproot.dask(
            {path: {"object_path": "Events", "steps": STEPS} for path in files}
            if not open_files
            else dict.fromkeys(files, "Events"),
            open_files=open_files,
            step_size=2000 if open_files else uproot._util.unset,
        )
        total = ak.sum(events.Muon_pt**2).compute()
    assert total > 0
    opened = open_run(run.path)
    assert places(opened) == [(path, "Events", *step) for path in files for step in STEPS]
    _assert_read(opened)


def test_what_is_computed_again_is_no_retry(
    client: Client, files: list[str], tmp_path: Path
) -> None:
    """The same partitions, computed twice under the same keys, are done twice and not retried."""
    events = uproot.dask({files[0]: {"object_path": "Events", "steps": STEPS}})
    lazy = ak.sum(events.Muon_eta)
    with dask_strata.record(tmp_path, client=client) as run:
        lazy.compute()
        wait_until(
            lambda: client.run_on_scheduler(lambda dask_scheduler: not dask_scheduler.tasks),
            what="the scheduler to forget all tasks",
        )
        lazy.compute()
    opened = open_run(run.path)
    place = [(files[0], "Events", *step) for step in STEPS]
    assert places(opened) == sorted(2 * place)
    assert {row["n_attempts"] for row in rows(opened, "select n_attempts from chunks")} == {1}


def _assert_read(run: Any) -> None:
    """Assert that all chunks have bytes, which are all that uproot requested for them."""
    found = rows(run, "select * from chunks")
    assert all(chunk["read_bytes"] > 1000 for chunk in found)
    assert all(chunk["seconds"] > 0 and chunk["thread"] for chunk in found)
    assert summarize_chunks(run).total.events == 2 * N_EVENTS
    [sums] = rows(
        run,
        "select sum(c.read_bytes)::bigint as chunks, (select sum(r.requested_bytes)::bigint "
        "from library_reads r join chunks d on d.key = r.key) as library from chunks c",
    )
    assert sums["chunks"] == sums["library"]

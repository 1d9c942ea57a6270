"""A cluster with another file system: the run is copied to the client while it is recorded."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import dask_strata
from dask_strata.errors import RecordingError
from dask_strata.recorder.copying.fetch import fetch
from dask_strata.recorder.copying.sender import READ
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.deployment import Deployment
from tests.support.elsewhere import deployed, set_temporary, spooled
from tests.support.leftovers import leftovers

pytestmark = pytest.mark.long


class Counting(SchedulerPlugin):
    """Counts transitions on its own, as a truth to compare with."""

    name = "counting"

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        self.counts[(start, finish)] += 1


def counted(dask_scheduler: Any) -> Counter[tuple[str, str]]:
    return dask_scheduler.plugins["counting"].counts


def on_scheduler(dask_scheduler: Any) -> list[str]:
    return leftovers(dask_scheduler, "/no such folder") + spooled()


def on_worker(dask_worker: Any) -> list[str]:
    return leftovers(dask_worker, "/no such folder")


def traces(client: Client, runs: Path) -> list[Any]:
    """Return everything that a recording has left, on the cluster, here and in the folder."""
    found = client.run_on_scheduler(on_scheduler)
    for nanny in (False, True):
        for left in client.run(on_worker, nanny=nanny).values():
            found += left
    found += [t.name for t in threading.enumerate() if "dask-strata" in t.name]
    return found + [str(p) for p in runs.rglob("*") if p.name.startswith(".")]


def work(client: Client) -> int:
    futures = client.map(lambda i: i + 1, range(100), pure=False)
    total = client.submit(sum, futures, pure=False)
    result: int = total.result()
    del futures, total
    wait_until(
        lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0
    )
    return result


def test_a_run_is_copied_while_it_is_recorded(client: Client, runs: Path) -> None:
    """It grows in the named folder, is whole at the end, and nothing is left on the cluster."""
    client.register_plugin(Counting())
    with dask_strata.record(runs, client=client) as run:
        assert run.path.parent == runs
        assert work(client) == 5050
        truth = client.run_on_scheduler(counted)
        count = "select count(*) as n from scheduler_transitions"

        def arrived() -> bool:
            run.refresh()
            return rows(run, count)[0]["n"] == sum(truth.values())

        wait_until(arrived, what="the transitions to arrive while the block runs")
        assert run.state == "recording"
        assert client.run_on_scheduler(spooled)
    assert run.state == "complete"
    assert_whole(run)
    states = "select start_state as a, finish_state as b, count(*) as n from scheduler_transitions"
    assert {(r["a"], r["b"]): r["n"] for r in rows(run, f"{states} group by all")} == dict(truth)
    roles = rows(run, "select role, transport from processes order by role")
    assert [(r["role"], r["transport"]) for r in roles] == [
        ("client", "comm"),
        ("nanny", "comm"),
        ("nanny", "comm"),
        ("scheduler", "file"),
        ("worker", "comm"),
        ("worker", "comm"),
    ]
    assert traces(client, runs) == []
    client.unregister_scheduler_plugin("counting")


def test_a_broken_connection_is_resumed(
    client: Client, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line is logged; the run is whole."""

    def break_connections(dask_scheduler: Any) -> None:
        async def broken(comm: Any, **_: Any) -> None:
            comm.abort()

        handlers = dask_scheduler.handlers
        handlers["kept"], handlers[READ] = handlers[READ], broken

    def mend_connections(dask_scheduler: Any) -> None:
        dask_scheduler.handlers[READ] = dask_scheduler.handlers.pop("kept")

    caplog.set_level(logging.WARNING, "dask_strata")
    with dask_strata.record(runs, client=client) as run:
        work(client)
        client.run_on_scheduler(break_connections)
        wait_until(lambda: "interrupted" in caplog.text, what="the broken connection")
        work(client)
        client.run_on_scheduler(mend_connections)
    assert len([r for r in caplog.records if "interrupted" in r.message]) == 1
    assert_whole(run)
    assert rows(run, "select count(*) as n from tasks") == [{"n": 202}]
    assert traces(client, runs) == []


def test_a_copy_without_a_file_that_cannot_be_read_is_incomplete(
    client: Client, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is named, and the run is kept where it was recorded, for `fetch`."""

    def hide(dask_scheduler: Any, run_id: str) -> str:
        folder = dask_scheduler.plugins[f"dask-strata-{run_id}"].folder
        (folder / "run.json").rename(folder.parent / "run.json")
        (folder / "run.json").symlink_to(folder.parent / "run.json")
        return str(folder)

    def restore(dask_scheduler: Any, folder: str) -> None:
        (Path(folder).parent / "run.json").replace(Path(folder) / "run.json")

    caplog.set_level(logging.WARNING, "dask_strata")
    with dask_strata.record(runs, client=client) as run:
        work(client)
        folder = client.run_on_scheduler(hide, run_id=run.manifest.run_id)
    assert "is incomplete: the scheduler cannot read 'run.json'" in caplog.text
    client.run_on_scheduler(restore, folder=folder)
    [copy] = fetch(run.manifest.run_id, runs)
    assert copy.complete
    assert_whole(run)
    wait_until(lambda: traces(client, runs) == [], what="the removal of the run there")


@pytest.mark.release
def test_the_cluster_is_shut_down_inside_the_block(tmp_path: Path) -> None:
    """The closing scheduler waits until its client has the rest: the run is whole."""
    with deployed(tmp_path) as remote, remote.client() as client:
        client.wait_for_workers(2)
        with dask_strata.record(remote.runs, client=client) as run:
            work(client)
            client.shutdown()
        ended_early(run)


@pytest.mark.parametrize("end", ["close", "raise"])
def test_a_block_that_ends_early(client: Client, runs: Path, end: str) -> None:
    """The client closes inside the block, or the block raises: the run is whole."""
    ends: dict[str, Callable[[], Any]] = {"close": client.close, "raise": lambda: 1 / 0}
    raised = None
    try:
        with dask_strata.record(runs, client=client) as run:
            work(client)
            ends[end]()
    except ZeroDivisionError as error:
        raised = error
    assert (raised is None) == (end != "raise")
    ended_early(run)


def ended_early(run: dask_strata.Run) -> None:
    assert run.state == "complete"
    assert_whole(run)
    assert rows(run, "select count(*) as n from tasks") == [{"n": 101}]
    assert not list(run.path.glob(".*"))
    assert not [t.name for t in threading.enumerate() if "dask-strata" in t.name]


@pytest.fixture
def no_spool(client: Client, remote: Deployment) -> Iterator[None]:
    """A scheduler whose temporary folder cannot be written."""
    client.run_on_scheduler(set_temporary, folder="/no such folder")
    yield
    client.run_on_scheduler(set_temporary, folder=str(remote.folder / "here" / "tmp"))


@pytest.fixture
def no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not wait for the first files of the run."""
    monkeypatch.setattr("dask_strata.recorder.copying.receiver._FIRST_SECONDS", -1)


@pytest.mark.parametrize("failing", ["no_spool", "no_answer"])
def test_a_recording_that_cannot_start_leaves_nothing(
    client: Client, runs: Path, failing: str, request: pytest.FixtureRequest
) -> None:
    """Three times: the block runs, one line names the reason, and so does each use of the run."""
    caplog: pytest.LogCaptureFixture = request.getfixturevalue("caplog")
    request.getfixturevalue(failing)
    for _ in range(3):
        caplog.clear()
        with dask_strata.record(runs, client=client) as run:
            assert work(client) == 5050
        (line,) = [r.message for r in caplog.records if r.name == "dask_strata"]
        assert line.startswith("dask-strata does not record: ")
        assert "\n" not in line
        assert not run
        with pytest.raises(RecordingError, match="Nothing was recorded"):
            run.tasks  # noqa: B018  a use of the run
        assert list(runs.parent.iterdir()) == []
    client.run_on_scheduler(set_temporary, folder=str(runs.parents[1] / "tmp"))
    assert traces(client, runs) == []


def test_an_interrupt_at_the_start_leaves_nothing(client: Client, runs: Path) -> None:
    """Ctrl-C while the recording starts."""
    import _thread

    started = threading.Event()

    def interrupt() -> None:
        started.wait()
        wait_until(
            lambda: client.run_on_scheduler(
                lambda dask_scheduler: [p for p in dask_scheduler.plugins if "strata" in p]
            ),
            what="the recorder to attach",
        )
        _thread.interrupt_main()

    helper = threading.Thread(target=interrupt)
    helper.start()
    started.set()
    with pytest.raises(KeyboardInterrupt), dask_strata.record(runs, client=client):
        helper.join()
    helper.join()
    try:
        wait_until(lambda: not traces(client, runs), 60)
    finally:
        assert traces(client, runs) == []


def test_two_recordings_at_once(client: Client, runs: Path) -> None:
    """Each is copied and removed on its own."""
    with dask_strata.record(runs, client=client, name="outer") as outer:
        with dask_strata.record(runs, client=client, name="inner") as inner:
            work(client)
        assert_whole(inner)
        work(client)
    assert_whole(outer)
    assert len(runs_in(runs)) == 2
    assert traces(client, runs) == []


def test_a_visible_folder_is_written_directly(client: Client, tmp_path: Path) -> None:
    """The scheduler sees this folder: nothing is copied."""
    runs = tmp_path / "shared"
    with dask_strata.record(runs, client=client) as run:
        wait(client.map(abs, range(3)))
        assert client.run_on_scheduler(spooled) == []
    assert_whole(run)
    assert traces(client, runs) == []


def modes(dask_scheduler: Any) -> set[int]:
    return {Path(p).stat().st_mode & 0o077 for p in spooled() if Path(p).is_dir()}


def test_only_the_user_can_open_the_spool(client: Client, runs: Path) -> None:
    """Neither its folder nor those in it can be opened by the group or by others."""
    with dask_strata.record(runs, client=client):
        assert client.run_on_scheduler(modes) == {0}

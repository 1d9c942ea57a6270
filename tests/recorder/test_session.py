"""`with dask_strata.record(…)` attaches to a running cluster and detaches without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from distributed import Client, LocalCluster, wait

import dask_strata
from dask_strata import Run
from dask_strata.errors import RecordingError, SettingError, UsageError
from tests.conftest import assert_whole, rows, runs_in, wait_until


def inc(x: int) -> int:
    """Add one."""
    return x + 1


def add(*numbers: int) -> int:
    """Add them all."""
    return sum(numbers)


def keys_of(run: Run) -> set[str]:
    """Return the keys of a run's tasks."""
    return {row["key"] for row in rows(run, "select key from tasks")}


def work(client: Client, name: str, n: int = 10) -> int:
    """Compute a small tree of tasks with keys of a name, and release it."""
    numbers = [client.submit(inc, i, key=f"{name}-{i}") for i in range(n)]
    return client.submit(add, *numbers, key=f"{name}-sum").result()


def keys_of_work(name: str, n: int = 10) -> set[str]:
    """Return the keys that `work` uses."""
    return {f"{name}-{i}" for i in [*range(n), "sum"]}


def forget_all(client: Client) -> None:
    """Wait until the scheduler has forgotten all tasks."""
    wait_until(
        lambda: client.run_on_scheduler(lambda dask_scheduler: not dask_scheduler.tasks),
        what="the scheduler to forget all tasks",
    )


# Traces of a recording.


def traces(folder: str) -> dict[str, Any]:
    """Return the recorder's threads, open files and living objects in this process."""
    import gc
    import threading

    files = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # one that was closed meanwhile
            files.append(str(entry.readlink()))
    gc.collect()
    engines = [
        type(thing).__name__
        for thing in gc.get_objects()
        if str(type(thing).__module__).startswith("dask_strata.")
        and type(thing).__name__
        in ("Engine", "FollowedLog", "LogFollower", "MessageHook", "SpillHook")
    ]
    return {
        "threads": [t.name for t in threading.enumerate() if t.name.startswith("dask-strata")],
        "files": [file for file in files if file.startswith(folder)],
        "objects": sorted(engines),
    }


def log_of(owner: Any, attribute: str) -> tuple[str, int | None]:
    """Return the type and bound of one of Dask's logs."""
    log = getattr(owner, attribute)
    return f"{type(log).__module__}.{type(log).__name__}", log.maxlen


def names_of(handlers: dict[str, Any]) -> dict[str, str]:
    """Return the full name of each handler's function."""
    found = {name: getattr(h, "__func__", getattr(h, "func", h)) for name, h in handlers.items()}
    return {name: f"{h.__module__}.{h.__qualname__}" for name, h in found.items()}


def on_scheduler(dask_scheduler: Any, folder: str) -> dict[str, Any]:
    """Return everything on the scheduler that a recording touches."""
    scheduler = dask_scheduler
    return {
        "plugins": sorted(scheduler.plugins),
        "stream handlers": names_of(scheduler.stream_handlers),
        "handlers": names_of(scheduler.handlers),
        "metadata": dict(scheduler.task_metadata),
        "worker plugins": sorted(scheduler.worker_plugins),
        "nanny plugins": sorted(scheduler.nanny_plugins),
        "log": log_of(scheduler, "transition_log"),
        "callbacks": sorted(scheduler.periodic_callbacks),
        "attributes": sorted(k for k in vars(scheduler) if "strata" in k),
        **traces(folder),
    }


def on_worker(dask_worker: Any, folder: str) -> dict[str, Any]:
    """Return everything on a worker that a recording touches."""
    worker = dask_worker
    slow = getattr(worker.data, "_slow_uncached", None)
    return {
        "plugins": sorted(worker.plugins),
        "stream handlers": sorted(worker.stream_handlers),
        "handlers": sorted(worker.handlers),
        "log": log_of(worker.state, "log"),
        "incoming": log_of(worker, "transfer_incoming_log"),
        "outgoing": log_of(worker, "transfer_outgoing_log"),
        "spill": f"{type(slow).__module__}.{type(slow).__qualname__}",
        "callbacks": sorted(worker.periodic_callbacks),
        **traces(folder),
    }


def on_nanny(dask_worker: Any, folder: str) -> dict[str, Any]:
    """Return everything on a nanny that a recording touches."""
    return {"plugins": sorted(dask_worker.plugins), **traces(folder)}


def on_client(client: Client, folder: str) -> dict[str, Any]:
    """Return everything on a client that a recording touches."""
    return {"attributes": sorted(vars(client)), **traces(folder)}


def everywhere(client: Client, folder: Path) -> dict[str, Any]:
    """Return everything that a recording touches, in the whole cluster."""
    path = str(folder)
    return {
        "scheduler": client.run_on_scheduler(on_scheduler, folder=path),
        "workers": client.run(on_worker, folder=path),
        "nannies": client.run(on_nanny, folder=path, nanny=True),
        "client": on_client(client, path),
    }


#: Recorders of closed schedulers of other files' tests: Dask keeps schedulers in this process, also
#: without a recording.
_earlier: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def _objects_of_other_files() -> None:
    _earlier.clear()
    _earlier.update(traces("")["objects"])


def assert_no_trace(after: dict[str, Any]) -> None:
    """Assert that no name or object of the recorder is in any process, and logs are Dask's."""
    here = [after["scheduler"], after["client"], *after["nannies"].values()]
    for state in [*here, *after["workers"].values()]:
        for name in ("threads", "files"):
            assert state[name] == []
    for state in here:
        assert Counter(state["objects"]) - _earlier == Counter()
    assert [state["objects"] for state in after["workers"].values()] == [[]] * len(after["workers"])
    assert not re.findall(r".{0,200}strata.{0,100}", repr(after))
    assert after["scheduler"]["log"][0] == "collections.deque"
    assert after["scheduler"]["log"][1] == dask.config.get("distributed.admin.low-level-log-length")
    for state in after["workers"].values():
        for log in ("log", "incoming", "outgoing"):
            kind, bound = state[log]
            assert kind == "collections.deque"
            assert bound is not None
        assert state["spill"] == "distributed.spill.Slow"
    assert "_graph_to_futures" not in after["client"]["attributes"]


@pytest.mark.long
def test_a_recording_leaves_no_trace(client: Client, runs: Path) -> None:
    """The cluster differs during the block, and is after it as before."""
    assert work(client, "before") == 55
    before = everywhere(client, runs)
    assert_no_trace(before)
    with dask_strata.record(runs, client=client) as run:
        assert work(client, "during") == 55
        during = everywhere(client, runs)
    after = everywhere(client, runs)
    assert after == before
    # The compared state does change during a recording.
    for state in (during["scheduler"], *during["workers"].values(), *during["nannies"].values()):
        assert any("strata" in plugin for plugin in state["plugins"])
        assert state["threads"]
        assert state["files"]
        assert "Engine" in state["objects"]
    assert during["scheduler"]["log"][0] != "collections.deque"
    assert all(w["log"][0] != "collections.deque" for w in during["workers"].values())
    assert all(w["spill"] != "distributed.spill.Slow" for w in during["workers"].values())
    assert during["scheduler"]["metadata"]
    assert "_graph_to_futures" in during["client"]["attributes"]
    assert work(client, "after") == 55
    assert run.state == "complete"
    assert_whole(run)
    assert not {key for key in keys_of(run) if key.startswith("after")}


def test_one_cluster_is_recorded_twice(client: Client, runs: Path) -> None:
    """Each of two successive recordings is complete and has only its own rows."""
    found = []
    for name in ("first", "second"):
        with dask_strata.record(runs, client=client, name=name) as run:
            assert work(client, name) == 55
            forget_all(client)
        found.append(run)
        work(client, f"between-{name}")
        forget_all(client)
    assert [run.manifest.name for run in found] == ["first", "second"]
    assert len(runs_in(runs)) == 2
    for run, name in zip(found, ("first", "second"), strict=True):
        assert run.state == "complete"
        assert_whole(run)
        assert keys_of(run) == keys_of_work(name)
        executed = rows(run, "select distinct key from worker_transitions")
        assert {r["key"] for r in executed} <= keys_of_work(name)
        reasons = rows(run, "select distinct role, exit_reason from processes order by role")
        assert [(r["role"], r["exit_reason"]) for r in reasons] == [
            (role, "detached") for role in ("client", "nanny", "scheduler", "worker")
        ]
    assert_no_trace(everywhere(client, runs))


@pytest.mark.long
def test_two_recordings_at_once(client: Client, runs: Path) -> None:
    """Recordings that overlap each contain the tasks of their own time."""
    outer = dask_strata.record(runs, client=client, name="outer")
    inner = dask_strata.record(runs, client=client, name="inner")
    with outer as outer_run:
        work(client, "a")
        forget_all(client)
        inner_run = inner.__enter__()
        work(client, "b")
        forget_all(client)
    work(client, "c")  # the outer one has ended before the inner one
    forget_all(client)
    inner.__exit__(None, None, None)
    assert keys_of(outer_run) == keys_of_work("a") | keys_of_work("b")
    assert keys_of(inner_run) == keys_of_work("b") | keys_of_work("c")
    for run in (outer_run, inner_run):
        assert run.state == "complete"
        assert_whole(run)
        sent = rows(run, "select distinct first_key from client_submissions")
        assert {r["first_key"] for r in sent} == keys_of(run)
    del outer, inner
    assert_no_trace(everywhere(client, runs))


def test_an_asynchronous_client_is_recorded(runs: Path) -> None:
    """`async with` records the cluster of an asynchronous client, and leaves no trace."""

    async def main() -> tuple[int, Run]:
        async with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=False,
                asynchronous=True,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):

            async def state() -> tuple[Any, Any, Any]:
                return (
                    await client.run_on_scheduler(on_scheduler, folder=str(runs)),
                    await client.run(on_worker, folder=str(runs)),
                    on_client(client, str(runs)),
                )

            before = await state()
            async with dask_strata.record(runs, client=client) as run:
                numbers = [client.submit(inc, i, key=f"inc-{i}") for i in range(10)]
                total = await client.submit(add, *numbers, key="inc-sum")
                assert run.state == "recording"
            assert await state() == before
            with (
                pytest.raises(UsageError, match="asynchronous"),
                dask_strata.record(runs, client=client),
            ):
                pytest.fail("a plain `with` was accepted")
            assert await state() == before
        return total, run

    total, run = asyncio.run(main())
    assert total == 55
    assert run.state == "complete"
    assert_whole(run)
    assert keys_of(run) == keys_of_work("inc")
    assert len(runs_in(runs)) == 1


@pytest.mark.long
def test_a_coroutine_records_a_synchronous_client(client: Client, runs: Path) -> None:
    """`async with` also works in a notebook's coroutine: the client's event loop is another."""

    async def main() -> Run:
        async with dask_strata.record(runs, client=client) as run:
            assert run.state == "recording"
            assert await asyncio.to_thread(work, client, "inc") == 55
        return run

    run = asyncio.run(asyncio.wait_for(main(), 60))
    assert run.state == "complete"
    assert_whole(run)
    assert keys_of(run) == keys_of_work("inc")
    assert_no_trace(everywhere(client, runs))


def test_a_closed_client_is_not_recorded(
    client: Client, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The block runs, with `with` and `async with`, and one line has the reason."""
    closed = Client(client.scheduler.address, set_as_default=False)
    closed.close()

    async def main() -> Run:
        async with dask_strata.record(runs, client=closed) as run:
            return run

    with dask_strata.record(runs, client=closed) as run:
        assert not run
    assert not asyncio.run(main())
    reason = "The client is not connected to a scheduler: its status is closed."
    assert [r.getMessage() for r in caplog.records if r.name == "dask_strata"] == [
        f"dask-strata does not record: {reason}"
    ] * 2
    with pytest.raises(RecordingError, match="its status is closed"):
        _ = run.tasks
    assert not runs_in(runs)


@pytest.mark.long
def test_an_exception_passes_and_the_record_is_complete(client: Client, runs: Path) -> None:
    """An exception in the block passes through it; the record is complete, no trace is left."""
    with (
        pytest.raises(ZeroDivisionError),
        dask_strata.record(runs, client=client),
    ):
        client.submit(lambda: 1 / 0, key="divides").result()
    (run,) = runs_in(runs)
    assert run.state == "complete"
    assert_whole(run)
    (task,) = rows(run, "select state, exception from tasks where key = 'divides'")
    assert task["state"] == "erred"
    assert "ZeroDivisionError" in task["exception"]
    assert_no_trace(everywhere(client, runs))


@pytest.mark.parametrize("first", ["client", "cluster"])
def test_a_cluster_that_ends_inside_the_block_is_recorded_to_its_end(
    runs: Path, first: str
) -> None:
    """If client and cluster close inside the block, it ends without error, the record complete."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        assert work(client, "a") == 55
        for closing in (client, cluster) if first == "client" else (cluster, client):
            closing.close()

    def ended() -> bool:
        run.refresh()
        return not rows(run, "select 1 from processes where stop is null")

    wait_until(ended, what="the end of all processes")
    assert run.state == "complete"
    assert_whole(run)
    assert keys_of(run) == keys_of_work("a")


def test_results_are_the_same_as_without_recording(client: Client, runs: Path) -> None:
    """The same work gives the same results, types and exceptions, recorded or not."""

    def outcome() -> list[Any]:
        lazy = dask.delayed(sorted)([dask.delayed(inc)(i) for i in range(10, 0, -1)])
        failing = client.submit(lambda: {}["no such key"], pure=False)
        scattered = client.scatter({"a": [1, 2], "b": b"\x00"}, hash=False)
        return [
            lazy.compute(),
            client.gather(client.map(str, range(5), pure=False)),
            client.submit(dict, scattered, pure=False).result(),
            repr(failing.exception()),
            client.get({"x": (inc, 1), ("y", 0): (inc, "x")}, [("y", 0), "x"]),
            client.persist(dask.delayed(inc)(1)).compute(),
        ]

    alone = outcome()
    with dask_strata.record(runs, client=client) as run:
        recorded = outcome()
    assert recorded == alone
    assert [type(a) for a in recorded] == [type(a) for a in alone]
    assert_whole(run)


def test_a_run_is_read_while_it_is_recorded(client: Client, runs: Path) -> None:
    """Inside the block the run grows with the work; after it the same object is complete."""
    with dask_strata.record(runs, client=client, sample_interval="100ms") as run:
        assert run.path.parent == runs
        assert run.state == "recording"

        def count(query: str) -> int:
            run.refresh()
            return rows(run, query)[0]["n"]

        in_memory = "select count(*) as n from tasks where state = 'memory'"
        assert count(in_memory) == 0
        futures = [client.submit(inc, i, key=f"one-{i}") for i in range(7)]
        wait(futures)
        wait_until(lambda: count(in_memory) == 7, seconds=5, what="seven recorded results")
        more = [client.submit(inc, i, key=f"two-{i}") for i in range(5)]
        wait(more)
        wait_until(lambda: count(in_memory) == 12, seconds=5, what="twelve recorded results")
        wait_until(
            lambda: count("select count(distinct process) as n from worker_samples") == 3,
            seconds=10,
            what="samples of each process",
        )
        assert run.state == "recording"
        assert {f.severity for f in run.check().findings} <= {"ok", "note"}
    assert run.state == "complete"
    assert count(in_memory) == 12
    assert_whole(run)


def test_settings_are_keywords(client: Client, runs: Path) -> None:
    """Keywords are settings: here interval and name, and no source lines or script text."""
    with dask_strata.record(
        runs, client=client, name="a name", flush_interval="50ms", code=False, settings=False
    ) as run:
        secret = "do not record this line"
        client.submit(len, secret, key="length").result()
    assert_whole(run)
    assert run.flush_interval_seconds == 0.05
    assert run.manifest.name == "a name"
    assert "text" not in run.script
    assert rows(run, "select count(*) as n from submissions where code is not null") == [{"n": 0}]
    sent = rows(run, "select code, line from client_submissions")
    assert [s["code"] for s in sent] == [None]
    assert not run.config
    assert not run.versions
    for segment in (run.path / "segments").iterdir():
        assert b"do not record this line" not in _unpacked(segment)


def test_code_is_recorded_by_default(client: Client, runs: Path) -> None:
    """Without `code=False` the user's source line is recorded."""
    with dask_strata.record(runs, client=client) as run:
        client.submit(len, "record this line", key="length").result()
    (sent,) = rows(run, "select code, file from client_submissions")
    assert sent["code"] == 'client.submit(len, "record this line", key="length").result()'
    assert sent["file"] == __file__


def _unpacked(segment: Path) -> bytes:
    """Return the content of a segment without its compression."""
    from dask_strata.store.segments.decode import unpack
    from dask_strata.store.segments.frames import payloads

    return b"".join(repr(unpack(p)).encode() for p in payloads(segment.read_bytes()))


def test_an_unknown_setting_is_named(client: Client, runs: Path) -> None:
    """An unknown keyword and an invalid value raise an error that names them."""
    with pytest.raises(SettingError, match=r"flush_intervall|flush-intervall") as caught:
        dask_strata.record(runs, client=client, flush_intervall="50ms")
    assert "flush-interval" in str(caught.value.hint)
    with pytest.raises(SettingError, match="nonsense"):
        dask_strata.record(runs, client=client, sample_interval="nonsense")
    assert not runs.exists()


def test_the_current_client_is_the_default(client: Client, runs: Path) -> None:
    """Without `client=` the current client's cluster is recorded."""
    with client.as_current(), dask_strata.record(runs) as run:
        work(client, "a")
    assert_whole(run)
    assert keys_of(run) == keys_of_work("a")


def test_without_a_client_it_is_an_error(runs: Path) -> None:
    """Without any client the error shows how to pass one."""
    with pytest.raises(UsageError, match="no Dask client") as caught:
        dask_strata.record(runs)
    assert "client=" in str(caught.value.hint)


@pytest.mark.release
@pytest.mark.long
def test_a_folder_that_cannot_be_created(
    client: Client, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The block runs, a line names the reason, and so does a use of the run; no trace is left."""
    runs.write_text("a file, where a folder should be")
    before = everywhere(client, runs)
    with dask_strata.record(runs, client=client) as run:
        assert work(client, "a") == 55
    assert "dask-strata does not record: This process cannot write" in caplog.text
    with pytest.raises(dask_strata.StrataError, match="Nothing was recorded"):
        run.refresh()
    assert everywhere(client, runs) == before


# Two ways to record transitions.


def eventful(client: Client, runs: Path) -> None:
    """Do work with all kinds of transitions."""
    forget_all(client)
    work(client, "tree", 40)
    erring = client.submit(lambda: 1 / 0, key="errs", retries=1)
    dependent = client.submit(inc, erring, key="needs-errs")
    wait([erring, dependent])
    assert dependent.status == "error"
    # The task to blame is read from the scheduler, which forgets it with the tasks.
    blamed = "select count(*) as n from scheduler_transitions where blame is not null"
    wait_until(lambda: all(rows(run, blamed)[0]["n"] == 2 for run in runs_in(runs)))
    far = client.submit(inc, 1, key="nowhere", resources={"none": 1})
    wait_until(
        lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.unrunnable)),
        what="a task that no worker can run",
    )
    far.cancel()
    data = client.scatter([1, 2, 3], hash=False)
    assert client.submit(sum, data, key="scattered").result() == 6
    many = client.map(inc, range(60), key=[f"many-{i}" for i in range(60)])
    assert sum(client.gather(many)) == 1830
    del erring, dependent, far, data, many
    forget_all(client)


@pytest.mark.long
@pytest.mark.parametrize("work_in", [eventful], ids=lambda f: f.__name__)
def test_both_taps_record_the_same_transitions(
    client: Client, runs: Path, work_in: Callable[[Client, Path], None]
) -> None:
    """Plugin calls and Dask's own logs result in the same rows, in all columns."""
    with (
        dask_strata.record(runs, client=client, name="log", tap="auto") as by_log,
        dask_strata.record(runs, client=client, name="plugin", tap="plugin") as by_plugin,
    ):
        work_in(client, runs)
    taps = "select tap from processes where role = 'scheduler'"
    assert [rows(run, taps)[0]["tap"] for run in (by_log, by_plugin)] == ["log", "plugin"]
    for run in (by_log, by_plugin):
        assert_whole(run)

    def transitions(run: Run, columns: str, where: str = "true") -> Counter[tuple[Any, ...]]:
        found = rows(run, f"select {columns} from scheduler_transitions where {where}")
        return Counter(tuple(row.values()) for row in found)

    states = "key, key_type, start_state, finish_state, stimulus_id"
    found = transitions(by_log, states)
    assert transitions(by_plugin, states) == found
    kinds = {(start, finish) for _, _, start, finish, _ in found}
    assert {
        ("released", "waiting"),
        ("waiting", "processing"),
        ("processing", "memory"),
        ("processing", "erred"),
        ("waiting", "no-worker"),
    } <= kinds
    assert "forgotten" in {finish for _, finish in kinds}
    details = "key, worker, thread, nbytes, typename, startstops::text"
    done = "start_state = 'processing' and finish_state = 'memory'"
    finished = transitions(by_log, details, done)
    assert finished
    assert all(value is not None for row in finished for value in row[:5])
    assert transitions(by_plugin, details, done) == finished
    failed = "key, worker, exception, blame, suspicious"
    erred = transitions(by_log, failed, "finish_state = 'erred'")
    assert {row[0] for row in erred} == {"errs", "needs-errs"}
    assert transitions(by_plugin, failed, "finish_state = 'erred'") == erred


def test_the_version_of_dask_is_supported() -> None:
    """The tests run with a version of Dask that dask-strata supports."""
    year, month = map(int, distributed.__version__.split(".")[:2])
    assert (year, month) >= (2025, 3)

"""Each cell of the metadata map, filled by a real cluster that was made to do it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster, get_worker

import dask_strata
from dask_strata import Run
from dask_strata.analysis.map import metadata_map
from tests.conftest import assert_whole, rows, runs_in, wait_until

SECRET = "hunter2-strata"
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NAME": "cells",
    "SLURM_JOB_PARTITION": "short",
    "SLURM_JOB_NODELIST": "node[01-02]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "4",
    "SLURM_MEM_PER_NODE": "2048",
    "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_END_TIME": "1700003600",
    "SLURM_PROCID": "1",
}


# What the tasks do.


def inc(x: Any) -> Any:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y


def nap(seconds: float, *_: Any) -> float:
    time.sleep(seconds)
    return seconds


def length(x: Any) -> int:
    return len(x)


def block(n: int, *_: Any) -> bytes:
    return os.urandom(n)


def where_and_when() -> dict[str, Any]:
    start = time.time()
    time.sleep(0.05)
    return {
        "worker": get_worker().address,
        "thread": threading.get_ident(),
        "pid": os.getpid(),
        "start": start,
        "stop": time.time(),
    }


def explode() -> None:
    raise ZeroDivisionError("on purpose")


def succeed_the_third_time(folder: str) -> str:
    path = Path(folder) / "tries"
    tries = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(tries))
    if tries < 3:
        raise OSError(f"try {tries}")
    return "third time"


def say_hello() -> None:
    get_worker().log_event("from-a-worker", {"said": "hello"})


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def totals(dask_worker: Any) -> tuple[int, int, int]:
    return (
        dask_worker.state.transfer_incoming_count_total,
        dask_worker.transfer_outgoing_count_total,
        dask_worker.state.transition_counter,
    )


def line_of(mark: str) -> tuple[int, str]:
    """Return number and text of the line of this file that ends with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = [(i, x.strip()) for i, x in enumerate(lines, 1) if x.endswith(f"# line: {mark}")]
    assert len(found) == 1
    return found[0]


def seen(run: Run, query: str) -> list[dict[str, Any]]:
    """Return the answer to a query on what is on record by now."""
    run.refresh()
    return rows(run, query)


def ns(time: Any) -> int:
    """Return a time of a table as nanoseconds since the epoch."""
    return round(time.timestamp() * 1e9)


# One recorded run that many cells are read from.


@dataclass
class Pipeline:
    """A recorded run, and what the cluster itself said meanwhile."""

    run: Run
    pids: dict[str, int]
    workers: list[str] = field(default_factory=list)
    client: str = ""
    scheduler: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    counted_at_least: int = 0
    counted_at_most: int = 0
    began: float = 0.0
    ended: float = 0.0


DIAMOND = {
    "diamond-a": (inc, 1),
    "diamond-b": (inc, "diamond-a"),
    "diamond-c": (add, "diamond-a", "diamond-b"),
}


def _work(client: Client, folder: Path, workers: list[str], facts: dict[str, Any]) -> None:
    a, b = workers
    kept = [client.submit(inc, 1, key="cell-submit")]  # line: submit
    kept += client.map(inc, range(5), key=[f"cell-map-{i}" for i in range(5)])  # line: map
    delayed = [dask.delayed(inc)(i, dask_key_name=f"cell-delayed-{i}") for i in range(3)]
    facts["delayed"] = dask.compute(*delayed)  # line: compute
    array = (da.ones((8, 8), chunks=4) + 1).sum()
    facts["array"] = array.compute()  # line: array
    facts["array layers"] = dict(array.__dask_graph__().dependencies)
    kept.append((da.arange(6, chunks=2) * 2).persist())  # line: persist
    facts["diamond"] = client.get(DIAMOND, ["diamond-c"])  # line: get
    try:
        import dask.dataframe as dd
        import pandas as pd
    except ImportError:
        facts["frame"] = None
    else:
        frame = dd.from_pandas(pd.DataFrame({"x": range(10)}), npartitions=2)
        facts["frame"] = frame.x.sum().compute()  # line: frame
    with dask.annotate(custom={"who": "me", "n": 3}):
        kept.append(client.submit(inc, 10, key="cell-annotated", priority=7))
    kept.append(client.submit(length, b"small", key="cell-small"))
    kept.append(client.submit(length, np.zeros(50_000), key="cell-large"))
    facts["there"] = client.submit(where_and_when, key="cell-there", workers=[a]).result()
    source = client.submit(block, 3_000_000, key="cell-source", workers=[a])
    kept.append(client.submit(length, source, key="cell-moved", workers=[b]))
    distributed.wait(kept)
    bad = client.submit(explode, key="cell-bad")
    worse = client.submit(inc, bad, key="cell-worse")
    facts["bad"] = [type(f.exception()).__name__ for f in (bad, worse)]
    tried = client.submit(succeed_the_third_time, str(folder), key="cell-tried", retries=2)
    facts["tried"] = tried.result()
    client.log_event("from-the-client", {"answer": 42})
    client.submit(say_hello).result()
    other = Client(client.scheduler.address, set_as_default=False)
    facts["other"] = other.id
    other.close()
    busy = client.map(nap, [1.0] * 8, key=[f"cell-nap-{i}" for i in range(8)])
    client.gather(busy)
    facts["pids"] = client.run(os.getpid)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder = tmp_path_factory.mktemp("pipeline")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SLURM, "DASK_ICE__FLAVOUR": "chocolate"}.items():
            patch.setenv(name, value)
        with (
            LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            dask.config.set(
                {
                    "ice.flavour": "vanilla",
                    "ice.api-token": SECRET,
                    "ice.store": f"postgres://me:{SECRET}@example.org/db",
                    "distributed.admin.tick.limit": "7s",
                    "distributed.diagnostics.computations.nframes": 3,
                }
            ),
        ):
            made = Pipeline(None, {}, began=time.time())  # type: ignore[arg-type]
            made.workers = sorted(cluster.scheduler.workers)
            made.client, made.scheduler = client.id, cluster.scheduler.address
            counted = cluster.scheduler.transition_counter
            recording = dask_strata.record(folder / "runs", client=client, sample_interval="100ms")
            with recording as made.run:
                _work(client, folder, made.workers, made.facts)
                # The scheduler hears a little later of futures that were let go of.
                wanted = cluster.scheduler.clients[client.id].wants_what
                wait_until(lambda: {ts.key for ts in list(wanted)} == set(client.refcount))
                made.counted_at_least = cluster.scheduler.transition_counter - counted
            # Futures in reference cycles may be let go of at any time, also just now.
            made.counted_at_most = cluster.scheduler.transition_counter - counted
            made.ended = time.time()
            made.pids = made.facts["pids"]
        yield made


def of_role(run: Run, role: str) -> list[str]:
    query = f"select process from processes where role = '{role}' order by process"
    return [row["process"] for row in rows(run, query)]


def test_pipeline_is_whole(pipeline: Pipeline) -> None:
    """The results are right, nothing is missing, and every cell of the map has rows."""
    facts = pipeline.facts
    assert facts["delayed"] == (1, 2, 3)
    assert facts["array"] == 128.0
    assert facts["diamond"] == [5] or facts["diamond"] == (5,)
    assert facts["bad"] == ["ZeroDivisionError", "ZeroDivisionError"]
    assert facts["tried"] == "third time"
    assert_whole(pipeline.run)
    assert pipeline.run.state == "complete"
    for cell in metadata_map(pipeline.run):
        assert cell.total > 0 or cell.by_choice, cell


def test_counters_are_dasks(pipeline: Pipeline) -> None:
    """There are as many scheduler transitions on record as Dask counted in that time."""
    found = rows(pipeline.run, "select value, recorded, final from counters where final")
    assert len(found) == 3  # the scheduler and two workers
    assert all(row["value"] == row["recorded"] > 0 for row in found)
    recorded = len(pipeline.run.scheduler_transitions)
    assert pipeline.counted_at_least <= recorded <= pipeline.counted_at_most


# Job.


def test_processes(pipeline: Pipeline) -> None:
    """Each process has its role, address, number, versions, threads, start and end."""
    found = rows(pipeline.run, "select * from processes order by role, address")
    assert [p["role"] for p in found] == ["client", *["nanny"] * 2, "scheduler", *["worker"] * 2]
    assert found[0]["address"] == pipeline.client
    assert found[3]["address"] == pipeline.scheduler
    assert pipeline.scheduler.startswith("tcp://")
    assert {p["address"]: p["pid"] for p in found[4:]} == pipeline.pids
    assert {p["pid"] for p in found[:4]} == {os.getpid()}
    for process in found:
        assert process["python"] == platform.python_version()
        assert process["dask"] == dask.__version__
        assert process["distributed"] == distributed.__version__
        assert process["host"] == platform.node()
        assert process["exit_reason"] == "detached"
        assert process["transport"] == "file"
        start, stop = process["start"].timestamp(), process["stop"].timestamp()
        assert pipeline.began < start < stop < pipeline.ended
    for worker in found[4:]:
        assert worker["nthreads"] == 2
        assert worker["memory_limit_bytes"] > 2**20


def test_job(pipeline: Pipeline) -> None:
    """Launcher, limits, machine, network, file systems and command are on record everywhere."""
    job = pipeline.run.job
    assert set(job) == {row["process"] for row in rows(pipeline.run, "select * from processes")}
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    models = [x.partition(":")[2].strip() for x in info.splitlines() if x.startswith("model name")]
    for facts in job.values():
        assert facts["launcher"] == "slurm"
        assert facts["job.id"] == "4242"
        assert facts["job.name"] == "cells"
        assert facts["job.queue"] == "short"
        assert facts["job.nodes"] == "node[01-02]"
        assert facts["job.node-count"] == "2"
        assert facts["job.cpus-per-task"] == "4"
        assert facts["job.memory-per-node"] == str(2048 * 2**20)
        assert facts["job.time-limit"] == "3600"
        assert facts.get("cpu.model") in {*models, None}
        assert facts["cpu.allowed"] == str(len(os.sched_getaffinity(0)))
        assert facts["memory.total"] == str(psutil.virtual_memory().total)
        assert facts["os.architecture"] == platform.machine()
        assert facts["network.lo.address"].startswith("127.0.0.1")
        kinds = [k for k in facts if k.startswith("filesystem.") and k.endswith(".type")]
        assert kinds
        assert not any(name.startswith("error.") for name in facts), facts
    workers = of_role(pipeline.run, "worker")
    assert {int(job[w]["process.pid"]) for w in workers} == set(pipeline.pids.values())
    [scheduler] = of_role(pipeline.run, "scheduler")
    program = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert job[scheduler]["process.command-line"].startswith(program)
    assert job[scheduler]["process.working-directory"] == str(Path.cwd())


# Configuration.


def test_configuration(pipeline: Pipeline) -> None:
    """Each process has its effective configuration with sources, and what differs is named."""
    run = pipeline.run
    [client], [scheduler] = of_role(run, "client"), of_role(run, "scheduler")
    workers = of_role(run, "worker")
    assert run.config[client]["ice.flavour"] == "vanilla"
    assert run.config[client]["distributed.admin.tick.limit"] == "7s"
    assert {run.config[w]["ice.flavour"] for w in workers} == {"chocolate"}
    assert {run.config[w]["distributed.admin.tick.limit"] for w in workers} == {"3s"}
    sources = {
        (row["process"], row["name"]): row["source"]
        for row in rows(run, "select process, name, source from config")
    }
    assert sources[client, "ice.flavour"] == "set at run time"
    assert sources[workers[0], "ice.flavour"] == "DASK_ICE__FLAVOUR"
    assert sources[workers[0], "distributed.scheduler.bandwidth"] in {"default", "inherited"}
    differences = {
        (row["name"], row["value"]): set(row["processes"].split(", "))
        for row in rows(run, "select * from config_differences")
    }
    assert differences["ice.flavour", '"chocolate"'] == set(workers)
    assert differences["ice.flavour", '"vanilla"'] >= {client, scheduler}
    assert differences["distributed.admin.tick.limit", '"3s"'] == set(workers)
    assert ("distributed.scheduler.bandwidth", "null") not in differences


def test_secrets_are_nowhere(pipeline: Pipeline) -> None:
    """A secret in the configuration is in no table at all, only its name is."""
    run = pipeline.run
    [client] = of_role(run, "client")
    assert run.config[client]["ice.api-token"] == "(redacted)"
    assert run.config[client]["ice.store"] == "postgres://***@example.org/db"
    own = run.script.pop("text", "")
    assert own == "" or SECRET not in own or "pytest" in run.script["command"]
    for name in dask_strata.schema.RECORDED:
        if name not in ("script", "submissions"):  # they may quote this very file
            assert SECRET not in str(run.rows(f"select * from {name}")), name


def test_packages(pipeline: Pipeline) -> None:
    """Each process has the versions of its packages; none differs on one machine."""
    versions = pipeline.run.versions
    assert set(versions) == set(pipeline.run.job)
    for found in versions.values():
        assert found["dask"] == dask.__version__
        assert found["distributed"] == distributed.__version__
        assert found["numpy"] == np.__version__
        assert found["dask-strata"] == dask_strata.__version__
    assert len(pipeline.run.package_mismatches) == 0


# Client.


def test_connections(pipeline: Pipeline) -> None:
    """A client that was there is on record as such, one that came and went with both times."""
    found = rows(pipeline.run, "select client, action from clients order by time, seq")
    assert found == [
        {"client": pipeline.client, "action": "connected"},
        {"client": pipeline.facts["other"], "action": "connect"},
        {"client": pipeline.facts["other"], "action": "disconnect"},
    ]


@pytest.mark.parametrize(
    ("mark", "n_tasks", "n_keys", "first_key"),
    [
        ("submit", 1, 1, "cell-submit"),
        ("map", 5, 5, "cell-map-%"),
        ("compute", 3, 3, "cell-delayed-%"),
        ("array", None, 1, "%"),
        ("persist", None, 3, "%"),
        ("get", 3, 1, "diamond-c"),
        ("frame", None, 1, "%"),
    ],
)
def test_submissions(
    pipeline: Pipeline, mark: str, n_tasks: int | None, n_keys: int, first_key: str
) -> None:
    """Each submission has the user's own line, file and function, its time and number of tasks."""
    if mark == "frame" and pipeline.facts["frame"] is None:
        pytest.skip("pandas is not installed here")
    number, text = line_of(mark)
    [found] = rows(
        pipeline.run,
        f"""
        select c.file, c.code, c.function, c.n_keys as asked, s.n_keys, s.n_tasks, s.client, g.key,
               (select count(*) from graph_tasks t where t.submission = s.submission) as n,
               s.time as scheduler_time, c.time as client_time
        from client_submissions c
        join graph_tasks g on g.key = c.first_key and g.key_type = c.first_key_type
        join submissions s using (submission)
        where c.line = {number} and g.requested
        """,
    )
    assert found["file"] == __file__
    assert found["code"] == text
    assert found["function"] == "_work"
    assert found["asked"] == found["n_keys"] == n_keys
    assert found["n_tasks"] == found["n"]
    assert found["client"] == pipeline.client
    if n_tasks is not None:
        assert found["n_tasks"] == n_tasks
    else:
        assert found["n_tasks"] >= n_keys
    assert abs(ns(found["scheduler_time"]) - ns(found["client_time"])) < 5e9
    pattern = first_key.replace("%", "")
    assert pattern in found["key"]


def test_submission_has_dasks_own_code(pipeline: Pipeline) -> None:
    """Where Dask itself collects source lines, the submission has them too."""
    number, text = line_of("array")
    found = rows(pipeline.run, "select code from submissions where code is not null")
    frames = [frame for row in found for frame in json.loads(row["code"])]
    own = [f for f in frames if f["file"] == __file__]
    assert any(text in f["code"] for f in own)
    assert any(f["line"] == number for f in own)


def test_script_and_git(
    tmp_path: Path, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A recorded script has text, hash, arguments, and its repository's commit and state."""
    repository = tmp_path / "repository"
    repository.mkdir()
    script = repository / "work.py"
    script.write_text(
        "import sys\n"
        "from distributed import Client\n"
        "if __name__ == '__main__':\n"
        "    with Client(n_workers=1, threads_per_worker=1, dashboard_address=':0') as client:\n"
        "        print(client.submit(len, sys.argv[1]).result())\n"
    )

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
            cwd=repository,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "trunk")
    git("add", "work.py")
    git("commit", "-q", "-m", "first")
    for runs, dirty in (("clean", "false"), ("dirty", "true")):
        if dirty == "true":
            script.write_text(script.read_text() + "# changed\n")
        done = strata("record", "-q", "-o", tmp_path / runs, script, "four", check=True)
        assert done.stdout == "4\n"
        [run] = runs_in(tmp_path / runs)
        assert_whole(run)
        facts = run.script
        assert facts["text"] == script.read_text()
        assert facts["sha256"] == hashlib.sha256(script.read_bytes()).hexdigest()
        assert facts["path"] == str(script)
        assert facts["kind"] == "script"
        assert json.loads(facts["argv"]) == [str(script), "four"]
        assert facts["cwd"] == str(tmp_path)
        assert facts["git_commit"] == git("rev-parse", "HEAD")
        assert facts["git_dirty"] == dirty
        assert facts["git_branch"] == "trunk"
        [sent] = rows(run, "select line, code from client_submissions")
        assert sent == {"line": 5, "code": "print(client.submit(len, sys.argv[1]).result())"}
        actions = rows(run, "select action from clients order by time, seq")
        assert actions[0]["action"] == "connect"


# Task graph.


def test_graph_is_the_users(pipeline: Pipeline) -> None:
    """Keys, prefixes, groups, functions and dependencies are those of the graph itself."""
    run = pipeline.run
    found = rows(run, "select * from graph_tasks where key like 'diamond-%' order by key")
    assert [t["key"] for t in found] == sorted(DIAMOND)
    assert {t["key_type"] for t in found} == {"str"}
    module = inc.__module__
    assert [t["function"] for t in found] == [f"{module}.inc", f"{module}.inc", f"{module}.add"]
    assert [t["requested"] for t in found] == [False, False, True]
    edges = rows(run, "select key, dependency from graph_edges where key like 'diamond-%'")
    assert {(e["key"], e["dependency"]) for e in edges} == {
        ("diamond-b", "diamond-a"),
        ("diamond-c", "diamond-a"),
        ("diamond-c", "diamond-b"),
    }
    assert sorted(run.task("diamond-c").dependencies) == ["diamond-a", "diamond-b"]
    assert sorted(run.task("diamond-a").dependents) == ["diamond-b", "diamond-c"]
    found = rows(run, "select * from graph_tasks where key_type = 'tuple' and requested")
    chunks = [t for t in found if t["prefix"] == "mul"]
    assert len(chunks) == 3
    [group] = {t["group"] for t in chunks}
    assert sorted(t["key"] for t in chunks) == [f"('{group}', {i})" for i in range(3)]


def test_annotations_and_priority(pipeline: Pipeline) -> None:
    """Annotations are on record as the user gave them, and the priority that Dask made of them."""
    run = pipeline.run
    [task] = rows(run, "select * from graph_tasks where key = 'cell-annotated'")
    annotations = json.loads(task["annotations"])
    assert annotations["custom"] == {"who": "me", "n": 3}
    assert annotations["priority"] == 7
    assert json.loads(task["priority"].replace("(", "[").replace(")", "]"))[0] == -7


def test_definition_size(pipeline: Pipeline) -> None:
    """The size of a definition grows with the data that the user put into it."""
    found = {
        row["key"]: row["definition_bytes"]
        for row in rows(pipeline.run, "select key, definition_bytes from graph_tasks")
    }
    assert 0 < found["cell-small"] < 5_000
    assert 400_000 <= found["cell-large"] < 410_000


def test_layers_of_an_array(pipeline: Pipeline) -> None:
    """The layers of an array's graph are on record as the user wrote them, before optimisation."""
    if distributed.__version__ < "2025.4":
        pytest.skip("this version of Dask makes one plain graph of it before anyone can see it")
    number, _ = line_of("array")
    found = rows(
        pipeline.run,
        f"""
        select l.* from graph_layers l join client_submissions c
          on c.first_key = l.first_key and c.first_key_type = l.first_key_type and c.time = l.time
        where c.line = {number}
        """,
    )
    expected = pipeline.facts["array layers"]
    by_name = {row["layer"]: row for row in found}
    added = set(by_name) - set(expected)  # newer versions of Dask put a last step on top
    assert all(name.startswith("finalize-") for name in added), added
    for name in expected:
        row = by_name[name]
        assert set(json.loads(row["dependencies"])) == set(expected[row["layer"]])
        assert row["type"] in {"Blockwise", "MaterializedLayer"}
    tasks = rows(
        pipeline.run, 'select distinct layer, "group" from graph_tasks where layer is not null'
    )
    assert tasks
    assert all(t["layer"] == t["group"] for t in tasks)


def test_layers_of_a_dataframe(pipeline: Pipeline) -> None:
    """The expression of a data frame is on record, operation by operation."""
    if distributed.__version__ < "2025.4":
        pytest.skip("this version of Dask makes one plain graph of it before anyone can see it")
    if pipeline.facts["frame"] is None:
        pytest.skip("pandas is not installed here")
    assert pipeline.facts["frame"] == 45
    number, _ = line_of("frame")
    found = rows(
        pipeline.run,
        f"""
        select l.* from graph_layers l join client_submissions c
          on c.first_key = l.first_key and c.first_key_type = l.first_key_type and c.time = l.time
        where c.line = {number}
        """,
    )
    types = {row["type"] for row in found}
    assert {"FromPandas", "TreeReduce"} <= types
    names = {row["layer"] for row in found}
    assert all(set(json.loads(row["dependencies"])) <= names for row in found)


# Scheduler and worker: what became of the tasks.


def test_finished_task(pipeline: Pipeline) -> None:
    """A finished task has worker, thread, size, type and the interval that it computed in."""
    run, said = pipeline.run, pipeline.facts["there"]
    [row] = run.rows(
        "select * from scheduler_transitions "
        "where key = 'cell-there' and start_state = 'processing'",
    )
    assert row["finish_state"] == "memory"
    assert row["worker"] == said["worker"]
    assert row["thread"] == said["thread"]
    assert row["typename"] == "dict"
    assert row["nbytes"] == dask.sizeof.sizeof({**said})
    assert row["stimulus_id"].startswith("task-finished-")
    assert row["run_id"] is not None
    [compute] = [i for i in row["startstops"] if i["action"] == "compute"]
    start, stop = compute["start"].timestamp(), compute["stop"].timestamp()
    # Dask shifts them by its estimate of the clocks' difference, tenths of a second off.
    assert abs(start - said["start"]) < 0.5
    assert abs(stop - said["stop"]) < 0.5
    moves = rows(
        run,
        "select start_state, finish_state from scheduler_transitions "
        "where key = 'cell-there' order by seq",
    )
    assert [m["finish_state"] for m in moves][:3] == ["waiting", "processing", "memory"]


def test_attempt_and_phases(pipeline: Pipeline) -> None:
    """An attempt that fetched its data has the phases transfer, from whom, and compute."""
    run, (a, b) = pipeline.run, pipeline.workers
    [attempt] = run.task("cell-moved").attempts
    assert attempt["outcome"] == "memory"
    assert attempt["worker"] == b
    assert attempt["compute_seconds"] > 0
    assert attempt["transfer_seconds"] > 0
    phases = rows(run, "select * from phases where key = 'cell-moved'")
    by_action = {p["action"]: p for p in phases}
    assert by_action["transfer"]["source"] == a
    assert by_action["compute"]["source"] is None
    assert by_action["transfer"]["stop"] <= by_action["compute"]["start"]
    assert all(p["attempt"] == attempt["attempt"] and p["worker"] == b for p in phases)
    [transfer] = run.task("cell-source").transfers
    assert (transfer["source"], transfer["destination"]) == (a, b)
    assert transfer["seen_by"] == "both"
    assert transfer["total_bytes"] >= 3_000_000
    assert transfer["compressed_bytes"] >= 3_000_000


def test_failed_task(pipeline: Pipeline) -> None:
    """A failed task has exception and traceback, and its dependents say whom they blame."""
    found = {
        row["key"]: row
        for row in pipeline.run.rows(
            "select * from scheduler_transitions where finish_state = 'erred'"
        )
    }
    bad, worse = found["cell-bad"], found["cell-worse"]
    assert bad["exception"] == "ZeroDivisionError('on purpose')"
    assert "in explode" in bad["traceback"]
    assert 'raise ZeroDivisionError("on purpose")' in bad["traceback"]
    assert (bad["blame"], worse["blame"]) == ("cell-bad", "cell-bad")
    assert worse["exception"] is None
    assert pipeline.run.task("cell-worse").attempts == []
    assert pipeline.run.task("cell-bad").state == "erred"


def test_retries(pipeline: Pipeline) -> None:
    """Each attempt that failed and was retried has its outcome and its own exception."""
    attempts = pipeline.run.task("cell-tried").attempts
    assert [a["outcome"] for a in attempts] == ["retried", "retried", "memory"]
    assert [a["exception"] for a in attempts] == ["OSError('try 1')", "OSError('try 2')", None]
    assert "succeed_the_third_time" in attempts[0]["traceback"]
    assert all(a["worker"] in pipeline.workers and a["thread"] for a in attempts)
    assert pipeline.run.task("cell-tried").facts["n_attempts"] == 3


def test_logged_events(pipeline: Pipeline) -> None:
    """Events that the user logged, on the client or inside a task, are on record."""
    found = {
        row["topic"]: json.loads(row["message"])
        for row in rows(pipeline.run, "select topic, message from log_events")
    }
    assert found["from-the-client"] == {"answer": 42}
    assert found["from-a-worker"]["said"] == "hello"


def test_samples(pipeline: Pipeline) -> None:
    """State over time is on record as scheduler and worker saw it, with memory, CPU and lag."""
    run = pipeline.run
    seen = rows(
        run,
        """
        select seen_by, worker, count(*) as n, max(executing) as executing,
               max(processing) as processing, max(occupancy_seconds) as occupancy,
               max(managed_bytes) as managed, min(unmanaged_bytes) as unmanaged,
               max(spilled_bytes) as spilled, min(rss_bytes) as rss, max(cpu_percent) as cpu,
               max(loop_lag_seconds) as lag, max(num_fds) as fds, max(status) as status
        from worker_samples group by all order by seen_by, worker
        """,
    )
    assert [(s["seen_by"], s["worker"]) for s in seen] == [
        (by, worker) for by in ("scheduler", "worker") for worker in pipeline.workers
    ]
    for sample in seen:
        assert sample["n"] >= 10
        assert sample["status"] == "running"
        assert sample["rss"] > 20_000_000
        assert sample["unmanaged"] > 20_000_000
        assert sample["cpu"] > 0
        assert sample["executing"] == 2
    assert all(s["processing"] >= 2 and s["occupancy"] > 0 for s in seen[:2])
    assert all(s["spilled"] == 0 for s in seen[:2])
    assert max(s["managed"] for s in seen[:2]) >= 3_000_000
    assert max(s["managed"] for s in seen[2:]) >= 3_000_000
    assert all(s["lag"] >= 0 and s["fds"] > 5 for s in seen[2:])
    [own] = rows(
        run,
        "select max(tasks) as tasks, max(workers) as workers, min(rss_bytes) as rss, "
        "max(occupancy_seconds) as occupancy, max(loop_lag_seconds) as lag from scheduler_samples",
    )
    assert own["tasks"] >= 8
    assert own["workers"] == 2
    assert own["rss"] > 20_000_000
    assert own["occupancy"] > 0
    assert own["lag"] is not None


def test_worker_transitions(pipeline: Pipeline) -> None:
    """A task's way through the worker's own state machine is on record, with its stimulus."""
    run, said = pipeline.run, pipeline.facts["there"]
    found = rows(run, "select * from worker_transitions where key = 'cell-there' order by seq")
    states = [(r["start_state"], r["finish_state"]) for r in found]
    assert ("ready", "executing") in states
    assert ("executing", "memory") in states
    assert {r["worker"] for r in found} == {said["worker"]}
    assert all(r["stimulus_id"] for r in found)
    times = [ns(r["time"]) for r in found]
    assert times == sorted(times)


# Scheduling: queueing, stealing, no worker, restart.


@dataclass
class Scheduling:
    """A recorded run of a cluster that had to queue, steal, wait and restart."""

    run: Run
    workers: list[str]
    pids: list[int]
    new_workers: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def scheduling(tmp_path_factory: pytest.TempPathFactory) -> Scheduling:
    runs = tmp_path_factory.mktemp("scheduling")
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        scheduler = cluster.scheduler
        a, b = sorted(scheduler.workers)
        made = Scheduling(None, [a, b], list(client.run(os.getpid).values()))  # type: ignore[arg-type]
        with dask_strata.record(runs, client=client, sample_interval="100ms") as made.run:
            client.gather(client.map(nap, [0.05] * 20, key=[f"queued-{i}" for i in range(20)]))
            nowhere = client.submit(inc, 1, key="nowhere", resources={"UNOBTAINIUM": 1})
            wait_until(lambda: scheduler.unrunnable, what="a task that no worker can run")
            wait_until(
                lambda: seen(made.run, "select 1 from scheduler_samples where no_worker > 0"),
                what="a sample of it",
            )
            nowhere.cancel()
            keys = [f"steal-{i}" for i in range(12)]
            futures = client.map(
                nap, [0.2] * 12, key=keys, workers=[a], allow_other_workers=True, pure=False
            )
            client.gather(futures)
            made.moved = {
                key: where[0]
                for key, where in client.who_has(futures).items()
                if where and where[0] != a
            }
            del futures, nowhere
            client.restart()
            assert client.submit(inc, 1, key="after").result() == 2
            made.new_workers = sorted(scheduler.workers)
    return made


def test_scheduling_is_whole(scheduling: Scheduling) -> None:
    """A run with queueing, stealing and a restart is whole."""
    assert_whole(scheduling.run)


def test_queued(scheduling: Scheduling) -> None:
    """Tasks that wait on the scheduler have the state queued, and samples count them."""
    run = scheduling.run
    [found] = rows(
        run,
        """
        select count(distinct key) filter (finish_state = 'queued') as queued,
               count(distinct key) filter (start_state = 'queued' and finish_state = 'processing')
                   as released
        from scheduler_transitions where key like 'queued-%'
        """,
    )
    assert found["queued"] == found["released"] == 18
    assert rows(run, "select max(queued) as n from scheduler_samples")[0]["n"] > 0


def test_no_worker(scheduling: Scheduling) -> None:
    """A task that no worker can run has that state, and samples count it."""
    found = rows(
        scheduling.run,
        "select start_state, finish_state from scheduler_transitions "
        "where key = 'nowhere' order by seq",
    )
    assert "no-worker" in [r["finish_state"] for r in found]
    assert found[-1]["finish_state"] == "forgotten"
    [most] = rows(scheduling.run, "select max(no_worker) as n from scheduler_samples")
    assert most["n"] == 1
    assert scheduling.run.task("nowhere").attempts == []


def test_stealing(scheduling: Scheduling) -> None:
    """Each task that was stolen has the decision on record, and the attempt is with the thief."""
    a, b = scheduling.workers
    assert scheduling.moved, "Dask moved no task"
    confirmed = rows(
        scheduling.run, "select * from steals where outcome = 'confirm' and key like 'steal-%'"
    )
    assert {r["key"] for r in confirmed} >= set(scheduling.moved)
    for row in confirmed:
        assert (row["source"], row["destination"]) in {(a, b), (b, a)}
        assert row["stimulus_id"].startswith("steal-")
    for key, worker in scheduling.moved.items():
        assert scheduling.run.task(key).attempts[-1]["worker"] == worker
    requested = rows(scheduling.run, "select key from steals where outcome = 'request'")
    assert {r["key"] for r in requested} >= set(scheduling.moved)


def test_restart(scheduling: Scheduling) -> None:
    """A restart of the cluster is on record: the old workers' ends, their processes, the new."""
    run = scheduling.run
    assert not set(scheduling.workers) & set(scheduling.new_workers)
    found = rows(run, "select worker, action, reason from worker_events order by time, seq")
    assert [f for f in found if f["action"] == "restart-cluster"]
    removed = {f["worker"] for f in found if f["action"] == "remove"}
    assert removed >= set(scheduling.workers)
    added = {f["worker"] for f in found if f["action"] == "add"}
    assert added >= set(scheduling.new_workers)
    exits = [f["reason"] for f in found if f["action"] == "process-exit"]
    assert {f"pid {pid} exited with status 0" for pid in scheduling.pids} <= set(exits)
    ended = rows(run, "select worker from workers where end_reason is not null")
    assert {r["worker"] for r in ended} == removed
    assert not removed & set(scheduling.new_workers)


# A task that kills its workers.


def test_killed_workers(tmp_path: Path) -> None:
    """A task that kills workers is suspicious until Dask gives up; every step is on record."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "runs", client=client) as run,
    ):
        future = client.submit(kill_this_process, key="killer")
        dependent = client.submit(inc, future, key="dependent")
        error = future.exception()
        assert type(error).__name__ == "KilledWorker"
        assert type(dependent.exception()).__name__ == "KilledWorker"
        wait_until(lambda: len(cluster.scheduler.workers) == 2, what="new workers")
        wait_until(
            lambda: len(seen(run, "from worker_events where action = 'process-exit'")) == 2,
            what="both ends as the nannies saw them",
        )
    assert run.state == "complete"
    [last] = run.rows(
        "select * from scheduler_transitions where finish_state = 'erred' and key = 'killer'"
    )
    assert last["suspicious"] == 2
    assert last["exception"].startswith("KilledWorker")
    [blamed] = run.rows(
        "select * from scheduler_transitions where finish_state = 'erred' and key = 'dependent'",
    )
    assert blamed["blame"] == "killer"
    attempts = run.task("killer").attempts
    assert [a["outcome"] for a in attempts] == ["lost", "erred"]
    dead = [a["worker"] for a in attempts]
    assert len(set(dead)) == 2
    found = rows(run, "select * from worker_events order by time, seq")
    exits = [r["reason"] for r in found if r["action"] == "process-exit"]
    assert all(reason.endswith("was killed by SIGKILL") for reason in exits)
    starts = [r for r in found if r["action"] == "process-start"]
    assert len(starts) >= 4
    removed = {r["worker"]: r["reason"] for r in found if r["action"] == "remove"}
    assert all(removed[w].startswith("unexpected") for w in dead)
    # What a killed process saw last cannot be on record: that, and only that, is missing.
    check = run.check()
    assert not check.ok
    cut = {
        r["process"] for r in rows(run, "select process from processes where exit_reason is null")
    }
    assert len(cut) == 2
    assert {f.process for f in check.missing} == cut
    assert all("was cut off after" in f.text for f in check.missing)


# Transfers beyond what Dask keeps.


def test_transfers(tmp_path: Path) -> None:
    """More transfers than Dask keeps in memory: none is lost, at either end."""
    n = 1_200
    settings = {"distributed.worker.transfer.message-bytes-limit": 1}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(cluster.scheduler.workers)
        before = client.run(totals)
        with dask_strata.record(tmp_path / "runs", client=client) as run:
            keys = [f"from-{i}" for i in range(n)]
            sources = client.map(block, range(1, n + 1), workers=[a], key=keys)
            distributed.wait(sources)
            sizes = client.map(length, sources, workers=[b], key=[f"to-{i}" for i in range(n)])
            assert client.gather(sizes) == list(range(1, n + 1))
            after = client.run(totals)
    assert_whole(run)
    for worker in (a, b):
        ends = rows(run, f"select \"end\" from transfer_ends where worker = '{worker}'")
        found = Counter(r["end"] for r in ends)
        assert found["incoming"] == after[worker][0] - before[worker][0]
        assert found["outgoing"] == after[worker][1] - before[worker][1]
    assert after[b][0] - before[b][0] > 1_000
    both = rows(run, f"select * from transfers where source = '{a}' and destination = '{b}'")
    assert len(both) == after[b][0] - before[b][0]
    assert {t["seen_by"] for t in both} == {"both"}
    moved = rows(run, "select key, nbytes from transfer_keys where key like 'from-%'")
    assert sorted(r["key"] for r in moved) == sorted(f"from-{i}" for i in range(n))
    for row in moved:
        assert row["nbytes"] == int(row["key"].removeprefix("from-")) + 1
    to_client = rows(run, "select * from transfers where destination is null")
    assert to_client
    assert all(t["source"] == b and t["seen_by"] == "source" for t in to_client)


# Memory.


def test_spills(tmp_path: Path) -> None:
    """Each write to and read from disk by Dask's memory management is on record."""
    settings = {
        "distributed.worker.memory.target": 0.1,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "runs", client=client, sample_interval="100ms") as run,
    ):
        keys = [f"heavy-{i}" for i in range(12)]
        heavy = client.map(block, [8_000_000] * 12, key=keys)
        distributed.wait(heavy)
        [on_disk] = client.run(lambda dask_worker: sorted(dask_worker.data.slow)).values()
        wait_until(
            lambda: seen(
                run,
                "select seen_by from worker_samples "
                f"where spilled_bytes >= {len(on_disk) * 8_000_000} group by seen_by",
            )[1:],
            what="a sample of spilled bytes",
        )
        sizes = client.map(length, heavy, key=[f"size-{i}" for i in range(12)])
        assert client.gather(sizes) == [8_000_000] * 12
        [address] = cluster.scheduler.workers
    assert_whole(run)
    found = rows(run, "select * from spills order by seq")
    assert {r["worker"] for r in found} == {address}
    spilled = [r for r in found if r["action"] == "spill" and r["key"] in keys]
    assert {r["key"] for r in spilled} >= set(on_disk)
    assert len(on_disk) >= 5
    for row in spilled:
        assert row["nbytes"] == 8_000_000
        assert row["disk_bytes"] >= 8_000_000
        assert row["seconds"] > 0
    back = {r["key"] for r in found if r["action"] == "unspill"}
    assert back >= set(on_disk)
    story = {e.what for e in run.task(on_disk[0]).events}
    assert {"spill", "unspill"} <= story


def test_paused(tmp_path: Path) -> None:
    """A worker that is paused for its memory is on record: when, why, and in the samples."""
    settings = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.5,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="800MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        [ws] = cluster.scheduler.workers.values()
        with dask_strata.record(tmp_path / "runs", client=client, sample_interval="100ms") as run:
            big = client.submit(block, 500_000_000, key="big")
            wait_until(lambda: ws.status.name == "paused", what="the pause")
            wait_until(
                lambda: seen(
                    run,
                    "select 1 from worker_samples where status = 'paused' and seen_by = 'worker'",
                ),
                what="a sample of the pause",
            )
            del big
            wait_until(lambda: ws.status.name == "running", what="the end of the pause")
            address = ws.address
    assert_whole(run)
    found = rows(run, "select worker, action, reason from worker_events order by time, seq")
    about = [(f["action"], f["reason"]) for f in found if f["worker"] == address]
    assert ("paused", "running → paused") in about
    assert ("status", "paused → running") in about
    assert about.index(("paused", "running → paused")) < about.index(("status", "paused → running"))
    [sample] = rows(run, "select max(rss_bytes) as rss from worker_samples where status = 'paused'")
    assert sample["rss"] > 400 * 2**20


def test_ends_of_workers(tmp_path: Path) -> None:
    """A worker that is retired and one that is closed have their ends and reasons on record."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(cluster.scheduler.workers)
        with dask_strata.record(tmp_path / "runs", client=client) as run:
            client.retire_workers([a])
            wait_until(lambda: a not in cluster.scheduler.workers, what="the retirement")
            wait_until(
                lambda: seen(run, "from processes where role = 'worker' and stop is not null"),
                what="the end of its record",
            )
    assert_whole(run)
    [left] = rows(run, f"select * from workers where worker = '{a}'")
    assert left["stop"] > left["start"]
    assert left["end_reason"]
    [stayed] = rows(run, f"select * from workers where worker = '{b}'")
    assert stayed["end_reason"] is None
    actions = {
        r["action"] for r in rows(run, f"select action from worker_events where worker = '{a}'")
    }
    assert "remove" in actions
    assert actions & {"retired", "closing"}
    [process] = rows(run, f"select exit_reason from processes where address = '{a}'")
    assert process["exit_reason"] in {"closed", "process exit"}

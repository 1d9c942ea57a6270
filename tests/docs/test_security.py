"""The contents of a run, redaction, leaving out, and access to folders and the server."""

from __future__ import annotations

import cProfile
import getpass
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import zstandard
from distributed import Client, LocalCluster

from dask_strata import Run, open_run, record
from dask_strata.importers.registry import add_files
from dask_strata.store.segments.frames import Encoder, payloads
from dask_strata.store.segments.read import segment_state
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.recorder.test_versions import EARLY, compute, imports_from, tree, warnings
from tests.server.test_serve import Server, serve
from tests.support.deployment import PRELOAD, Deployment

__all__ = ["serve"]

SECRET = "hunter2hunter2"


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("long_timeouts")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker process with its nanny."""
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as made:
        yield made


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, including those of keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, dict):
        for item in value.items():
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def written(run: Run) -> list[str]:
    """Return all texts in the files of the run's folder, and their names."""
    found = [str(path.relative_to(run.path)) for path in run.path.rglob("*")]
    found.append((run.path / "run.json").read_text())
    segments = list((run.path / "segments").iterdir())
    assert segments
    for segment in segments:
        for payload in payloads(segment.read_bytes()):
            assert isinstance(payload, (bytes, memoryview)), payload
            unpacked = msgpack.unpackb(
                zstandard.decompress(payload), strict_map_key=False, unicode_errors="replace"
            )
            found += texts(unpacked)
    return found


def read(path: str, marker: str) -> str:
    return Path(path).read_text(encoding="utf-8") + marker


def fail(message: str) -> None:
    raise ValueError(message)


def work(client: Client, path: Path, *, message: str = "nothing") -> None:
    path.write_text("result-marker")
    key = f"read-{path}"
    marker = "argument-marker"  # not on the next line, whose source is recorded
    assert client.submit(read, str(path), marker, key=key).result().endswith(marker)
    assert isinstance(client.submit(fail, message, key="fails").exception(), ValueError)
    client.log_event("notes", {"note": message})


def test_what_is_recorded_by_default(
    client: Client, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, failures, files, hosts, users, settings, packages; no arguments, no results."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("PRIVATE_NOTE", "variable-marker")
    path = tmp_path / "input.txt"
    with record(runs, client=client) as run:
        work(client, path, message="message-marker")
    assert_whole(run)
    assert rows(run, "select key from attempts where prefix = 'read'")[0]["key"] == f"read-{path}"
    assert (
        "message-marker"
        in rows(run, "select exception from scheduler_transitions where exception is not null")[0][
            "exception"
        ]
    )
    assert (
        "message-marker"
        in rows(run, "select message from log_events where topic = 'notes'")[0]["message"]
    )
    assert {row["uri"] for row in rows(run, "select uri from file_opens")} == {str(path)}
    (host,) = {row["host"] for row in rows(run, "select host from processes")}
    assert host == socket.gethostname()
    found = rows(run, "select name, value from job where process like 'client%'")
    facts = {row["name"]: row["value"] for row in found}
    assert facts["process.user"] == getpass.getuser() or facts["process.uid"] == str(os.getuid())
    assert "pytest" in facts["process.command-line"] + facts["process.parent-command-line"]
    assert facts["environment.OMP_NUM_THREADS"] == "3"
    assert rows(run, "select value from config where name = 'distributed.comm.timeouts.connect'")
    assert rows(run, "select version from packages where name = 'distributed'")
    everything = written(run)
    for marker in ("argument-marker", "result-marker", "variable-marker", "PRIVATE_NOTE"):
        assert not [text for text in everything if marker in text], marker


def test_secrets_are_nowhere_in_the_folder(client: Client, runs: Path, tmp_path: Path) -> None:
    """A secret of a known form is redacted in exceptions and messages."""
    with record(runs, client=client) as run:
        work(client, tmp_path / "input.txt", message=f"https://me:{SECRET}@host/?token={SECRET}")
        failing = client.submit(fail, f"password={SECRET}", key="also")
        assert failing.exception() is not None
    everything = written(run)
    assert not [text for text in everything if SECRET in text]
    assert [text for text in everything if "https://***@host/?token=(redacted)" in text]


def test_what_looks_like_no_secret_is_recorded(client: Client, runs: Path) -> None:
    """A secret of no known form is recorded, and keys are recorded unchanged."""
    with record(runs, client=client) as run:
        assert client.submit(fail, f"it is {SECRET}", key=f"token={SECRET}").exception()
    (row,) = rows(
        run, "select key, exception from scheduler_transitions where exception is not null"
    )
    assert row == {"key": f"token={SECRET}", "exception": f"ValueError('it is {SECRET}')"}


SCRIPT = """
    from distributed import Client, LocalCluster
    from failing import fail

    if __name__ == "__main__":
        password = "hunter2hunter2"  # a line of the script
        with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
            print(client.submit(sum, [1, 2], key="sum").result())
            client.submit(fail, 1, key="fails").exception()
"""


#: A module beside the script: cloudpickle sends its functions by name, so they keep their lines.
MODULE = """
    def fail(x):
        raise ValueError(x)  # a line of source
"""


def recorded(
    strata: Callable[..., Any], script: Callable[..., Path], tmp_path: Path, *options: str
) -> Run:
    script(MODULE, "failing.py")
    path = script(SCRIPT)
    for command in (
        ("init", "-q"),
        ("add", path.name),
        ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x"),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)
    batch = tmp_path / "batch.sh"
    batch.write_text("#!/bin/sh\n# batch-marker\n")
    done = strata(
        "record", "--no-compact", *options, path, f"--password={SECRET}", "--fast",
        env={**os.environ, "DASK_STRATA_BATCH_SCRIPT": str(batch)}, check=True,
    )  # fmt: skip
    assert done.stdout == "3\n"
    (run,) = runs_in(tmp_path / "runs")
    return run


def test_the_script_is_recorded(
    strata: Callable[..., Any], script: Callable[..., Path], tmp_path: Path
) -> None:
    """The record has its text, command line, folder and commit, and the lines that submit work."""
    run = recorded(strata, script, tmp_path)
    facts = run.script
    assert "# a line of the script" in facts["text"]
    assert 'password = "(redacted)"' in facts["text"]
    assert json.loads(facts["argv"])[1:] == ["--password=(redacted)", "--fast"]
    assert facts["cwd"] == str(tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", facts["git_commit"])
    codes = " ".join(row["code"] for row in rows(run, "select code from client_submissions"))
    assert 'client.submit(sum, [1, 2], key="sum")' in codes
    (failed,) = rows(run, "select traceback from scheduler_transitions where traceback is not null")
    assert "# a line of source" in failed["traceback"]
    (batch,) = {r["value"] for r in rows(run, "select value from job where name = 'job.script'")}
    assert "batch-marker" in batch
    assert not [text for text in written(run) if SECRET in text]


def test_the_command_leaves_out(
    strata: Callable[..., Any], script: Callable[..., Path], tmp_path: Path
) -> None:
    """Its options keep code, paths, hosts and settings out of all files; the rest is recorded."""
    options = ("--no-code", "--no-paths", "--no-hosts", "--leave-out", "settings")
    run = recorded(strata, script, tmp_path, *options)
    assert_whole(run)
    everything = written(run)
    for marker in ("line of source", "batch-marker", str(tmp_path), "127.0.0.1", "script.py"):
        assert not [text for text in everything if marker in text], marker
    assert len(run["config"]) == len(run["packages"]) == 0
    assert len(rows(run, "select * from attempts")) == 2
    (note,) = [f.text for f in run.check().findings if "on purpose" in f.text]
    assert note == "left out on purpose: code, hosts, paths, settings"
    assert strata("show", run.path, check=True).stdout
    assert strata("report", run.path, check=True)


def test_an_option_adds_to_what_the_configuration_leaves_out(
    strata: Callable[..., Any],
    script: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--no-code` does not bring back the users that a configuration file leaves out."""
    monkeypatch.setenv("DASK_DASK_STRATA__LEAVE_OUT", "users")
    run = recorded(strata, script, tmp_path, "--no-code")
    (note,) = [f.text for f in run.check().findings if "on purpose" in f.text]
    assert note == "left out on purpose: code, users"


def test_what_is_left_out_is_nowhere(client: Client, runs: Path, tmp_path: Path) -> None:
    """No file of the run contains a host, path or user; `check` names the omitted kinds."""
    path = tmp_path / "input.txt"
    kept = record(runs, client=client, leave_out="hosts,paths,users", name="kept")
    with kept as run:
        work(client, path, message=f"message-marker of {path}")
    assert_whole(run)
    names = [socket.gethostname(), "127.0.0.1", getpass.getuser(), str(tmp_path)]
    found = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names))
    packages = {row["name"] for row in rows(run, "select name from packages")}
    left = [text for text in written(run) if found.search(text) and text not in packages]
    assert not left
    assert not [text for text in written(run) if "message-marker" in text]
    (key,) = rows(run, "select key, state from tasks where prefix = 'read'")
    assert re.fullmatch("read-path-[0-9a-f]{12}", key["key"])
    (opened,) = rows(run, "select uri from file_opens")
    assert key["key"] == f"read-{opened['uri']}"
    assert {row["function"] for row in rows(run, "select function from graph_tasks")} == {
        f"{__name__}.read",
        f"{__name__}.fail",
    }
    workers = rows(run, "select worker, process from workers")
    assert all(re.match("tcp://host-[0-9a-f]{12}:", w["worker"]) for w in workers)
    assert all(w["process"] for w in workers)
    notes = [f.text for f in run.check().findings if f.process == "settings"]
    assert notes == ["left out on purpose: hosts, paths, users"]
    assert run.manifest.name == "kept"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [text for text in written(run) if boot in text]
    profile = cProfile.Profile()
    profile.runcall(read, str(path), "")
    profile.dump_stats(tmp_path / "later.pstat")
    assert add_files(run.path, [tmp_path / "later.pstat"]).rows
    modules = rows(open_run(run.path), "select distinct module from functions")
    assert __file__ in {row["module"] for row in modules}


def test_a_worker_that_cannot_leave_out_is_not_recorded(deployment: Deployment) -> None:
    """A worker whose early version does not support `leave-out` records nothing."""
    early = tree(EARLY, deployment.folder)
    deployment.environment["DASK_DASK_STRATA__LEAVE_OUT"] = "hosts"
    deployment.scheduler(*PRELOAD)
    with imports_from(deployment, early):
        deployment.worker("--name", "early", "--no-nanny")
    compute(deployment, 1)
    run = deployment.run()
    assert warnings(deployment) == 1, deployment.output()
    assert {row["role"] for row in rows(run, "select role from processes")} == {"scheduler"}
    assert not [text for text in written(run) if "127.0.0.1" in text]


WATCH = """
import sys
from pathlib import Path

folder = sys.argv[1]

def watch(event, arguments):
    shown = " ".join(map(str, arguments[:2]))
    if event in ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        print("DID", event, shown)
    if event == "import" and folder in shown:
        print("DID", event, shown)

import dask_strata.cli, dask_strata.report.page.page, pyarrow.parquet
from dask_strata import open_run
from dask_strata.report.page.page import write_page
from dask_strata.schema import TABLES

sys.addaudithook(watch)
run = open_run(folder)
for table in TABLES:
    run[table].to_arrow()
run.check()
write_page(run, Path(sys.argv[2]))
print("read", len(run["scheduler_transitions"]))
"""


def test_nothing_in_a_run_folder_is_executed(client: Client, runs: Path, tmp_path: Path) -> None:
    """Reading, checking and reporting a run execute no file in its folder."""
    with record(runs, client=client) as run:
        assert client.submit(sum, [1, 2]).result() == 3
    trap = f"import os; os.mkdir({str(tmp_path / 'trapped')!r})\n"
    for name in ("sitecustomize.py", "dask_strata.py", "conftest.py", "run.py", "zstandard.py"):
        (run.path / name).write_text(trap)
        (run.path / "segments" / name).write_text(trap)
    (run.path / "run.pkl").write_bytes(b"cos\nmkdir\n(S'trapped'\ntR.")
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(run.path), str(tmp_path / "page.html")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("read "), done.stdout
    assert not (tmp_path / "trapped").exists()


def test_a_run_is_what_its_folder_says(client: Client, runs: Path) -> None:
    """A run is not signed: a changed name is accepted."""
    with record(runs, client=client, name="mine") as run:
        assert client.submit(sum, [1, 2]).result() == 3
    manifest = run.path / "run.json"
    manifest.write_text(manifest.read_text().replace('"mine"', '"yours"'))
    assert open_run(run.path).manifest.name == "yours"


def listening(pid: int | None = None) -> set[tuple[str, int]]:
    """Return the addresses at which a process, this one by default, listens."""
    process = psutil.Process(pid)
    connections = getattr(process, "net_connections", None) or process.connections
    return {tuple(c.laddr) for c in connections(kind="inet") if c.status == psutil.CONN_LISTEN}


def test_recording_opens_no_port(client: Client, runs: Path) -> None:
    """Scheduler, nannies, client and workers listen at the same addresses as before."""

    def all_listening() -> dict[str, set[tuple[str, int]]]:
        return {"here": listening(), **client.run(listening)}

    before = all_listening()
    assert all(before.values())
    with record(runs, client=client):
        assert client.submit(sum, [1, 2]).result() == 3
        assert all_listening() == before


def test_records_go_to_segments_only(client: Client, runs: Path) -> None:
    """Records under an invalid name of a process are refused, others are written to its segment."""
    with record(runs, client=client) as run:
        operation = f"dask-strata-{run.manifest.run_id}"

        frame = Encoder("worker-0a1b2c3d", {}).header()

        async def send(process: str) -> None:
            await getattr(client.scheduler, operation)(process=process, frame=frame)

        odd = ("../../evil", "/tmp/evil", "evil", "worker-../evil", "worker-0a1b2c3d/../evil")
        for process in (*odd, "worker-0a1b2c3d"):
            client.sync(send, process)
        segments = run.path / "segments"
        wait_until(lambda: list(segments.glob("worker-0a1b2c3d*")), what="the segment")
    assert not [path for path in runs.parent.rglob("*") if "evil" in path.name]
    assert not Path("/tmp/evil").exists()


def test_the_server_listens_on_loopback(
    client: Client, runs: Path, serve: Callable[..., Server]
) -> None:
    """By default only this machine can reach it, in plain HTTP; `--host` needs a token."""
    with record(runs, client=client):
        assert client.submit(sum, [1, 2]).result() == 3
    server = serve(runs)
    assert server.url.startswith("http://127.0.0.1:")
    assert {address for address, _ in listening(server.process.pid)} <= {"127.0.0.1", "::1"}


def test_the_server_only_reads(client: Client, runs: Path, serve: Callable[..., Server]) -> None:
    """Methods other than GET are refused, and requests do not change the folder."""
    with record(runs, client=client) as run:
        assert client.submit(sum, [1, 2]).result() == 3
    # On a busy machine the last rows may be written after the block has ended.
    wait_until(
        lambda: {segment_state(s) for s in open_run(run.path).segments} == {"ended"},
        what="the last rows",
    )
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    server = serve(runs)
    name = run.path.name
    for method in ("PUT", "DELETE", "PATCH", "POST", "OPTIONS"):
        for path in (
            "/",
            f"/runs/{name}",
            f"/runs/{name}/tables/tasks.csv",
            f"/runs/{name}/run.tar",
        ):
            connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
            token = {"Authorization": f"token {server.token}"}
            connection.request(method, path, body=b"x", headers=token)
            assert connection.getresponse().status == 405, (method, path)
            connection.close()
    assert server.get(f"/runs/{name}").status == 200
    assert server.ask(name, "drop table tasks").status == 400
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before

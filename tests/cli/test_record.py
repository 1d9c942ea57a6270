"""`dask-strata record`: an unchanged script is recorded, and cannot tell that it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run
from tests.conftest import assert_whole, rows, runs_in, wait_until

Strata = Callable[..., "subprocess.CompletedProcess[str]"]
Script = Callable[..., Path]

DASK = Path(sys.executable).with_name("dask")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process in the test's folder; it is ended, by its pid, when the test is over."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"process-{len(started)}.log").open("wb")
        with log:
            for stream in ("stdout", "stderr"):
                kwargs.setdefault(stream, log)
            kwargs.setdefault("stdin", subprocess.DEVNULL)
            process = subprocess.Popen([*map(str, command)], cwd=tmp_path, **kwargs)
        started.append(process)
        return process

    yield begin
    for process in reversed(started):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def shell_status(returncode: int) -> int:
    """Return a status of `subprocess` as a shell shows it."""
    return 128 - returncode if returncode < 0 else returncode


def only_run(folder: Path) -> Run:
    """Return the one run in a folder."""
    found = runs_in(folder)
    assert len(found) == 1, found
    return found[0]


def keys_of(run: Run) -> set[str]:
    """Return the keys of a run's tasks."""
    return {row["key"] for row in rows(run, "select key from tasks")}


def assert_all_ended(run: Run) -> None:
    """Assert that each process on record has written its last row."""
    assert run.state == "complete"
    assert not rows(run, "select * from processes where exit_reason is null or stop is null")


# Clusters of all kinds.


def test_a_client_that_starts_its_own_cluster_is_recorded_whole(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`Client()` and its scheduler, workers and nannies are on record from first to last."""
    path = script("""
        from distributed import Client

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            client = Client(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            futures = [client.submit(double, i, key=f"double-{i}") for i in range(20)]
            print(sum(client.gather(futures)))
            client.close()
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "380\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {f"double-{i}" for i in range(20)}
    assert {row["state"] for row in rows(run, "select state from tasks")} == {"memory"}
    roles = rows(
        run,
        "select role, count(*) as n from processes where role <> 'record' group by 1 order by 1",
    )
    assert [(r["role"], r["n"]) for r in roles] == [
        ("client", 1),
        ("nanny", 2),
        ("scheduler", 1),
        ("worker", 2),
    ]
    lines = rows(run, "select distinct file, code from client_submissions")
    assert [(r["file"], "client.submit(double" in r["code"]) for r in lines] == [(str(path), True)]
    assert str(run.path.relative_to(runs.parent)) in done.stderr


def test_a_cluster_in_one_process_is_recorded_whole(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`LocalCluster(processes=False)` keeps everything in the script's process, and on record."""
    path = script("""
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
        client = Client(cluster)
        print(client.submit(sum, client.map(abs, range(-10, 0), pure=False)).result())
        client.close()
        cluster.close()
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "55\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    prefixes = rows(run, "select prefix, count(*) as n from tasks group by prefix order by prefix")
    assert [(r["prefix"], r["n"]) for r in prefixes] == [("abs", 10), ("sum", 1)]
    pids = rows(
        run,
        "select count(distinct pid) as pids, count(*) as n from processes where role <> 'record'",
    )
    assert pids == [{"pids": 1, "n": 4}]


def test_a_cluster_that_nobody_closes_is_recorded_whole(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A script that ends without closing its cluster and client still leaves a whole record."""
    path = script("""
        from distributed import Client

        client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
        print(client.submit(sum, [1, 2], key="left-open").result())
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "3\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"left-open"}


def test_cluster_and_client_in_a_with_are_recorded_whole(
    strata: Strata, script: Script, runs: Path
) -> None:
    """`with LocalCluster(…) as cluster, Client(cluster)` is on record to its end."""
    path = script("""
        from distributed import Client, LocalCluster

        if __name__ == "__main__":
            with Client(
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            ) as client:
                total = client.submit(sum, [1, 2, 3], key="total")
                print(client.submit(abs, total, key="abs").result())
    """)
    done = strata("record", "-o", runs, path, check=True)
    assert done.stdout == "6\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"total", "abs"}
    edges = rows(run, "select distinct key, dependency from graph_edges")
    assert edges == [{"key": "abs", "dependency": "total"}]


TWO_CLUSTERS = """
    from distributed import Client, LocalCluster

    def cluster():
        return LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
"""


def assert_a_run_each(folder: Path) -> None:
    """Assert that there are two whole runs, each with the tasks of its own cluster only."""
    found = runs_in(folder)
    assert sorted(sorted(keys_of(run)) for run in found) == [
        [f"{name}-{i}" for i in range(5)] for name in ("first", "second")
    ]
    for run in found:
        assert_whole(run)
        assert_all_ended(run)
        seen = rows(run, "select first_key from client_submissions")
        assert {row["first_key"] for row in seen} == keys_of(run)


def test_two_clusters_one_after_the_other_are_a_run_each(
    strata: Strata, script: Script, runs: Path
) -> None:
    """Each of two clusters in turn has a run with its tasks and no others."""
    path = script(
        TWO_CLUSTERS
        + """
    for name in ("first", "second"):
        with cluster() as made, Client(made) as client:
            client.gather([client.submit(abs, i, key=f"{name}-{i}") for i in range(5)])
    """
    )
    done = strata("record", "-o", runs, path, check=True)
    assert_a_run_each(runs)
    for run in runs_in(runs):
        assert run.path.name in done.stderr


def test_two_clusters_at_once_are_a_run_each(strata: Strata, script: Script, runs: Path) -> None:
    """Each of two clusters in one process has a run with its tasks and no others."""
    path = script(
        TWO_CLUSTERS
        + """
    with cluster() as one, cluster() as two, Client(one) as a, Client(two) as b:
        for i in range(5):
            x, y = a.submit(abs, i, key=f"first-{i}"), b.submit(abs, i, key=f"second-{i}")
            assert (x.result(), y.result()) == (i, i)
    """
    )
    done = strata("record", "-o", runs, path, check=True)
    assert_a_run_each(runs)
    for run in runs_in(runs):
        assert run.path.name in done.stderr


# A scheduler that was started elsewhere.

ELSEWHERE = """
    import sys
    from distributed import Client

    with Client(scheduler_file=sys.argv[1]) as client:
        print(sum(client.gather([client.submit(abs, i, key=f"abs-{i}") for i in range(10)])))
"""


@pytest.fixture
def elsewhere(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> Callable[..., Path]:
    """Start a scheduler and a worker as a user would; return the scheduler's file."""

    def begin(*arguments: str, **environment: str) -> Path:
        file = tmp_path / "scheduler.json"
        env = {**os.environ, **environment}
        at = ("--scheduler-file", file, "--dashboard-address", ":0")
        start(DASK, "scheduler", "--port", 0, *at, *arguments, env=env)
        wait_until(lambda: file.exists() and file.read_text(), what="the scheduler")
        start(DASK, "worker", "--nthreads", 1, *at, env=env)
        return file

    return begin


def test_a_scheduler_elsewhere_is_recorded_while_the_script_runs(
    strata: Strata, script: Script, runs: Path, elsewhere: Callable[..., Path]
) -> None:
    """A scheduler that knows nothing of us is recorded from the script's connection to its end."""
    file = elsewhere()
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert done.stdout == "45\n"
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {f"abs-{i}" for i in range(10)}
    assert run.path.name in done.stderr
    here = rows(run, "select distinct pid from processes where role = 'client'")
    there = rows(run, "select distinct pid from processes where role = 'scheduler'")
    assert len(here) == len(there) == 1
    assert here != there
    # And again: the first recording has left nothing that the second one stumbles over.
    strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    first, second = runs_in(runs)
    assert_whole(second)
    assert keys_of(first) == keys_of(second)


def test_a_scheduler_that_is_recorded_already_takes_the_client_in(
    strata: Strata, script: Script, runs: Path, tmp_path: Path, elsewhere: Callable[..., Path]
) -> None:
    """A client of a scheduler with our preload is recorded in that scheduler's run."""
    there = tmp_path / "there"
    file = elsewhere("--preload", "dask_strata", DASK_DASK_STRATA__RUNS=str(there))
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert done.stdout == "45\n"
    assert not runs_in(runs)
    run = only_run(there)
    assert run.state == "recording"
    assert keys_of(run) == {f"abs-{i}" for i in range(10)}
    clients = rows(run, "select exit_reason from processes where role = 'client'")
    assert [c["exit_reason"] for c in clients] == ["closed"]
    assert len(rows(run, "select * from client_submissions")) == 10
    assert_whole(run)


def test_the_run_of_a_recorded_scheduler_is_named(
    strata: Strata, script: Script, runs: Path, tmp_path: Path, elsewhere: Callable[..., Path]
) -> None:
    """Where the script's client was recorded in its scheduler's own run, that run is named."""
    there = tmp_path / "there"
    file = elsewhere("--preload", "dask_strata", DASK_DASK_STRATA__RUNS=str(there))
    done = strata("record", "-o", runs, script(ELSEWHERE), file, check=True)
    assert only_run(there).path.name in done.stderr
    assert "nothing was recorded" not in done.stderr


# How a script ends.


def test_a_script_without_a_cluster_runs_and_is_told(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A script that uses no cluster runs; one line says that nothing is on record."""
    path = script("print('no Dask here'); raise SystemExit(4)")
    done = strata("record", "-o", runs, path)
    assert (done.returncode, done.stdout) == (4, "no Dask here\n")
    assert "nothing was recorded" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not runs_in(runs)


def test_a_script_that_raises_ends_as_without_us(
    strata: Strata, script: Script, runs: Path, tmp_path: Path
) -> None:
    """An exception gives status 1 and the same traceback as without us, and the record is whole."""
    path = script("""
        from distributed import Client, LocalCluster

        with LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            client.submit(abs, -1, key="before").result()
            raise RuntimeError("what the user's code raised")
    """)
    alone = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    done = strata("record", "-o", runs, path)
    assert done.returncode == alone.returncode == 1
    assert "what the user's code raised" in alone.stderr
    assert done.stderr.startswith(alone.stderr)
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"before"}


def test_the_status_of_sys_exit_is_ours(strata: Strata, script: Script, runs: Path) -> None:
    """`sys.exit(3)` with a cluster open gives status 3 and a whole record."""
    path = script("""
        import sys
        from distributed import Client

        if __name__ == "__main__":
            client = Client(n_workers=1, threads_per_worker=1, dashboard_address=":0")
            client.submit(abs, -1, key="before").result()
            sys.exit(3)
    """)
    done = strata("record", "-o", runs, path)
    assert done.returncode == 3
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"before"}


INTERRUPTED = """
    import os
    import sys
    import time
    from pathlib import Path

    from distributed import Client, LocalCluster

    if __name__ == "__main__":
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            first = [client.submit(abs, i, key=f"first-{i}") for i in range(20)]
            client.gather(first)
            slow = [client.submit(time.sleep, 0.05 + i / 1e9, key=f"slow-{i}") for i in range(2000)]
            slow[0].result()
            Path(sys.argv[1]).write_text(str(os.getpid()))
"""

HANDLED = (
    INTERRUPTED
    + """
            try:
                client.gather(slow)
            except KeyboardInterrupt:
                print("interrupted", sum(client.gather(first)), flush=True)
                sys.exit(7)
"""
)

NOT_HANDLED = (
    INTERRUPTED
    + """
            client.gather(slow)
"""
)


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [(HANDLED, 7, b"interrupted 190\n"), (NOT_HANDLED, 130, b"")],
    ids=["handled", "not handled"],
)
def test_an_interrupted_script_ends_as_without_us(  # noqa: PLR0913
    script: Script,
    runs: Path,
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[bytes]],
    *,
    text: str,
    status: int,
    says: bytes,
) -> None:
    """An interrupt in mid-computation ends the script as without us; the record is whole."""
    path = script(text)
    outcomes = []
    for number, before in enumerate([(), ("-m", "dask_strata", "record", "-o", runs)]):
        ready = tmp_path / f"ready-{number}"
        process = start(
            sys.executable,
            *before,
            path,
            ready,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda r=ready: r.exists() and r.read_text(), what="tasks that run")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        outcomes.append((shell_status(process.returncode), out))
        assert (b"KeyboardInterrupt" in err) == (not says), err.decode()
    assert outcomes == [(status, says)] * 2
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert {f"first-{i}" for i in range(20)} < keys_of(run)
    ended = rows(run, "select count(*) as n from tasks where prefix = 'slow' and state = 'memory'")
    assert 0 < ended[0]["n"] < 2000


def test_a_script_that_is_killed_leaves_a_run_that_says_so(
    strata: Strata,
    script: Script,
    runs: Path,
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """After SIGKILL the status is 137, the run opens, and `check` says that it was cut off."""
    ready = tmp_path / "ready"
    process = start(
        sys.executable, "-m", "dask_strata", "record", "-o", runs, script(NOT_HANDLED), ready
    )
    pid = int(wait_until(lambda: ready.exists() and ready.read_text(), what="tasks that run"))
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    assert shell_status(process.wait(60)) == 137
    run = only_run(runs)
    assert run.state == "cut"
    assert {f"first-{i}" for i in range(20)} < keys_of(run)
    last = rows(run, "select max(epoch(time)) as t from scheduler_transitions")[0]["t"]
    assert killed - 1 < last <= killed + 0.1
    done = strata("check", run.path)
    assert done.returncode == 1
    assert "cut off" in done.stdout
    assert not run.check().ok
    # Also a write may be cut, in its middle.
    assert not [f for f in run.check().missing if not re.search("cut (off|in the middle)", f.text)]
    assert run.path.name in (tmp_path / "process-0.log").read_text()


# What the script sees.

LOOK = """
    import json, os, signal, sys, threading

    main = sys.modules["__main__"]
    spec = main.__spec__
    seen = {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "name": __name__,
        "file": __file__,
        "spec": None if spec is None else [spec.name, spec.origin],
        "package": __package__,
        "globals": sorted(globals()),
        "cwd": os.getcwd(),
        "path": sys.path,
        "flags": str(sys.flags),
        "stdin": sys.stdin.buffer.read().hex(),
        "streams": [
            (s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "files": sorted(os.listdir("/proc/self/fd"), key=int),
        "signals": [str(signal.getsignal(s)) for s in signal.valid_signals()],
        "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "umask": os.umask(0o22),
        "threads": [t.name for t in threading.enumerate()],
        "modules": sorted(m for m in sys.modules if m.startswith(("dask", "distributed"))),
    }
    print(json.dumps(seen, indent=1))
    sys.stdout.buffer.write(b"bytes \\xff\\x00\\r\\n of the script")
    print("the script's own trouble", file=sys.stderr)
    sys.stderr.buffer.write(b"\\xfe without an end of line")
"""

WITH_CLUSTER = """
    import os, sys

    print(sys.argv, os.getcwd(), sys.stdin.read(), __name__, __file__, __package__, flush=True)
    from distributed import Client

    if __name__ == "__main__":
        with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
            print(client.submit(abs, -1).result(), [p for p in client.run(os.getcwd).values()])
            print("in between", file=sys.stderr)
        sys.stderr.write("no end of line")
"""


@pytest.mark.parametrize("text", [LOOK, WITH_CLUSTER], ids=["look", "cluster"])
@pytest.mark.parametrize(
    ("as_module", "quiet"),
    [(False, False), (False, True), (True, False)],
    ids=["script", "script-quiet", "module"],
)
def test_the_script_sees_and_says_the_same_as_without_us(  # noqa: PLR0913
    script: Script, runs: Path, tmp_path: Path, text: str, *, as_module: bool, quiet: bool
) -> None:
    """argv, `__main__`, folder and streams are as with plain Python; our words come last."""
    script(text, "looks_around.py")
    command = ["-m", "looks_around"] if as_module else ["looks_around.py"]
    command += ["--output", "x y", "-q", "", "é"]
    ours = ["-m", "dask_strata", "record", "-o", str(runs), *(["-q"] if quiet else [])]
    stdin = b"line one\nno end \xc3\xa9 of line"
    alone, done = (
        subprocess.run(
            [sys.executable, *before, *command],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            check=False,
        )
        for before in ([], ours)
    )
    assert alone.returncode == done.returncode == 0, alone.stderr
    assert done.stdout.decode("latin1") == alone.stdout.decode("latin1")
    assert done.stderr.startswith(alone.stderr), done.stderr.decode("latin1")
    rest = done.stderr[len(alone.stderr) :].decode()
    if text is WITH_CLUSTER:
        run = only_run(runs)
        assert_whole(run)
        assert run.path.name in rest
        assert run.script["kind"] == ("module" if as_module else "script")
        assert json.loads(run.script["argv"])[1:] == ["--output", "x y", "-q", "", "é"]
    else:
        assert "nothing was recorded" in rest
    if quiet:
        assert len(rest.strip().splitlines()) == 1


def test_a_module_of_a_package_is_run_with_its_arguments(
    strata: Strata, runs: Path, tmp_path: Path
) -> None:
    """`-m PACKAGE ARGS` runs the package's `__main__`, and the record says so."""
    package = tmp_path / "pipeline"
    package.mkdir()
    (package / "__init__.py").write_text("def triple(x):\n    return 3 * x\n")
    (package / "__main__.py").write_text(
        "import sys\n"
        "from distributed import Client\n"
        "from . import triple\n"
        "if __name__ == '__main__':\n"
        "    with Client(n_workers=1, threads_per_worker=1, dashboard_address=':0') as client:\n"
        "        print(client.submit(triple, int(sys.argv[1]), key='triple').result())\n"
        "        print(sys.argv[1:], __spec__.name, __package__)\n"
    )
    done = strata("record", "-o", runs, "-m", "pipeline", "14", "--flush-interval", "x", check=True)
    assert done.stdout == "42\n['14', '--flush-interval', 'x'] pipeline.__main__ pipeline\n"
    run = only_run(runs)
    assert_whole(run)
    assert run.manifest.name == "pipeline"
    assert run.script["module"] == "pipeline.__main__"
    assert keys_of(run) == {"triple"}


def test_runs_go_where_the_user_stands_by_default(
    strata: Strata, script: Script, tmp_path: Path
) -> None:
    """Without -o the run is in `runs` where the command was called, wherever the script goes."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = script(f"""
        import os
        from distributed import Client

        os.chdir({str(elsewhere)!r})
        with Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as client:
            client.submit(abs, -1, key="abs").result()
    """)
    strata("record", "--name", "my name", path, check=True)
    run = only_run(tmp_path / "runs")
    assert_whole(run)
    assert run.manifest.name == "my name"
    assert not list(elsewhere.iterdir())


def test_options_decide_what_is_on_record(strata: Strata, script: Script, runs: Path) -> None:
    """--no-code leaves out text and lines, --no-compact Parquet, and the intervals are as given."""
    path = script("""
        from distributed import Client

        with Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as client:
            client.submit(abs, -1, key="a-secret-line").result()
    """)
    options = ("--no-code", "--no-compact", "--flush-interval", "20ms", "--sample-interval", "1s")
    strata("record", "-o", runs, *options, path, check=True)
    run = only_run(runs)
    assert_whole(run)
    assert run.flush_interval_seconds == 0.02
    assert not (run.path / "parquet").exists()
    assert "text" not in run.script
    assert not rows(run, "select * from client_submissions where code is not null")
    assert not rows(run, "select * from submissions where code is not null")


# Wrong use.


def test_help_has_an_example(strata: Strata) -> None:
    """--help shows how to call the command."""
    done = strata("record", "--help", check=True)
    assert "Example" in done.stdout
    assert "dask-strata record pipeline.py" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["there-is-none.py"], "there-is-none.py"),
        ([], "nothing to run"),
        (["."], "__main__.py"),
        (["--flush-interval", "nonsense", "script.py"], "nonsense"),
        (["--flush-interval", "1us", "script.py"], "flush-interval"),
        (["--sample-interval", "", "script.py"], "sample-interval"),
        (["--no-such-option", "script.py"], "--no-such-option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_said_in_two_lines_and_runs_nothing(
    strata: Strata, script: Script, tmp_path: Path, arguments: list[str], says: str
) -> None:
    """Wrong use gives status 2 and at most two lines that name it; the script is not run."""
    script("print('ran')")
    done = strata("record", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["script.py"]


def test_an_unknown_setting_is_named_and_the_script_runs(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A setting in the environment that nobody knows is named in one line; all else goes on."""
    path = script("""
        from distributed import Client

        with Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as client:
            print(client.submit(abs, -1, key="abs").result())
    """)
    environment = {**os.environ, "DASK_DASK_STRATA__NONSENSE": "1"}
    done = strata("record", "-q", "-o", runs, path, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    naming = [line for line in done.stderr.splitlines() if "nonsense" in line]
    assert len(naming) == 1, done.stderr
    run = only_run(runs)
    assert_whole(run)
    assert keys_of(run) == {"abs"}


def test_the_exit_status_is_on_record_and_shown(strata: Strata, script: Script, runs: Path) -> None:
    """A script that failed is not shown as if all was well."""
    path = script("""
        from distributed import Client
        if __name__ == "__main__":
            with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
                client.submit(abs, -1).result()
            raise SystemExit(3)
    """)
    done = strata("record", "-o", runs, path)
    assert done.returncode == 3
    assert "script exited with 3" in done.stderr
    assert only_run(runs).script["exit_status"] == "3"

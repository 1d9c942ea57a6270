"""`dask-strata record`: a script runs as without it, with its options and arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.recorded import (
    Script,
    Strata,
    keys_of,
    only_run,
)
from tests.conftest import assert_whole, rows

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
    [
        (False, False),
        pytest.param(False, True, marks=pytest.mark.long),
        pytest.param(True, False, marks=pytest.mark.long),
    ],
    ids=["script", "script-quiet", "module"],
)
def test_the_script_reads_and_prints_the_same_as_without_recording(  # noqa: PLR0913
    script: Script, runs: Path, tmp_path: Path, text: str, *, as_module: bool, quiet: bool
) -> None:
    """argv, `__main__`, folder and streams are as with plain Python; messages are at the end."""
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


@pytest.mark.long
def test_a_module_of_a_package_is_run_with_its_arguments(
    strata: Strata, runs: Path, tmp_path: Path
) -> None:
    """`-m PACKAGE ARGS` runs the package's `__main__`, and the record has both."""
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


@pytest.mark.long
def test_runs_are_in_the_current_folder_by_default(
    strata: Strata, script: Script, tmp_path: Path
) -> None:
    """Without -o the run is in `runs` of the folder of the call, even if the script changes it."""
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
    assert not rows(run, "select * from client_graphs where expression is not null")


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
def test_wrong_use_is_reported_in_two_lines_and_runs_nothing(
    strata: Strata, script: Script, tmp_path: Path, arguments: list[str], says: str
) -> None:
    """Wrong use gives status 2 and at most two lines with the reason; the script does not run."""
    script("print('ran')")
    done = strata("record", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["script.py"]


@pytest.mark.long
def test_an_unknown_setting_is_named_and_the_script_runs(
    strata: Strata, script: Script, runs: Path
) -> None:
    """An unknown setting in the environment is named in one line, and the script runs."""
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

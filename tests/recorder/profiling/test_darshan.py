"""Loading Darshan: into worker processes only, checked before the script runs.

The library is a small substitute: it writes a file when a process loads it and, like Darshan, a
log when the process exits normally. Darshan itself is not tested here.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.config import read_settings
from dask_strata.errors import UsageError
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.profiling import darshan_worker
from dask_strata.recorder.profiling.darshan_library import (
    configuration,
    prepare_environment,
    usable_library,
)
from dask_strata.recorder.profiling.darshan_worker import DarshanEnvironment
from tests.conftest import rows, runs_in, wait_until
from tests.support.synthetic import new_run

Strata = Callable[..., "subprocess.CompletedProcess[str]"]
Script = Callable[..., Path]

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *ending) {
    const char *folder = getenv("DARSHAN_LOGPATH");
    char path[4096], line[4096] = {0};
    if (!folder || getenv("DARSHAN_DISABLE")) return;
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0; i < n; i++) if (!line[i]) line[i] = ' ';
    snprintf(path, sizeof path, "%s/%d.%s", folder, (int)getpid(), ending);
    file = fopen(path, "w");
    if (file) { fprintf(file, "%s\n", line); fclose(file); }
}
__attribute__((constructor)) static void begin(void) { note("loaded"); }
__attribute__((destructor)) static void end(void) { note("darshan"); }
"""

SCRIPT = """
    import os, subprocess, sys
    from distributed import Client

    def environment():
        return dict(os.environ)

    if __name__ == "__main__":
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            for found in client.run(environment).values():
                assert found["DARSHAN_ENABLE_NONMPI"] == "1", found
                assert found["DXT_ENABLE_IO_TRACE"] == "1", found
                assert found["LD_PRELOAD"] == sys.argv[1], found
                assert "NAME_EXCLUDE" in open(found["DARSHAN_CONFIG_PATH"]).read()
            print(sorted(client.run(os.getpid).values()))
            print(client.submit(abs, -1).result())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that records the processes which load it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NOT TESTED: there is no C compiler on this machine")
    folder = tmp_path_factory.mktemp("library")
    source, made = folder / "darshan.c", folder / "libdarshan.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made


@pytest.mark.long
def test_worker_processes_and_no_others_load_it(
    strata: Strata, script: Script, runs: Path, library: Path
) -> None:
    """Two workers write two logs; script, scheduler and nannies do not load the library."""
    done = strata("record", f"--darshan={library}", "-o", runs, script(SCRIPT), library, check=True)
    (run,) = runs_in(runs)
    # The substitute's files are reported as invalid logs; nothing else is missing.
    missing = [finding.text for finding in run.check().missing]
    assert missing
    assert all("no Darshan log" in text or "cut in its header" in text for text in missing)
    logs = run.path / "darshan"
    pids = {int(p.stem) for p in logs.glob("*.loaded")}
    workers = {r["pid"] for r in rows(run, "select pid from processes where role = 'worker'")}
    lines = [p.read_text() for p in logs.glob("*.loaded")]
    assert workers <= pids, lines
    others = {r["pid"] for r in rows(run, "select pid from processes where role <> 'worker'")}
    assert not others & pids, lines
    # Programs started at the same moment may load it, but no other Python process of Dask.
    assert sum("spawn_main" in line for line in lines) == 2, lines
    assert {int(p.stem) for p in logs.glob("*.darshan")} >= workers
    assert "Darshan log" in done.stderr
    assert "is no Darshan log" in done.stderr
    facts = rows(run, "select distinct value from job where name = 'darshan.library'")
    assert facts == [{"value": str(library)}]


def test_options_after_the_script_belong_to_the_script(strata: Strata, script: Script) -> None:
    """`--darshan` takes no separate value; after the script it is an option of the script."""
    path = script("import sys; print(sys.argv[1:])")
    done = strata("record", path, "--darshan", "x", check=True)
    assert done.stdout == "['--darshan', 'x']\n"
    environment = {k: v for k, v in os.environ.items() if "DARSHAN" not in k} | {"PATH": ""}
    done = strata("record", "--darshan", path, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "libdarshan.so was not found" in done.stderr
    assert "darshan-runtime" in done.stderr


def darshan_variables() -> dict[str, str]:
    """Return the variables of this process that affect Darshan."""
    return {k: v for k, v in os.environ.items() if "DARSHAN" in k or "DXT" in k or "LD_P" in k}


def test_a_killed_workers_log_is_named_as_missing(runs: Path, library: Path) -> None:
    """`check` names the killed worker, which wrote no log; the other worker wrote one."""
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        before = darshan_variables()
        with dask_strata.record(runs, client=client, darshan=str(library)) as run:
            cluster.scale(2)
            client.wait_for_workers(2, timeout=60)
            wait_until(
                lambda: len(rows(run, "select 1 from job where name = 'darshan.library'")) == 2,
                what="both workers",
            )
            wait_until(lambda: darshan_variables() == before, what="the environment as it was")
            pid = min(client.run(os.getpid).values())
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: rows(
                    run, f"select 1 from worker_events where reason like 'pid {pid} was killed%'"
                ),
                what="the kill on record",
            )
        missing = [f.text for f in run.check().missing if "Darshan" in f.text]
        # The restarted worker may have a loss, too.
        assert f"process {pid} was killed by SIGKILL: it wrote no Darshan log" in missing
        assert not (run.path / "darshan" / f"{pid}.darshan").exists()
    wait_until(lambda: darshan_variables() == before, what="the environment as it was")


def test_running_workers_have_a_loss(client: Client, runs: Path, library: Path) -> None:
    """Darshan cannot be loaded into a running process: a loss for each worker."""
    with dask_strata.record(runs, client=client, darshan=str(library)) as run:
        client.submit(abs, -1).result()
    losses = [finding.text for finding in run.check().missing]
    assert len(losses) == 2
    assert all("started before the recording" in text for text in losses)


def test_a_recording_that_has_ended_leaves_the_environment_alone(
    client: Client, tmp_path: Path, library: Path
) -> None:
    """A nanny that joins while the recording ends gets no variables that nothing would remove."""
    (nanny, *_) = client.cluster.workers.values()
    settings = read_settings(darshan_library=str(library))
    engine = Engine("nanny", "synth", new_run(tmp_path / "r"), settings)
    engine.start(address=nanny.address)
    engine.finish("closed")
    before = dict(nanny.pre_spawn_env), dict(os.environ)
    client.sync(DarshanEnvironment(nanny, engine).begin)
    assert (nanny.pre_spawn_env, dict(os.environ)) == before


def test_other_libraries_are_refused(tmp_path: Path) -> None:
    """A missing file, a broken one and PyDarshan's own library each have an error message."""
    with pytest.raises(UsageError, match="No such library"):
        usable_library(str(tmp_path / "libdarshan.so"))
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"\x7fELF and no more")
    with pytest.raises(UsageError, match="cannot be loaded"):
        usable_library(str(broken))
    util = tmp_path / "libdarshan-util.so"
    util.write_bytes(b"\x7fELF\x00darshan_log_open\x00")
    with pytest.raises(UsageError, match="darshan-util, which reads logs"):
        usable_library(str(util))


def test_the_library_is_found_in_an_installation(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of an installation, or LD_LIBRARY_PATH, is enough."""
    (tmp_path / "lib").mkdir()
    found = shutil.copy(library, tmp_path / "lib" / "libdarshan.so")
    monkeypatch.setenv("DARSHAN_RUNTIME_DIR", str(tmp_path))
    assert usable_library("auto") == found
    monkeypatch.delenv("DARSHAN_RUNTIME_DIR")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    assert usable_library("auto") == found


def test_the_configuration_follows_the_settings(tmp_path: Path) -> None:
    """Python's own files and the user's patterns are excluded; traces and memory are as set."""
    settings = read_settings(
        {}, darshan="auto", darshan_dxt=False, darshan_exclude=["^/scratch/tmp"], darshan_memory=8
    )
    text = configuration(settings, tmp_path)
    assert r"NAME_EXCLUDE \.pyc$ *" in text
    assert "NAME_EXCLUDE ^/scratch/tmp *" in text
    assert "MODMEM 8\n" in text
    assert "MOD_ENABLE" not in text
    library = Path("/opt/libdarshan.so")
    variables = prepare_environment(settings, library, tmp_path / "logs", tmp_path)
    mode = tmp_path.stat().st_mode & 0o777
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {mode}
    config = Path(variables["DARSHAN_CONFIG_PATH"])
    assert config.stat().st_mode & 0o777 == mode & 0o666
    assert "DXT_ENABLE_IO_TRACE" not in variables
    assert Path(variables["DARSHAN_CONFIG_PATH"]).is_file()


def test_the_users_own_configuration_is_left_alone(tmp_path: Path) -> None:
    """The file has the run's name; it is in the run's folder or, without that, with the logs."""
    logs, run = tmp_path / "logs", tmp_path / "run-1"
    logs.mkdir()
    (logs / "darshan.conf").write_text("MODMEM 1\n")
    settings = read_settings({}, darshan="auto")
    for folder in (logs, run):
        variables = prepare_environment(settings, Path("/opt/libdarshan.so"), logs, run)
        config = Path(variables["DARSHAN_CONFIG_PATH"])
        assert config == folder / "dask-strata-run-1.conf"
        assert "NAME_EXCLUDE" in config.read_text()
        run.mkdir(exist_ok=True)
    assert (logs / "darshan.conf").read_text() == "MODMEM 1\n"


def test_patterns_contain_no_separators(tmp_path: Path) -> None:
    """A setting that is a text is one pattern, without white space and commas, which end it."""
    settings = read_settings({}, darshan="auto", darshan_exclude="a{1,3}")
    assert settings.darshan_exclude == ("a{1,3}",)
    lines = configuration(settings, tmp_path / "my data, new").splitlines()
    assert "NAME_EXCLUDE aa?a? *" in lines
    assert f"NAME_EXCLUDE ^{re.escape(str(tmp_path))}/my.data..new *" in lines
    assert all(len(line.split()) == 3 for line in lines if line.startswith("NAME_EXCLUDE"))
    both = read_settings({}, darshan="auto", darshan_exclude=["a", "b,c"])
    assert both.darshan_exclude == ("a", "b,c")


def test_variables_that_the_user_changes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only variables that still have the value for a worker are restored."""
    variables = {"LD_PRELOAD": "worker's", "DARSHAN_MODMEM": "64", "DARSHAN_LOGPATH": "logs"}
    monkeypatch.setattr(darshan_worker, "_variables", lambda *_: variables)
    for name in variables:
        monkeypatch.setenv(name, "before")
    settings = read_settings({}, darshan="auto")
    engine = SimpleNamespace(settings=settings, folder=tmp_path, sources=[], finished=False)
    loop = SimpleNamespace(add_callback=lambda call: call())
    process = SimpleNamespace(process=SimpleNamespace(pid=1))
    nanny = SimpleNamespace(pre_spawn_env={"LD_PRELOAD": "dask's"}, process=process, loop=loop)
    environment = darshan_worker.DarshanEnvironment(nanny, engine)  # type: ignore[arg-type]
    asyncio.run(environment.begin())
    assert engine.sources == [environment]

    os.environ.update(nanny.pre_spawn_env)  # as a nanny does
    environment.rows()
    assert {os.environ[name] for name in variables} == {"before"}
    os.environ["DARSHAN_MODMEM"] = "user's"
    environment.rows()
    os.environ.update(nanny.pre_spawn_env)
    os.environ["LD_PRELOAD"] = "user's, too"
    nanny.pre_spawn_env["DARSHAN_LOGPATH"] = "elsewhere"
    environment.rows()
    assert os.environ["DARSHAN_MODMEM"] == "user's"
    os.environ.update(nanny.pre_spawn_env)
    os.environ["LD_PRELOAD"] = "user's, too"
    environment.detach()
    assert os.environ["LD_PRELOAD"] == "user's, too"
    assert os.environ["DARSHAN_MODMEM"] == "user's"
    assert nanny.pre_spawn_env == {"LD_PRELOAD": "dask's", "DARSHAN_LOGPATH": "elsewhere"}

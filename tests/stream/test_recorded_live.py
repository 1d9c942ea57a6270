"""A real cluster that is followed and streamed while it is recorded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dask_strata
from dask_strata.store.manifest import find_runs
from tests.conftest import runs_in, wait_until
from tests.stream.test_sender import assert_whole, lines
from tests.support.following import Followed, plain, recorded

SCRIPT = """
    import os, signal, time
    from distributed import Client, LocalCluster

    def work(x):
        time.sleep(0.01)
        return x

    def die(pid):
        os.kill(pid, signal.SIGKILL)

    if __name__ == "__main__":
        with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                client.gather(client.map(work, range(200)))
                victim = client.submit(os.getpid, pure=False).result()
                more = client.map(work, range(200, 400))
                os.kill(victim, signal.SIGKILL)
                client.gather(more)
                print("done")
"""


@pytest.mark.long
def test_a_cluster_is_followed_while_it_is_recorded(
    tmp_path: Path, runs: Path, script: Callable[..., Path]
) -> None:
    """With a killed worker and the one that replaces it, and the compaction at the end: all rows of
    each table are those of the finished run; attempts and tasks are yielded before its end."""
    stream = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "dask_strata", "record", "-q", "-o", runs]
    process = subprocess.Popen(
        [*map(str, command), "--stream", f"file:{stream}", script(SCRIPT)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder = wait_until(lambda: next(find_runs(runs), None) if runs.exists() else None)
    found, derived = Followed(), Followed()
    early: list[int] = []
    errors: list[Exception] = []

    def read(into: Followed, tables: list[str] | None) -> None:
        try:
            for batch in dask_strata.follow(folder, tables):
                into.next[str(batch.process)] = 0 if tables else into.next.get(batch.process, 0)
                into.add([batch])
                if tables and process.poll() is None:
                    early.append(len(batch.rows))
        except Exception as error:  # noqa: BLE001  shown by the test
            errors.append(error)

    readers = [
        threading.Thread(target=read, args=(found, None)),
        threading.Thread(target=read, args=(derived, ["attempts", "tasks"])),
    ]
    for reader in readers:
        reader.start()
    output, messages = process.communicate(timeout=180)
    for reader in readers:
        reader.join(120)
    assert (process.returncode, output, errors) == (0, "done\n", [])
    assert f"rows sent to file:{stream}" in messages
    [run] = runs_in(runs)
    assert found.contents() == recorded(folder)
    assert sum(early) > 0
    for name in ("attempts", "tasks"):
        rows = plain(run[name].to_arrow().to_pylist())
        assert sorted(derived.contents()[name, None]) == sorted(rows)
    assert_whole(stream, folder)
    assert lines(stream)[-1].content["state"] == "complete"


def test_settings_in_the_record_have_no_password() -> None:
    """Neither the setting nor what the scheduler sends to workers."""
    from dask_strata.config import read_settings
    from dask_strata.recorder.environment.dask_config import effective_settings

    url = "kafka://me:hunter2@host:9092/runs?sasl.password=hunter3"
    settings = effective_settings(
        {"dask_strata": {"stream": url}}, {"DASK_DASK_STRATA__STREAM": url}
    )
    assert [s.name for s in settings if "stream" in s.name]
    assert "hunter" not in str(settings)
    assert "hunter" not in repr(read_settings({"stream": url}))
    with pytest.raises(dask_strata.StrataError) as caught:
        read_settings({"stream": "nats://me:hunter2@host"})
    assert "hunter" not in str(caught.value)


def test_a_relative_file_is_that_of_the_client(tmp_path: Path, monkeypatch: Any) -> None:
    """The scheduler may have another folder."""
    from dask_strata.config import read_settings
    from dask_strata.recorder.streaming import with_absolute_stream

    monkeypatch.chdir(tmp_path)
    chosen = with_absolute_stream(read_settings({"stream": "file:rows.jsonl"}))
    assert chosen.stream == f"file:{tmp_path / 'rows.jsonl'}"


def test_a_wrong_address_is_refused_before_the_script(
    tmp_path: Path, strata: Callable[..., Any], script: Callable[..., Path]
) -> None:
    """One line, without the password."""
    path = script("open('ran', 'w')")
    for url in ("nats://me:hunter2@host", "redis://me:hunter2@host:99999"):
        done = strata("record", "--stream", url, path)
        assert done.returncode == 2
        assert "hunter2" not in done.stderr
        assert not (tmp_path / "ran").exists()

"""Recording of logs attaches to a running cluster and leaves nothing behind."""

from __future__ import annotations

import faulthandler
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.errors import SettingError
from dask_strata.recorder.logs import pipes
from tests.conftest import rows, wait_until


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a cluster with one worker process."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as made,
    ):
        yield made


def _state() -> dict[str, Any]:
    """Return what recording could change in this process."""
    loggers = [logging.getLogger(name) for name in (None, "distributed", "distributed.worker")]
    return {
        "descriptors": [(os.fstat(n).st_dev, os.fstat(n).st_ino) for n in (1, 2)],
        "handlers": [[id(handler) for handler in logger.handlers] for logger in loggers],
        "levels": [(logger.level, logger.propagate) for logger in loggers],
        "functions": (
            id(logging.Logger.callHandlers),
            id(warnings._showwarnmsg),
            id(warnings.showwarning),
        ),
        "faulthandler": faulthandler.is_enabled(),
    }


def _log_and_print(word: str) -> bool:
    logging.getLogger("user").warning("logged %s", word)
    logging.getLogger("user.info").setLevel(logging.INFO)
    logging.getLogger("user.info").info("detail %s", word)
    sys.stdout.write(f"printed {word}\n")
    sys.stdout.flush()
    return faulthandler.is_enabled()


def _messages(run: dask_strata.Run, word: str) -> list[str]:
    query = f"select message from logs where contains(message, '{word}') order by number"
    return [row["message"] for row in rows(run, query)]


def test_everything_is_restored(client: Client, runs: Path) -> None:
    """Descriptors, handlers, levels, functions and faulthandler are as before on all processes."""
    before = client.run(_state), _state()
    [facts] = client.scheduler_info()["workers"].values()
    folder = pipes.folder_of(facts["nanny"])
    assert not folder.exists()
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(_log_and_print, "one", pure=False).result()
        during = client.run(_state)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (client.run(_state), _state()) == before
    for address, state in during.items():
        assert state["descriptors"] != before[0][address]["descriptors"]
        assert state["handlers"] == before[0][address]["handlers"]
        assert state["levels"] == before[0][address]["levels"]
    assert _messages(run, "one") == ["logged one", "detail one", "printed one"]
    assert not folder.exists()


@pytest.mark.long
def test_two_recordings_have_all_entries(client: Client, runs: Path) -> None:
    """Two recordings at a time each have each entry once, also after the first has ended."""
    with dask_strata.record(runs, client=client) as outer:
        with dask_strata.record(runs, client=client) as inner:
            client.submit(_log_and_print, "both", pure=False).result()
        client.submit(_log_and_print, "later", pure=False).result()
    expected = ["logged both", "detail both", "printed both"]
    assert _messages(outer, "both") == _messages(inner, "both") == expected
    assert _messages(outer, "later") == ["logged later", "detail later", "printed later"]
    assert _messages(inner, "later") == []


def test_logs_are_left_out(client: Client, runs: Path) -> None:
    """With leave-out, no table has an entry, and nothing is redirected."""
    before = client.run(_state)
    with dask_strata.record(runs, client=client, leave_out="logs") as run:
        client.submit(_log_and_print, "out", pure=False).result()
        assert client.run(_state) == before
    assert [len(run[name]) for name in ("log_records", "output_lines", "logs")] == [0, 0, 0]


@pytest.mark.long
def test_texts_are_left_out_with_names(client: Client, runs: Path) -> None:
    """If paths are left out, texts of entries are, as those of exceptions; their rows stay."""
    with dask_strata.record(runs, client=client, leave_out="paths") as run:
        client.submit(_log_and_print, "/secret/path", pure=False).result()
    found = rows(run, "select distinct message from logs where worker is not null")
    assert found == [{"message": "(left out)"}]
    assert rows(run, "select level from logs where logger = 'user'") == [{"level": "WARNING"}]


def test_a_finalised_run_without_tasks_has_its_logs(client: Client, runs: Path) -> None:
    """There is no key that a row could have, and each row is there."""
    with dask_strata.record(runs, client=client) as run:
        client.run(_log_and_print, "no task")
    before = _messages(run, "no task")
    assert before == ["logged no task", "detail no task", "printed no task"]
    dask_strata.compact(run)
    finalised = dask_strata.open_run(run.path)
    assert _messages(finalised, "no task") == before
    messages = finalised["log_records"].to_arrow()["message"].to_pylist()
    assert messages.count("logged no task") == 1


def test_the_level_is_a_setting(client: Client, runs: Path) -> None:
    """Records below the level are not on record; lines of output are."""
    with dask_strata.record(runs, client=client, log_level="warning") as run:
        client.submit(_log_and_print, "level", pure=False).result()
    assert _messages(run, "level") == ["logged level", "printed level"]
    with pytest.raises(SettingError, match=r"dask_strata\.log-level: 'loud' is not a level"):
        dask_strata.record(runs, client=client, log_level="loud")


@pytest.mark.long
def test_new_entries_are_followed(client: Client, runs: Path, tmp_path: Path) -> None:
    """--follow prints each entry once while the run is recorded, and ends with the recording."""
    command = [Path(sys.executable).with_name("dask-strata"), "logs", "--follow", "--grep", "word"]
    printed = tmp_path / "printed.txt"
    with dask_strata.record(runs, client=client) as run:
        client.submit(_log_and_print, "word1", pure=False).result()
        with printed.open("wb") as out:
            following = subprocess.Popen([*command, str(run.path)], stdout=out)
        wait_until(lambda: "printed word1" in printed.read_text())
        client.submit(_log_and_print, "word2", pure=False).result()
        wait_until(lambda: "printed word2" in printed.read_text())
        client.submit(_log_and_print, "word3", pure=False).result()
    assert following.wait(60) == 0
    lines = [line.rpartition("  ")[2] for line in printed.read_text().splitlines()]
    kinds = ("logged", "detail", "printed")
    assert lines == [f"{kind} word{n}" for n in (1, 2, 3) for kind in kinds]

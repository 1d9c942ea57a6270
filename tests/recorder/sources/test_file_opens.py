"""Files that tasks open in Python: names, modes and counts."""

# Tasks open files in all the ways that Python has, and change folders with os.
# ruff: noqa: PTH103, PTH109, PTH123

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dask_strata
from tests.conftest import rows
from tests.recorder.sources.measured_tasks import (
    attempt,
    needs_accounting,
    nothing,
    opens,
    write_pieces,
)

if TYPE_CHECKING:
    from distributed import Client

pytestmark = needs_accounting


def open_all(folder: str) -> None:
    """Open files in all the ways that Python has."""
    with open(f"{folder}/with space.txt", "w"):
        pass
    for _ in range(2):
        with open(f"{folder}/with space.txt"):
            pass
    (Path(folder) / "new\nline.bin").write_bytes(b"x")
    (Path(folder) / "new\nline.bin").read_bytes()
    with open(f"{folder}/with space.txt", "r+b"):
        pass
    with open(f"{folder}/with space.txt", "a"):
        pass
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        os.close(os.open(os.fsencode(f"{folder}/new\nline.bin"), flags))
    np.save(f"{folder}/array.npy", np.ones(3))
    np.load(f"{folder}/array.npy")
    descriptor = os.open(os.fsencode(folder) + b"/\xff\xfe.dat", os.O_WRONLY | os.O_CREAT)
    with open(descriptor, "wb"):  # a descriptor is already open
        pass
    os.makedirs(f"{folder}/https:/host")
    os.chdir(folder)
    try:
        with open("https://host/f.txt", "w"):  # a relative path, not a URL
            pass
    finally:
        os.chdir("/")
    with contextlib.suppress(FileNotFoundError), open(f"{folder}/missing"):
        pass


def test_files_opened(client: Client, runs: Path, tmp_path: Path) -> None:
    """Every file that a task opens in Python is recorded with its name, mode and count."""
    folder = tmp_path / "data"
    folder.mkdir()
    with dask_strata.record(runs, client=client) as run:
        client.submit(open_all, str(folder), key="opens").result()
        client.submit(nothing, key="none").result()
    found = {
        (uri.replace(str(folder), "").lstrip("/"), mode, count)
        for uri, mode, count in opens(run, "opens")
    }
    odd = [uri for uri, _, _ in found if uri.endswith(".dat")]
    assert found - {(uri, "write", 1) for uri in odd} == {
        ("with space.txt", "write", 2),
        ("with space.txt", "read", 2),
        ("with space.txt", "update", 1),
        ("new\nline.bin", "write", 2),
        ("new\nline.bin", "read", 2),
        ("new\nline.bin", "update", 1),
        ("array.npy", "write", 1),
        ("array.npy", "read", 1),
        ("https:/host/f.txt", "write", 1),
        ("missing", "read", 1),
    }
    assert len(odd) == 1
    assert attempt(run, "opens")["n_opened"] >= 15
    assert attempt(run, "none")["n_opened"] == 0
    assert not opens(run, "none")
    seen = rows(run, "select uri, mode, count from task_inputs where kind = 'seen'")
    assert {(r["uri"], r["mode"], r["count"]) for r in seen} == opens(run, "opens")


def read_relative(folder: str, name: str) -> str:
    """Read a file by a path relative to a folder, and leave the folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with open(name) as file:
            return file.read()
    finally:
        os.chdir(before)


def test_a_relative_path_is_relative_to_the_folder_of_its_opening(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """A relative path is resolved in the task's working folder, not in the recorder's later one."""
    (tmp_path / "data").write_text("hello")
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(read_relative, str(tmp_path), "data").result() == "hello"
    [found] = rows(run, "select uri, file_bytes from file_opens")
    assert found == {"uri": str(tmp_path / "data"), "file_bytes": 5}


def read_and_write(folder: str) -> None:
    """Read a file, one that is a pipe, and one that is deleted at once; write another one."""
    os.mkfifo(f"{folder}/pipe")
    os.close(os.open(f"{folder}/pipe", os.O_RDONLY | os.O_NONBLOCK))
    Path(folder, "gone").write_bytes(b"some")
    Path(folder, "gone").read_bytes()
    Path(folder, "gone").unlink()
    Path(folder, "data").read_bytes()


def test_the_size_of_a_file_that_was_read(client: Client, runs: Path, tmp_path: Path) -> None:
    """It is that of a regular file that is still there; others have none, and cost nothing."""
    (tmp_path / "data").write_bytes(bytes(12_345))
    with dask_strata.record(runs, client=client) as run:
        client.submit(read_and_write, str(tmp_path)).result()
    found = rows(run, "select uri, mode, file_bytes from file_opens order by uri, mode")
    sizes = {(Path(r["uri"]).name, r["mode"]): r["file_bytes"] for r in found}
    assert sizes == {
        ("data", "read"): 12_345,
        ("gone", "read"): None,
        ("gone", "write"): None,
        ("pipe", "read"): None,
    }


def test_inputs_can_be_switched_off(client: Client, runs: Path, tmp_path: Path) -> None:
    """Without `inputs` executions are measured; the number of opened files is null, not 0."""
    with dask_strata.record(runs, client=client):  # with inputs: installs the audit hook
        client.submit(nothing, key="before").result()
    with dask_strata.record(runs, client=client, inputs=False) as run:
        for key in ("first", "writes"):  # the first one may also write caches of modules
            client.submit(write_pieces, str(tmp_path / key), 5, key=key).result()
    assert len(run.file_opens) == len(run.task_inputs) == 0
    found = attempt(run, "writes")
    assert found["write_bytes"] == 50
    assert found["n_opened"] is None

"""Inputs with odd names, damaged or missing files, and extractors that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Future, LocalCluster

import dask_strata
from dask_strata import Run
from dask_strata.recorder.inputs import extractors
from dask_strata.recorder.inputs.extractors.call import Call
from dask_strata.recorder.inputs.source import register
from tests.conftest import rows, runs_in


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a cluster in this process, so that tests can register extractors."""
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    )
    with cluster, Client(cluster) as made:
        yield made


def read_bytes(path: Any) -> bytes:
    """Read a file."""
    with open(path, "rb") as file:  # noqa: PTH123  bytes are no Path
        return file.read()


def nothing(*_: Any) -> None:
    """Accept any arguments."""


def claims(run: Run) -> list[str]:
    """Return the files that definitions name."""
    return [row["uri"] for row in rows(run, "select distinct uri from claimed_inputs order by 1")]


def failure(client: Client, runs: Path, make: Callable[[], Any]) -> tuple[Run, BaseException]:
    """Record a failing task; return the run and the error that the user got."""
    with dask_strata.record(runs, client=client) as run:
        future = make()
        future = future if isinstance(future, Future) else client.compute(future)
        error = future.exception()
        assert error is not None
        del future
    return run, error


@pytest.mark.parametrize("name", ["a b.txt", "line\nbreak.txt", "ünï — ☃.txt", "tab\t'\".txt"])
def test_odd_names(client: Client, runs: Path, tmp_path: Path, name: str) -> None:
    """Spaces, newlines and non-ASCII letters of a name are recorded, both claimed and seen."""
    path = tmp_path / name
    path.write_bytes(b"x")
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(read_bytes, str(path)).result() == b"x"
    assert claims(run) == [str(path)]
    assert {r["uri"] for r in rows(run, "select uri from task_inputs where kind = 'seen'")} == {
        str(path)
    }


def test_names_that_are_not_text(client: Client, runs: Path, tmp_path: Path) -> None:
    """A name that is not UTF-8 is recorded with the same escapes, both claimed and seen."""
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(path, "wb") as file:  # noqa: PTH123  bytes are no Path
        file.write(b"x")
    with dask_strata.record(runs, client=client) as run:
        for given in (path, os.fsdecode(path), Path(os.fsdecode(path))):
            assert client.submit(read_bytes, given).result() == b"x"
    found = rows(run, "select distinct kind, uri from task_inputs")
    assert {row["kind"] for row in found} == {"claimed", "seen"}
    assert {row["uri"] for row in found} == {str(tmp_path) + r"/caf\udce9.txt"}


def test_credentials_are_redacted(client: Client, runs: Path) -> None:
    """No file in the run's folder contains passwords, keys or signatures of URLs."""
    secret = "hunter2hunter2"
    urls = [
        f"s3://key:{secret}@bucket/data.parquet",
        f"https://host/data.csv?X-Amz-Signature={secret}&part=1",
        f"root://me:{secret}@host//store/x.root",
        f"/data/token={secret}/x.csv",
    ]
    with dask_strata.record(runs, client=client) as run:
        client.gather(client.map(nothing, urls, key=[f"read-{i}" for i in range(4)]))
    assert claims(run) == [
        "/data/token=(redacted)",
        "https://host/data.csv?X-Amz-Signature=(redacted)&part=1",
        "root://***@host//store/x.root",
        "s3://***@bucket/data.parquet",
    ]
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def truncated(folder: Path, kind: str) -> tuple[Path, Callable[[Path], Any]]:
    """Write a file; return it with a function that reads it."""
    path = folder / f"data.{kind}"
    frame = pd.DataFrame({"a": range(1000), "b": "x"})
    if kind == "parquet":
        frame.to_parquet(path)
        return path, dd.read_parquet
    if kind == "csv":
        frame.to_csv(path, index=False)
        return path, lambda p: dd.read_csv(p, dtype={"a": "int64"}).a.sum()
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(100_000)

    return path, lambda p: dask.delayed(read_hdf5)(str(p))


def read_hdf5(path: str) -> Any:
    """Read a dataset."""
    import h5py

    with h5py.File(path) as file:
        return file["x"][:]


@pytest.mark.parametrize("damage", ["truncated", "vanished"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "h5"])
def test_damaged_files(client: Client, runs: Path, tmp_path: Path, kind: str, damage: str) -> None:
    """The task fails as without a recording; the run has its file and its exception."""
    path, read = truncated(tmp_path, kind)
    lazy = read(path)
    if damage == "vanished":
        path.unlink()
    elif kind == "csv":
        path.write_bytes(b"a,b\n1,x\n" + b'"not,a\n' * 50)
    else:
        os.truncate(path, path.stat().st_size // 2)
    plain = client.compute(lazy).exception()
    assert plain is not None
    run, error = failure(client, runs, lambda: lazy)
    assert type(error) is type(plain)
    assert str(error) == str(plain)
    failed = rows(
        run,
        "select i.uri, t.exception from tasks t join claimed_inputs i using (key, key_type) "
        "where t.exception is not null",  # not the one from before the recording
    )
    assert {row["uri"] for row in failed} == {str(path)}
    assert all(type(plain).__name__ in row["exception"] for row in failed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(client: Client, runs: Path, tmp_path: Path) -> None:
    """A file without read permission is claimed like any other."""
    path = tmp_path / "locked.txt"
    path.write_text("x")
    path.chmod(0)
    run, error = failure(client, runs, lambda: client.submit(read_bytes, path))
    assert isinstance(error, PermissionError)
    assert claims(run) == [str(path)]


def test_a_folder_instead_of_a_file(client: Client, runs: Path, tmp_path: Path) -> None:
    """A folder is claimed like a file, and the attempt has the exception."""
    run, error = failure(client, runs, lambda: client.submit(read_bytes, tmp_path))
    assert isinstance(error, IsADirectoryError)
    assert claims(run) == [str(tmp_path)]
    assert "IsADirectoryError" in rows(run, "select exception from attempts")[0]["exception"]


class Frames:
    """A range of frames of a file, as an object of an unknown library."""

    def __init__(self, path: str, first: int, last: int) -> None:
        self.path, self.first, self.last = path, first, last

    def __len__(self) -> int:
        raise AssertionError("the recorder must not call len()")

    def __repr__(self) -> str:
        raise AssertionError("the recorder must not call repr()")


@pytest.fixture
def _registry() -> Iterator[None]:
    before = dict(extractors._registered)
    yield
    extractors._registered.clear()
    extractors._registered.update(before)


@pytest.mark.usefixtures("_registry")
def test_registered_extractors(client: Client, runs: Path) -> None:
    """A user's extractors get calls of functions, and objects."""

    def of_call(call: Call) -> Iterable[dict[str, Any]]:
        yield {"uri": call.args[0], "dataset": call.kwargs["name"], "columns": ["u", "v"]}

    def of_object(frames: Frames) -> Iterable[dict[str, Any]]:
        return [{"uri": frames.path, "first": frames.first, "last": frames.last, "unit": "frames"}]

    register(f"{__name__}.read_named", of_call)
    register(f"{__name__}.Frames", of_object)
    with dask_strata.record(runs, client=client) as run:
        client.submit(read_named, "plain", name="run 7").result()
        client.submit(nothing, [Frames("/data/f", 2, 4)], key="of-object").result()
    found = rows(run, "select uri, dataset, columns, first, last, unit from claimed_inputs")
    assert [tuple(row.values()) for row in found] == [
        (os.path.abspath("plain"), "run 7", '["u", "v"]', None, None, None),
        ("/data/f", None, None, 2, 4, "frames"),
    ]
    assert not rows(run, "select * from losses")


def read_named(path: str, *, name: str) -> str:
    """Return the path and the name."""
    return path + name


@pytest.mark.usefixtures("_registry")
def test_extractors_that_fail(client: Client, runs: Path) -> None:
    """Failures are counted by extractor and change neither tasks nor other inputs."""

    def fails(call: Call) -> Iterable[dict[str, Any]]:
        yield {"uri": "/data/first"}
        raise SystemExit("password=hunter2")

    def nonsense(_: Any) -> Any:
        return [{"uri": 7}, {"uri": "/x", "size": 3}, None]

    register(f"{__name__}.read_named", fails)
    register(f"{__name__}.Frames", nonsense)
    with dask_strata.record(runs, client=client) as run:
        made = [client.submit(read_named, str(i), name="n", key=f"k{i}") for i in range(3)]
        assert client.gather(made) == ["0n", "1n", "2n"]
        client.submit(nothing, Frames("/data/f", 2, 4), "/data/other.txt").result()
    assert claims(run) == ["/data/first", "/data/other.txt"]
    losses = rows(run, "select sum(count)::int as n, reason from losses group by reason")
    by_reason = {row["reason"]: row["n"] for row in losses}
    assert len(by_reason) == 2
    assert sum(by_reason.values()) == 4
    assert any("read_named: SystemExit" in reason for reason in by_reason)
    assert not any("hunter2" in reason for reason in by_reason)
    assert not run.check().ok


@pytest.mark.long
def test_an_entry_point(strata: Callable[..., Any], tmp_path: Path, script: Any) -> None:
    """The extractor of an installed package is imported when a task first calls its function."""
    site = tmp_path / "site"
    info = site / "mylab-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dask_strata.extractors]\nmylab.read = mylab_strata:read\nmylab.other = gone:gone\n"
    )
    (site / "mylab.py").write_text("def read(n): return n\ndef other(n): return n\n")
    (site / "mylab_strata.py").write_text(
        "def read(call):\n    yield {'uri': f'/lab/{call.args[0]}', 'unit': 'runs'}\n"
    )
    path = script(
        """
        from distributed import Client
        import mylab
        if __name__ == "__main__":
            with Client(processes=False, n_workers=1, dashboard_address=None) as client:
                client.submit(mylab.read, 7).result()
                client.submit(mylab.other, 7).result()
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    strata("record", "-o", "runs", path, check=True, env=environment)
    (run,) = runs_in(tmp_path / "runs")
    assert claims(run) == ["/lab/7"]
    (loss,) = rows(run, "select reason from losses")
    assert loss["reason"].startswith("the extractor for mylab.other: ModuleNotFoundError")


def test_the_walk_imports_no_library() -> None:
    """Searching definitions imports no library that the user has not imported."""
    code = (
        "import sys, dask_strata.recorder.inputs.source\n"
        "found = {'zarr', 'h5py', 'xarray', 'uproot', 'coffea', 'awkward', 'dask_image'}\n"
        "print(*found & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()

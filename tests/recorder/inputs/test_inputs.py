"""Inputs that definitions name and files that tasks open, with real libraries and files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from tests.conftest import assert_whole, rows


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of one worker process with two threads."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        yield made


@pytest.fixture
def recorded(client: Client, runs: Path) -> Callable[..., Run]:
    """Return a function that computes collections during a recording and returns the run."""

    def record(*collections: Any) -> Run:
        with dask_strata.record(runs, client=client) as run:
            client.compute(collections, sync=True)
        return run

    return record


@contextmanager
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change the working folder for the block."""
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        yield


def claimed(run: Run, columns: str = "uri, first, last, unit") -> set[tuple[Any, ...]]:
    """Return the distinct claimed inputs; assert that nothing was lost."""
    assert not rows(run, "select * from losses")
    found = rows(run, f"select distinct {columns} from claimed_inputs")
    return {tuple(row.values()) for row in found}


def seen(run: Run, mode: str = "read") -> set[str]:
    """Return the files that tasks opened in Python."""
    found = rows(run, f"select uri from task_inputs where kind = 'seen' and mode = '{mode}'")
    return {row["uri"] for row in found}


def table(folder: Path, n: int = 40) -> Path:
    """Write a Parquet dataset of two files, and return its folder."""
    path = folder / "table.parquet"
    frame = pd.DataFrame({"a": range(n), "b": 0.5, "c": "x"})
    path.mkdir()
    frame[: n // 2].to_parquet(path / "part.0.parquet", row_group_size=10)
    frame[n // 2 :].to_parquet(path / "part.1.parquet", row_group_size=10)
    return path


def test_parquet_through_fsspec(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Files, row groups and columns that read_parquet reads are claimed."""
    path = table(tmp_path)
    files = {str(path / f"part.{i}.parquet") for i in (0, 1)}
    run = recorded(dd.read_parquet(path)[["a", "b"]].sum())
    assert {(uri, json.loads(c)[0]) for uri, c in claimed(run, "uri, columns")} == {
        (file, "a") for file in files
    }
    assert files <= seen(run)
    run = recorded(dd.read_parquet(path, split_row_groups=1, columns=["a", "b", "c"]).count())
    assert claimed(run) == {(file, i, i + 1, "row groups") for file in files for i in (0, 1)}
    assert_whole(run)


def test_parquet_through_arrow(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Files and columns that read_parquet reads through Arrow are claimed."""
    path = table(tmp_path)
    run = recorded(dd.read_parquet(path, filesystem="pyarrow")[["b"]].sum())
    files = {str(path / f"part.{i}.parquet") for i in (0, 1)}
    found = claimed(run, "uri, columns")
    assert {uri for uri, _ in found} == files
    columns = [json.loads(columns) for _, columns in found if columns]
    assert columns
    assert all("b" in names for names in columns)
    assert not seen(run) & files, "Arrow opens files in C++, unseen"


def test_csv(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """The blocks of bytes and the columns that read_csv reads are claimed."""
    path = tmp_path / "table.csv"
    pd.DataFrame({"a": range(100), "b": 0.5}).to_csv(path, index=False)
    size = path.stat().st_size
    run = recorded(dd.read_csv(path, blocksize=200).a.sum())
    found = claimed(run, "uri, first, last, unit, nbytes")
    assert {(uri, unit) for uri, _, _, unit, _ in found} == {(str(path), "bytes")}
    assert sum(last - first for _, first, last, *_ in found) == sum(f[-1] for f in found)
    starts, ends = sorted(f[1] for f in found), sorted(f[2] for f in found)
    assert starts[0] == 0
    assert starts[1:] == ends[:-1]
    assert ends[-1] >= size
    assert claimed(run, "columns::json->>0") == {("a",)}
    assert seen(run) == {str(path)}


def test_bag_of_text(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Files, several files per partition, and blocks that read_text reads are claimed."""
    paths = [tmp_path / f"{i}.txt" for i in (0, 1)]
    for path in paths:
        path.write_text("12345678\n" * 10)
    names = [str(path) for path in paths]
    whole = {(name, None, None, None) for name in names}
    run = recorded(db.read_text(names).count())
    assert claimed(run) == whole
    assert seen(run) == set(names)
    assert claimed(recorded(db.read_text(names, files_per_partition=2).map(len))) == whole
    run = recorded(db.read_text(names, blocksize=45).count())
    assert claimed(run) == {
        (name, first, first + 45, "bytes") for name in names for first in (0, 45)
    }


def test_zarr(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Store, array and ranges that tasks read from zarr are claimed; arrays to write are not."""
    zarr = pytest.importorskip("zarr")
    store = tmp_path / "store.zarr"
    group = zarr.open_group(str(store), mode="w")
    group["inner/x"] = np.arange(40.0).reshape(8, 5)
    array = da.from_zarr(str(store), component="inner/x", chunks=(4, 5))
    run = recorded((array + 1).sum())
    assert claimed(run, "uri, dataset, first, last, unit, selection::json::text") == {
        (str(store), "inner/x", 0, 4, "axis 0", "[[0, 4], [0, 5]]"),
        (str(store), "inner/x", 4, 8, "axis 0", "[[4, 8], [0, 5]]"),
    }
    assert any(uri.startswith(str(store / "inner/x")) for uri in seen(run))
    run = recorded(da.ones((4, 4), chunks=2).to_zarr(str(tmp_path / "new.zarr"), compute=False))
    assert not claimed(run)


def test_hdf5(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """File, dataset and ranges that tasks read with h5py are claimed."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["group/x"] = np.arange(40.0).reshape(8, 5)
    with h5py.File(path) as file:
        run = recorded(da.from_array(file["group/x"], chunks=(4, 5)).sum())
        assert claimed(run, "uri, dataset, first, last") == {
            (str(path), "group/x", 0, 4),
            (str(path), "group/x", 4, 8),
        }


@pytest.mark.parametrize("engine", ["h5netcdf", "zarr"])
def test_xarray(recorded: Callable[..., Run], tmp_path: Path, engine: str) -> None:
    """Files, variables and ranges that open_mfdataset reads are claimed, also after isel."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip(engine)
    names = [str(tmp_path / f"{i}.data") for i in (0, 1)]
    for name in names:
        data = xr.Dataset({"t": (("time", "x"), np.ones((4, 6)))})
        data.to_zarr(name) if engine == "zarr" else data.to_netcdf(name, engine=engine)
    both = {"combine": "nested", "concat_dim": "time", "engine": engine}
    opened = xr.open_mfdataset(names, chunks={"time": 2}, **both)
    run = recorded(opened.t.data.sum())
    assert claimed(run, "uri, dataset, first, last") == {
        (name, "t", first, first + 2) for name in names for first in (0, 2)
    }
    part = xr.open_dataset(names[0], engine=engine, chunks=None).isel(time=slice(1, 4))
    run = recorded(part.chunk({"time": 3}).t.data.sum())
    assert claimed(run, "uri, dataset, first, last") == {(names[0], "t", 1, 4)}
    opened.close()


def test_numpy_and_images(
    recorded: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of NumPy and images are claimed, relative paths as absolute ones."""
    import imageio.v3 as iio
    from dask.array.image import imread
    from dask_image.imread import imread as dask_imread

    np.save(tmp_path / "a.npy", np.ones(4))
    for i in (0, 1):
        iio.imwrite(tmp_path / f"{i}.png", np.full((4, 4), i, "uint8"))
    images = {str(tmp_path / f"{i}.png") for i in (0, 1)}
    run = recorded(dask.delayed(np.load)(str(tmp_path / "a.npy")))
    assert claimed(run, "uri") == {(str(tmp_path / "a.npy"),)}
    assert seen(run) == {str(tmp_path / "a.npy")}
    with inside(tmp_path, monkeypatch):
        run = recorded(dask.delayed(len)(["a.npy", "b.txt", "numpy.float64", "mean", 1.5]))
        assert claimed(run, "uri") == {(str(tmp_path / n),) for n in ("a.npy", "b.txt")}
    for read in (lambda p: imread(p, imread=iio.imread), dask_imread):
        run = recorded(read(str(tmp_path / "*.png")) + 1)
        assert claimed(run, "uri") == {(image,) for image in images}
        assert seen(run) == images


def test_frames_of_one_file(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """The ranges of frames that tasks read from one file are claimed."""
    import tifffile
    from dask_image.imread import imread

    path = tmp_path / "frames.tif"
    tifffile.imwrite(path, np.zeros((4, 8, 8), "uint8"), photometric="minisblack")
    run = recorded(imread(str(path), nframes=2).sum())
    assert claimed(run) == {(str(path), 0, 2, "frames"), (str(path), 2, 4, "frames")}


def root_file(path: Path, n: int = 100) -> None:
    """Write a ROOT file with one tree."""
    uproot = pytest.importorskip("uproot")
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": "f8", "y": "i4"})
        file["Events"].extend({"x": np.arange(n, dtype="f8"), "y": np.arange(n, dtype="i4")})


@pytest.mark.parametrize("opened", ["before", "by the task"])
def test_uproot(recorded: Callable[..., Run], tmp_path: Path, opened: str) -> None:
    """File, tree, entries and branches that uproot.dask reads are claimed."""
    path = tmp_path / "events.root"
    root_file(path)
    uproot = pytest.importorskip("uproot")
    open_files = opened == "before"
    how: dict[str, Any] = {"step_size": 50} if open_files else {"steps_per_file": 2}
    arrays = uproot.dask({str(path): "Events"}, library="np", open_files=open_files, **how)
    run = recorded(arrays["x"].sum())
    steps = [(0, 50, "entries"), (50, 100, "entries")]
    if not open_files:
        steps = [(0, 1, "steps"), (1, 2, "steps")]
    assert claimed(run, "uri, tree, first, last, unit, columns") == {
        (str(path), "Events", *step, '["x"]') for step in steps
    }


def test_dask_awkward(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Reads that dask-awkward has fused into other tasks are claimed."""
    pytest.importorskip("dask_awkward")
    uproot = pytest.importorskip("uproot")
    path = tmp_path / "events.root"
    root_file(path)
    files = {str(path): {"object_path": "Events", "steps": [[0, 50], [50, 100]]}}
    for open_files in (True, False):
        run = recorded(uproot.dask(files, open_files=open_files).x + 1)
        assert claimed(run, "uri, tree, first, last, unit, columns") == {
            (str(path), "Events", first, first + 50, "entries", '["x"]') for first in (0, 50)
        }


def first_line(path: Any) -> str:
    """Read the first line of a file."""
    with Path(path).open() as file:
        return file.readline()


def save_line(line: str, path: Any) -> str:
    """Write a line to a file."""
    Path(path).write_text(line)
    return str(path)


def test_paths_of_delayed_functions(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """Paths as text, objects, keyword arguments and in containers are claimed; outputs are not."""
    path = tmp_path / "a b.txt"
    path.write_text("one\ntwo\n")
    read = dask.delayed(first_line)
    for task in (read(str(path)), read(path), read(path=path), read(dask.delayed(str)(path))):
        run = recorded(task)
        assert claimed(run, "uri") == {(str(path),)}
        assert seen(run) == {str(path)}
    assert claimed(recorded(dask.delayed(len)({"a": [str(path)]})), "uri") == {(str(path),)}
    copy = tmp_path / "copy.txt"
    run = recorded(dask.delayed(save_line)("x", str(copy)))
    assert not claimed(run)
    assert seen(run, "write") == {str(copy)}


def transform(source: Path, target: Path, log: Path, folder: Path) -> int:
    """Read one file, write another, write and read a third, and write into a folder."""
    text = source.read_text()
    target.write_text(text.upper())
    log.write_text("done")
    (folder / "part.txt").write_text(log.read_text())
    return len(text)


def test_a_path_that_a_task_only_writes_is_an_output(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """The record of opens decides, whatever the function's name is."""
    source, target, log, folder = (tmp_path / name for name in ("in", "out", "log", "parts"))
    source.write_text("one\n")
    folder.mkdir()
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(transform, source, target, log, folder, key="transformed")
        assert task.result() == 4
    assert claimed(run, "uri") == {(str(path),) for path in (source, target, log, folder)}
    found = rows(run, "select uri, mode from task_inputs where kind = 'claimed'")
    assert {row["uri"]: row["mode"] for row in found} == {
        str(source): "read",
        str(log): "read",
        str(target): "write",
        str(folder): "write",
    }
    assert {i.uri for i in run.lineage("transformed").claimed} == {str(source), str(log)}
    assert run.dependents_of(target).readers == ()
    assert run.dependents_of(folder).tasks == ()
    assert str(target) in run.dependents_of(source).written


def test_a_path_in_a_closure_is_only_seen(recorded: Callable[..., Run], tmp_path: Path) -> None:
    """A file that no definition names is recorded when the task opens it."""
    path = tmp_path / "hidden.txt"
    path.write_text("one\n")
    hidden = str(path)
    run = recorded(dask.delayed(lambda: first_line(hidden))())
    assert not claimed(run)
    assert seen(run) == {hidden}


def test_lineage(client: Client, runs: Path, tmp_path: Path) -> None:
    """A result leads to the files it was computed from, and a file to the results and outputs."""
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for path in paths:
        path.write_text(f"{path.name}\n")
    with dask_strata.record(runs, client=client) as run:
        lines = [client.submit(first_line, p, key=("line", i)) for i, p in enumerate(paths)]
        both = client.submit(max, lines[:2], key="both")
        client.submit(save_line, both, tmp_path / "out.txt", key="saved").result()
        client.submit(len, lines[2], key="alone").result()
    found = run.lineage("saved")
    assert found.tasks[:2] == (("saved", "str"), ("both", "str"))
    assert set(found.tasks[2:]) == {("('line', 0)", "tuple"), ("('line', 1)", "tuple")}
    assert set(found.files) == {str(p) for p in paths[:2]}
    assert {i.uri for i in found.claimed} == {i.uri for i in found.seen} == set(found.files)
    assert run.lineage(("line", 2)).files == (str(paths[2]),)
    after = run.dependents_of(paths[0])
    assert after.readers == (("('line', 0)", "tuple"),)
    assert [key for key, _ in after.tasks] == ["('line', 0)", "both", "saved"]
    assert {key for key, _ in after.outputs} == {"('line', 0)", "both", "saved"}
    assert after.written == (str(tmp_path / "out.txt"),)
    assert {key for key, _ in run.dependents_of(tmp_path).tasks} >= {"alone", "saved"}
    assert run.dependents_of(tmp_path / "none").tasks == ()


def test_results_are_the_same_bytes(client: Client, runs: Path, tmp_path: Path) -> None:
    """Results and definitions are byte for byte the same with and without recorded inputs."""
    path = table(tmp_path)
    task = dask.delayed(first_line)(Path(__file__))

    def everything() -> bytes:
        frame = dd.read_parquet(path).groupby("c").a.sum()
        image = da.from_array(np.arange(64).reshape(8, 8), chunks=4).T
        found = client.compute([frame, image, task], sync=True)
        return pickle.dumps(found), pickle.dumps(dict(task.dask))

    before = everything()
    with dask_strata.record(runs, client=client):
        assert everything() == before
    assert everything() == before


def test_inputs_can_be_switched_off(client: Client, runs: Path, tmp_path: Path) -> None:
    """With ``inputs=False`` the run has no inputs."""
    with dask_strata.record(runs, client=client, inputs=False) as run:
        client.submit(first_line, Path(__file__)).result()
    assert not rows(run, "select * from task_inputs")

"""The effective configuration with the source of each value, and installed packages."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import dask
import dask.config
import distributed
import pytest

from dask_strata.recorder.environment.dask_config import (
    effective_settings,
    installed_packages,
    interpreted,
)
from dask_strata.recorder.pipeline.redact import REDACTED


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


def by_name(config=None, environ=None):
    return {row.name: row for row in effective_settings(config, environ or {})}


def test_every_setting_is_there_once_as_json():
    """Each leaf of Dask's configuration is one row with valid JSON, sorted by name."""
    assert distributed.__version__
    rows = effective_settings()
    names = [row.name for row in rows]
    assert names == sorted(set(names))
    assert len(names) > 150
    value = next(row.value for row in rows if row.name == "distributed.worker.memory.target")
    assert json.loads(value) == dask.config.get("distributed.worker.memory.target")
    assert all(json.loads(row.value) is not Ellipsis for row in rows)


def test_configuration_is_not_changed():
    """Reading changes neither the configuration nor the defaults."""
    before = copy.deepcopy((dask.config.config, dask.config.defaults))
    effective_settings(environ={"DASK_ARRAY__SVG__SIZE": "1", "DASK_NEW__THING": "2"})
    assert (dask.config.config, dask.config.defaults) == before


@pytest.fixture
def busy_threads():
    """Let threads take turns, and collect garbage, as often as possible."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


def test_threads_that_parse_at_the_same_time(busy_threads):
    """A variable is read while another thread parses code, where Python itself may fail."""
    text = "[1, [2, [3, [4, [5]]]]]"
    ended = threading.Event()

    class Garbage:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            for _ in range(3):
                pass

    def parse():
        while not ended.is_set():
            Garbage()
            with contextlib.suppress(SystemError):
                ast.parse(text)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(parse)
        try:
            for _ in range(2_000):
                Garbage()
                assert interpreted(text) == [1, [2, [3, [4, [5]]]]]
        finally:
            ended.set()


def test_default_and_run_time():
    """A value is a default until the program sets another."""
    assert by_name()["array.svg.size"].source == "default"
    with dask.config.set({"array.svg.size": 77}):
        assert by_name()["array.svg.size"] == ("array.svg.size", "77", "set at run time")


def test_environment_variable(monkeypatch):
    """The source of a value is the variable that sets it, with - or _ in the setting's name."""
    environ = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9",
        "DASK_ARRAY__SVG": "{'size': 5}",
    }
    config = dask.config.collect([], env=environ)
    found = by_name(config, environ)
    name = "distributed.scheduler.allowed-failures"
    assert found[name] == (name, "9", "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES")
    assert found["array.svg.size"] == ("array.svg.size", "5", "DASK_ARRAY__SVG")


def test_files(tmp_path, monkeypatch):
    """The source of a value is its file; of two files, the one that Dask reads later."""
    first, second = tmp_path / "a", tmp_path / "b.yaml"
    first.mkdir()
    (first / "one.yaml").write_text("array: {svg: {size: 1}, chunk_size: 1MiB}\n")
    (first / "two.yml").write_text("array: {svg: {size: 2}}\n")
    (first / "notes.txt").write_text("array: {chunk_size: 9MiB}\n")
    second.write_text("array: {svg: {size: 3}}\nown: {deep: {list: [1, x]}}\n")
    monkeypatch.setattr(dask.config, "paths", [str(first), str(second), str(tmp_path / "none")])
    config = dask.config.collect(dask.config.paths, env={})
    found = by_name(config)
    assert found["array.svg.size"] == ("array.svg.size", "3", str(second))
    assert found["array.chunk-size"].value == '"1MiB"'
    assert found["array.chunk-size"].source == str(first / "one.yaml")
    assert found["own.deep.list"] == ("own.deep.list", '[1, "x"]', str(second))
    dask.config.set({"array.svg.size": 2}, config=config)
    assert by_name(config)["array.svg.size"].source == str(first / "two.yml")


def test_old_name_in_a_file(tmp_path, monkeypatch):
    """The source of a renamed setting is the file that sets it by its old name."""
    path = tmp_path / "old.yaml"
    path.write_text("fuse_ave_width: 12\n")
    monkeypatch.setattr(dask.config, "paths", [str(path)])
    found = by_name({"optimization": {"fuse": {"ave-width": 12}}})
    assert found["optimization.fuse.ave-width"].source == str(path)


def test_broken_file(tmp_path, monkeypatch):
    """A file that cannot be parsed is an error row, and all other rows are there."""
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1\n")
    monkeypatch.setattr(dask.config, "paths", [str(path)])
    rows = effective_settings(environ={})
    assert [row.source for row in rows if row.name == "error.config"] == [str(path)]
    assert len(rows) > 100


def test_inherited():
    """The source of a parent's value is ``inherited``; a damaged variable is an error row."""
    config = {"own": {"size": 4}}
    environ = {"DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(config)}
    assert by_name(config, environ)["own.size"].source == "inherited"
    broken = by_name(config, {"DASK_INTERNAL_INHERIT_CONFIG": "%%"})
    assert broken["error.config"].source == "DASK_INTERNAL_INHERIT_CONFIG"
    assert broken["own.size"].source == "set at run time"


def test_passed_on_configuration_is_not_copied():
    """The variable that carries a whole configuration, secrets included, is not a value."""
    blob = dask.config.serialize({"db": {"password": "hunter2"}})
    environ = {"DASK_INTERNAL_INHERIT_CONFIG": blob}
    rows = effective_settings(dask.config.collect([], env=environ), environ)
    assert len(rows) == 2
    assert not any(blob in row.value or "hunter2" in row.value for row in rows)


def test_secrets():
    """Secrets are redacted by their own name or an outer one, in lists and in texts."""
    config = {
        "db": {"password": "hunter2", "url": "postgres://me:hunter2@host/db"},
        "auth": {"user": "hunter2"},
        "distributed": {"nanny": {"environ": {"HF_TOKEN": "hunter2", "OMP_NUM_THREADS": 1}}},
        "list": [{"api-key": "hunter2", "n": 1}, "--token=hunter2"],
        "token": None,
    }
    found = by_name(config)
    assert not any("hunter2" in row.value for row in found.values())
    assert json.loads(found["db.password"].value) == REDACTED
    assert json.loads(found["db.url"].value) == "postgres://***@host/db"
    assert json.loads(found["list"].value) == [{"api-key": REDACTED, "n": 1}, f"--token={REDACTED}"]
    assert found["distributed.nanny.environ.OMP_NUM_THREADS"].value == "1"
    assert found["token"].value == "null"


def test_odd_values():
    """A broken repr, NaN, keys of other types, lone surrogates and cycles still make JSON."""
    circle: dict = {}
    circle["self"] = circle
    config = {
        "broken": Broken(), "nan": float("nan"), "keys": [{(1, 2): {3}}], "text": "\ud800",
        "circle": circle, "type": int, 7: {"seven": b"x"}, "empty": {}, "bytes": [b"1"],
    }  # fmt: skip
    found = by_name(config)
    assert "RuntimeError" in json.loads(found["broken"].value)
    assert json.loads(found["empty"].value) == {}
    assert json.loads(found["7.seven"].value) == "b'x'"
    assert any(name.startswith("circle.self.self") for name in found)
    for row in found.values():
        json.loads(row.value)
        assert "".join(row).encode("utf-8")


def test_installed_packages():
    """Names are normal and unique, and versions are those of the import system."""
    found = dict(installed_packages())
    assert len(found) == len(installed_packages())
    assert found["dask"] == dask.__version__
    assert found["distributed"] == metadata.version("distributed")
    assert all(name == name.lower() and "_" not in name for name in found)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"Version: 1\n"])
def test_broken_package(tmp_path, monkeypatch, content):
    """A distribution whose metadata is missing or broken is listed by its folder's name."""
    folder = tmp_path / "Odd_Thing-1.0.dist-info"
    folder.mkdir()
    if content is not None:
        (folder / "METADATA").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "odd-thing" in dict(installed_packages())
    assert "dask" in dict(installed_packages())


def test_shadowed_package(tmp_path, monkeypatch):
    """Of two distributions with one name, the first one on the import path counts."""
    for parent, version in (("first", "2"), ("second", "1")):
        folder = tmp_path / parent / f"Odd.Thing-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: Odd.Thing\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert dict(installed_packages())["odd-thing"] == "2"

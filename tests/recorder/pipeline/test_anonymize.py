"""Left-out facts and their replacements."""

from __future__ import annotations

import getpass
import re
import socket
from typing import Any

import pytest

from dask_strata.config import LEAVE_OUT, read_settings
from dask_strata.errors import SettingError
from dask_strata.recorder.pipeline.anonymize import encoder_for, left_out, with_secret
from dask_strata.schema import LEFT_OUT, RECORDED, TABLES
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch, Encoder
from dask_strata.store.segments.replacing import Replacing

HOST = socket.gethostname()
USER = getpass.getuser()


def replacing(*classes: str) -> Replacing:
    """Return a replacement that leaves out these classes of facts."""
    return Replacing(with_secret(read_settings({}, leave_out=classes)))


@pytest.mark.parametrize(
    ("left_out_class", "text", "gone", "shape"),
    [
        ("hosts", "tcp://10.0.0.5:8786", "10.0.0.5", r"tcp://host-X:8786"),
        ("hosts", "tls://[fe80::1]:12 is gone", "fe80::1", r"tls://host-X:12 is gone"),
        (
            "hosts",
            "no route to 192.168.1.20 from here",
            "192.168.1.20",
            r"no route to host-X from here",
        ),
        ("hosts", f"worker on {HOST}, slow", HOST, r"worker on host-X, slow"),
        ("hosts", "root://eos.example//store/x.root", "eos", r"root://host-X//store/x.root"),
        ("hosts", "Client-ea64c8ad-e615-11f1-9580-02fc0000abcd", "02fc0000abcd", r"Client-\S+-X"),
        ("paths", "cannot read /data/a b.txt", "/data", r"cannot read path-X b.txt"),
        ("paths", "s3://bucket/key.parquet, 3 rows", "bucket", r"path-X, 3 rows"),
        ("paths", "\0tuple\0('read-/home/me/x', 0)", "home", "\0tuple\0\\('read-path-X', 0\\)"),
        ("paths", "~/x.txt and C:\\data\\y.txt", "data", r"path-X and path-X"),
        ("users", f"of {USER}@here", USER, r"of user-X@here"),
        ("users", f"/home/{USER}/x.txt", f"/{USER}/", r"/home/user-X/x.txt"),
    ],
)
def test_texts(left_out_class: str, text: str, gone: str, shape: str) -> None:
    """Names within a text are replaced, and the rest of the text stays."""
    found = replacing(left_out_class).text(text)
    assert gone not in found
    assert re.fullmatch(shape.replace("X", "[0-9a-f]{12}"), found), found


@pytest.mark.parametrize(
    "text",
    ["load-data/x.csv", "n/a", "1/2", "remove-worker-12.5", "2025.3.1", "other-host.example"],
)
def test_texts_that_stay(text: str) -> None:
    """Texts that resemble names, relative paths and other hosts are not replaced."""
    assert replacing("hosts", "paths").text(text) == text


def test_names_are_the_same_within_a_run_only() -> None:
    """A host, path or user has the same replacement in all processes of a run, not in others."""
    settings = with_secret(read_settings({}, leave_out="hosts,paths"))
    assert with_secret(settings) == settings
    text = "tcp://10.0.0.5:1 /data/x"
    assert Replacing(settings).text(text) == Replacing(settings).text(text)
    assert replacing("hosts", "paths").text(text) != Replacing(settings).text(text)
    batch = Batch("file_opens", 1, {"uri": ["/data/x"]})
    (uri,) = Replacing(settings).batch(batch).columns["uri"]
    assert Replacing(settings).text("/data/x") == uri


@pytest.mark.parametrize("left_out_class", ["errors", "hosts", "paths", "users"])
def test_columns_that_are_dropped(left_out_class: str) -> None:
    """Exceptions and tracebacks are replaced as a whole; null stays null."""
    columns: dict[str, Any] = {
        "exception": Sparse([1], ["ValueError('/data/x')"]),
        "traceback": [None, "File '/data/x'", None],
        "worker": "tcp://10.0.0.5:1",
    }
    found = replacing(left_out_class).batch(Batch("scheduler_transitions", 3, columns))
    assert (found.table, found.n) == ("scheduler_transitions", 3)
    assert found.columns["exception"] == Sparse([1], [LEFT_OUT])
    assert found.columns["traceback"] == [None, LEFT_OUT, None]
    assert (found.columns["worker"] == "tcp://10.0.0.5:1") == (left_out_class != "hosts")


FACTS = {
    "cpu.logical-cores": ("8", "os"),
    "process.command-line": ("python /home/me/x.py", "/proc/self/cmdline"),
    "environment.OMP_NUM_THREADS": ("4", "OMP_NUM_THREADS"),
    "job.id": ("123", "SLURM_JOB_ID"),
    "job.script": ("#!/bin/sh", "/var/spool/script"),
    "host.name": ("node7", "os"),
}


@pytest.mark.parametrize(
    ("left_out_class", "stay"),
    [
        ("code", set(FACTS) - {"job.script"}),
        ("arguments", set(FACTS) - {"process.command-line"}),
        ("environment", set(FACTS) - {"environment.OMP_NUM_THREADS", "job.id"}),
        ("hosts", {"cpu.logical-cores"}),
        ("paths", {"cpu.logical-cores"}),
        ("users", {"cpu.logical-cores"}),
    ],
)
def test_facts_of_the_job(left_out_class: str, stay: set[str]) -> None:
    """The name of a fact decides whether it stays; unknown names do not."""
    columns = {
        "name": list(FACTS),
        "value": [value for value, _ in FACTS.values()],
        "source": [source for _, source in FACTS.values()],
    }
    found = replacing(left_out_class).batch(Batch("job", len(FACTS), columns)).columns
    values = dict(zip(found["name"], found["value"], strict=True))
    assert {name for name, value in values.items() if value != LEFT_OUT} == stay
    assert all(values[name] == FACTS[name][0] for name in stay)


def test_settings_that_stay() -> None:
    """Of a configuration, numbers and booleans stay, texts do not."""
    columns = {
        "name": ["a", "b", "c", "d"],
        "value": ["1.5", "true", '"/scratch"', '["tcp://10.0.0.5:1"]'],
        "source": ["default", "/etc/dask/x.yaml", "DASK_C", "set at run time"],
    }
    found = replacing("paths").batch(Batch("config", 4, columns)).columns
    assert found["value"] == ["1.5", "true", f'"{LEFT_OUT}"', f'"{LEFT_OUT}"']
    assert found["source"] == ["default", LEFT_OUT, "DASK_C", "set at run time"]


def test_a_setting_that_is_unknown_is_refused() -> None:
    """An unknown class of facts, as a typo, is an error; all known ones are accepted."""
    assert set(read_settings({}, leave_out=",".join(LEAVE_OUT)).leave_out) == set(LEAVE_OUT)
    with pytest.raises(SettingError, match="contains host; allowed are arguments, code"):
        read_settings({"leave-out": "host"})


def test_settings_are_equivalent() -> None:
    """`code: false` and `leave-out: code` imply each other."""
    assert read_settings({"code": False}).leave_out == ("code",)
    assert read_settings({"leave-out": "code,settings"}).code is False
    assert read_settings({"leave-out": ["settings"]}).settings is False
    assert left_out(read_settings({"inputs": False, "code": False})) == ("code", "inputs")


def test_darshan_is_refused() -> None:
    """Darshan's own logs contain paths, hosts and users, so both settings exclude each other."""
    with pytest.raises(SettingError, match="Darshan's own logs contain paths"):
        read_settings({"leave-out": "paths", "darshan": "auto"})


def test_without_left_out_facts_the_encoder_is_the_plain_one() -> None:
    """If nothing is left out, rows are encoded without a check of their values."""
    assert type(encoder_for(read_settings({}), "worker-1", {})) is Encoder


def test_each_text_column_has_a_rule() -> None:
    """With hosts, paths and users left out, all text columns are checked, except packages."""
    rules = replacing("hosts", "paths", "users")._rules
    unchecked = {
        (table.name, column.name)
        for table in RECORDED.values()
        for column in table.all_columns
        if column.kind in ("text", "long", "key", "intervals")
        and rules[table.name, column.name] is None
    }
    assert unchecked == {("packages", "name"), ("packages", "version")}
    assert TABLES["file_opens"].column("uri").sensitivity == "path"

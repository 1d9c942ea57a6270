"""Exports without some classes of facts: as if these had not been recorded."""

from __future__ import annotations

import logging
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_strata import Run, open_run, record
from dask_strata.export.unrecorded import without
from dask_strata.run.finalise import finalise
from dask_strata.schema import LEFT_OUT, TABLES
from tests.conftest import runs_in
from tests.support.planted_secrets import PATH, PLANTED, planted_run

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.long

HASH = re.compile(r"(?:host|path|user)-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with secrets in every column that may have some."""
    return planted_run(tmp_path_factory.mktemp("planted") / "run")


def texts_in(folder: Path) -> Iterator[str]:
    """Yield the bytes of all files in a folder, and the texts in its Parquet, as texts."""
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder))
        if path.is_file():
            yield path.read_bytes().decode("latin-1")
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            yield str(table.schema.to_string(truncate_metadata=False, show_field_metadata=True))
            yield from (repr(row) for row in table.to_pylist())


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the times and contents of all files in a folder."""
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in folder.rglob("*")
        if p.is_file()
    }


#: Facts that are not in a copy without a class: names may be in code, which is left out with them.
GONE = {
    ("hosts",): {"hosts", "code"},
    ("paths",): {"paths", "code"},
    ("code",): {"code"},
    ("code", "hosts", "paths"): set(PLANTED),
}


@pytest.mark.parametrize("classes", GONE)
def test_what_is_left_out_is_nowhere_in_the_copy(
    planted: Path, tmp_path: Path, classes: tuple[str, ...]
) -> None:
    """No file of the copy has a left-out fact, in any form; the run itself stays."""
    before = state(planted)
    with without(open_run(planted), classes) as copy:
        everything = "\n".join(texts_in(copy.path))
        assert {name for name, text in PLANTED.items() if text not in everything} == GONE[classes]
        assert "planted.py" in everything
        assert "2 threads" in everything
        assert "paths" not in classes or str(planted.parent) not in copy.location
        place = copy.path
    assert not place.exists()
    assert state(planted) == before


def test_of_a_finalised_run_too(planted: Path, tmp_path: Path) -> None:
    """The files of a finalised run are copied one by one, with the ids of keys."""
    path = Path(shutil.copytree(planted, tmp_path / "run"))
    finalise(path, keys_per_bucket=1)
    before = state(path)
    with without(open_run(path), list(PLANTED)) as copy:
        everything = "\n".join(texts_in(copy.path))
        assert not [text for text in PLANTED.values() if text in everything]
        (key,) = copy.tasks.to_arrow()["key"].to_pylist()
        assert re.fullmatch("read-path-[0-9a-f]{12}", key)
        assert copy.task(key).key == key
    assert state(path) == before


def test_rows_stay(planted: Path) -> None:
    """Only texts are replaced: numbers and times, and the numbers of rows, are the same."""
    run = open_run(planted)
    with without(run, tuple(PLANTED)) as copy:
        for name, table in TABLES.items():
            found, expected = copy[name].to_arrow(), run[name].to_arrow()
            added = {"job": 1, "script": -1}.get(name, 0)  # the statement, and the script's text
            assert len(found) == len(expected) + added, name
            if added:
                continue
            for column in table.all_columns:
                if column.kind not in ("text", "long", "key", "intervals"):
                    assert found[column.name].equals(expected[column.name]), (name, column.name)
                else:
                    is_code = column.sensitivity == "code" and name != "stuck"
                    nulls = len(found) if is_code else expected[column.name].null_count
                    assert found[column.name].null_count == nulls, (name, column.name)
        assert copy.state == run.state == "complete"
        assert copy.job["scheduler-1"]["dask-strata.left-out"] == "code, hosts, paths"


def test_replacements_are_those_of_the_columns(planted: Path) -> None:
    """A path or host has one hash everywhere; source lines go, and the rest of a text stays."""
    run = open_run(planted)
    with without(run, ["paths"]) as copy:
        (uri,) = copy.file_opens.to_arrow()["uri"].to_pylist()
        assert HASH.fullmatch(uri)
        assert copy.rows("select distinct key from tasks") == [{"key": f"read-{uri}"}]
        assert copy.manifest.scheduler == run.manifest.scheduler
    with without(run, ["code"]) as copy:
        lines = copy.rows("select line from output_lines order by seq")
        assert [row["line"] for row in lines][-4:] == [
            f'  File "{PATH}", line 1, in f',
            f"    {LEFT_OUT}",
            "ValueError",
            "an ordinary line",
        ]
        tracebacks = copy.scheduler_transitions.to_arrow()["traceback"].to_pylist()
        assert {*tracebacks} == {None, f'  File "{PATH}", line 1, in f'}
    with without(run, ["hosts"]) as copy:
        (host,) = {row["host"] for row in copy.rows("select host from processes")}
        assert HASH.fullmatch(host)
        address = f"tcp://{host}:1"
        assert copy.rows("select worker as address from workers") == [{"address": address}]
        assert copy.manifest.scheduler["address"] == address
        startstops = copy.scheduler_transitions.to_arrow()["startstops"].to_pylist()
        assert {each["source"] for row in startstops if row for each in row} <= {address, None}


def test_the_client_and_the_clocks_are_kept(planted: Path) -> None:
    """A run of one client, or with the clocks as they are, gives a copy of that kind."""
    (client,) = {row["client"] for row in open_run(planted).rows("select client from submissions")}
    run = open_run(planted, align=False, client=client)
    with without(run, ["hosts"]) as copy:
        assert copy.client not in {None, client}
        assert copy.align is False
        assert len(copy.tasks) == len(run.tasks)
        assert type(copy) is type(run)
    with without(run, []) as copy:
        assert copy is run


def kinds(run: Run) -> dict[tuple[str, str], set[str]]:
    """Return which kinds of texts each column has: null, left out, hashed, or others."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in TABLES:
        table = run[name].to_arrow()
        for field in table.schema if len(table) else ():
            if pa.types.is_dictionary(field.type) or field.type == pa.string():
                values = set(table[field.name].to_pylist())
                found[name, field.name] = set(map(_kind, values))
    return found


def _kind(text: Any) -> str:
    if text is None:
        return "null"
    if LEFT_OUT in text:
        return "left out" if text.strip('"') == LEFT_OUT else "partly left out"
    return "hash" if HASH.fullmatch(text) else "with hash" if HASH.search(text) else "text"


def fails(path: str) -> None:
    """Open a file, log an exception with its source lines, and fail."""
    with open(path) as file:  # noqa: PTH123  what tasks do
        file.read()
    try:
        {}[path]
    except KeyError:
        logging.getLogger("users").exception("cannot read %s on %s", path, socket.gethostname())
    raise ValueError(f"cannot read {path}")


def work(client: Client, path: Path) -> None:
    """Read files, fail, and log."""
    path.write_text("x")
    failed = client.submit(fails, str(path), key=f"read-{path}", pure=False)
    assert failed.exception() is not None
    assert client.submit(sum, client.map(abs, range(10)), key="total").result() == 45


#: Tables whose rows depend on how long something took.
TIMED = re.compile(r".*_samples|loop_blocks|gc_pauses|gil_contention|stuck|profile.*|client_calls")

#: Columns that are null or not as messages happen to arrive.
RACY = {"blame", "blame_type", "ended_by"}


def test_a_copy_is_as_a_run_recorded_without(client: Client, tmp_path: Path) -> None:
    """Each column has the same kinds of texts as in a run with the setting `leave-out`."""
    left_out: dict[str, tuple[str, ...]] = {"all": ()}
    left_out |= {name: (name,) for name in ("code", "paths", "hosts")}
    for name, classes in left_out.items():
        with record(tmp_path / name, client=client, leave_out=classes):
            work(client, tmp_path / "file")
    (complete,) = runs_in(tmp_path / "all")
    del left_out["all"]
    for name, classes in left_out.items():
        (recorded,) = runs_in(tmp_path / name)
        with without(complete, classes) as copy:
            found, expected = kinds(copy), kinds(recorded)
        both = {place for place in found.keys() & expected.keys() if place[1] not in RACY}
        both = {place for place in both if not TIMED.fullmatch(place[0])}
        tables = {table for table, _ in both}
        assert {"tasks", "attempts", "executions", "file_opens", "log_records", "job"} <= tables
        different = {
            place: (found[place], expected[place])
            for place in sorted(both)
            if found[place] - {"null"} != expected[place] - {"null"}
        }
        assert different == {}, name

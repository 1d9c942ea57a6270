"""Streams that anyone may have filled: no file outside of the runs, no half run, bounded work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import open_run
from dask_strata.brokers.message import decode, encode_facts
from dask_strata.cli import main
from dask_strata.errors import BrokerError, ImportedDataError
from dask_strata.importers.streams import importer
from dask_strata.importers.streams.importer import import_stream
from dask_strata.importers.streams.seen import Seen
from dask_strata.importers.streams.wire_rows import wire_batch
from dask_strata.schema import wire_key
from dask_strata.store.manifest import Manifest

RUN = "0a1b2c3d"
FACTS = Manifest(RUN, "pipeline", 1_700_000_000_000_000_000, "0.1.0").to_json()


def row(seq: int, process: str = "worker-00000001", **columns: Any) -> bytes:
    """Return a message of one row of ``job``."""
    head = {"strata": 1, "run": RUN, "kind": "row", "table": "job", "process": process}
    return json.dumps({**head, "seq": seq, "row": columns}).encode()


def stream(tmp_path: Path, *lines: bytes, end: int | None = None) -> str:
    """Write a stream with a first message, and a last one that counts the rows of a process."""
    first = encode_facts(RUN, "run", FACTS).data
    ends = []
    if end is not None:
        counts = {"worker-00000001": {"job": end}}
        ends = [encode_facts(RUN, "end", {"state": "complete", "rows": counts}).data]
    (tmp_path / "stream").write_bytes(b"\n".join([first, *lines, *ends]) + b"\n")
    return f"file:{tmp_path}/stream"


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    """A run or process whose id is a path is no message; nothing appears beside the runs."""
    lines = [
        row(0, "../../evil"),
        row(0, ".."),
        row(0).replace(RUN.encode(), b"../evil"),
        row(0).replace(RUN.encode(), b"/tmp/evil"),
    ]
    url = stream(tmp_path, *lines, row(0, name="good"), end=1)
    done = import_stream(url, tmp_path / "runs")
    assert done.set_aside == 4
    (run,) = done.runs
    assert run.missing == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "stream"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [run.path.name]
    assert open_run(run.path).rows("select name from job") == [{"name": "good"}]


def test_far_numbers_take_no_memory(tmp_path: Path) -> None:
    """A number far away is a gap of that size; the rows are all there."""
    numbers = [0, (1 << 62) - 1, 1 << 40, 5]
    lines = [row(n).replace(b'"job"', b'"clients"') for n in numbers]
    (run,) = import_stream(stream(tmp_path, *lines), tmp_path / "runs").runs
    assert run.rows == 4
    found = open_run(run.path).rows("select seq from clients order by seq")
    assert [r["seq"] for r in found] == sorted(numbers)


def test_far_counts_are_no_message(tmp_path: Path) -> None:
    """The sum of rows in a last message is a number that a table can have."""
    rows = {"worker-00000001": dict.fromkeys(("job", "config", "clients"), (1 << 62) - 1)}
    end = encode_facts(RUN, "end", {"state": "complete", "rows": rows}).data
    done = import_stream(stream(tmp_path, row(0), end), tmp_path / "runs")
    assert (done.set_aside, done.runs[0].rows) == (1, 1)


def test_a_name_of_the_run_is_no_path(tmp_path: Path) -> None:
    """The folder of a run has the date, a safe form of the name, and the id."""
    facts = FACTS | {"name": "../../../etc/x"}
    (tmp_path / "stream").write_bytes(encode_facts(RUN, "run", facts).data + b"\n" + row(0))
    (run,) = import_stream(f"file:{tmp_path}/stream", tmp_path / "runs").runs
    assert run.path.parent == tmp_path / "runs"
    assert run.path.name == f"2023-11-14T22-13-20-etc-x-{RUN}"


def test_bounds_on_runs_and_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many runs, or a message that cannot be parsed with `strict`: no run is made."""
    monkeypatch.setattr(importer, "_RUNS", 3)
    lines = [row(0).replace(RUN.encode(), b"%08d" % i) for i in range(4)]
    with pytest.raises(ImportedDataError, match="more than 3 runs"):
        import_stream(stream(tmp_path, *lines), tmp_path / "runs")
    with pytest.raises(ImportedDataError, match="line 2: the message is not JSON"):
        import_stream(stream(tmp_path, b"{"), tmp_path / "runs", strict=True)
    assert not (tmp_path / "runs").exists()


def test_a_stream_without_a_run(tmp_path: Path) -> None:
    """The error names the address without its password, and no folder remains."""
    (tmp_path / "stream").write_bytes(b"noise\n")
    with pytest.raises(ImportedDataError, match="has no messages of a run, and 1 that"):
        import_stream(f"file:{tmp_path}/stream", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["redis://:hidden@127.0.0.1:1"], "127.0.0.1:1"),
        (["kafka://host:99999999"], "no valid host"),
        (["file:"], "names no file"),
        (["file:x", "--into", "y"], "are for files"),
        (["folder", "--follow"], "are for streams"),
        (["file:x", "--idle", "3"], "needs --follow"),
    ],
)
def test_errors_of_the_command(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence with a hint, without a password and a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["dask-strata", "import", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, None)
    shown = capsys.readouterr().err
    assert reason in shown
    assert "hidden" not in shown
    assert "Traceback" not in shown


def test_follow_ends_when_nothing_arrives(tmp_path: Path) -> None:
    """With `--idle`, a stream without an end is imported as far as it goes."""
    url = stream(tmp_path, row(0), row(1))
    (run,) = import_stream(url, tmp_path / "runs", follow=True, idle_seconds=0.3).runs
    assert run.rows == 2
    assert run.missing == ("end: the last message of the run is not in the stream",)


@given(st.lists(st.integers(0, 60), max_size=80))
def test_seen_is_a_set(numbers: list[int]) -> None:
    """It is the same as Python's set, in any order."""
    seen, expected = Seen(), set()
    for number in numbers:
        assert seen.add(number) == (number not in expected)
        expected.add(number)
    assert seen.n == len(expected)
    if expected:
        assert seen.first == min(expected)
        assert seen.gaps == max(expected) - min(expected) + 1 - len(expected)


@pytest.mark.parametrize("key", ["x", "\x00odd", ("x", 0), b"x", 7, ""])
def test_keys_return_to_their_wire_form(key: object) -> None:
    """A key in a message has two columns; a segment has the text that the recorder wrote."""
    wire = wire_key(key)
    from dask_strata.schema import split_wire_key

    text, kind = split_wire_key(wire)
    assert wire_batch("steals", [{"key": text, "key_type": kind}]).columns["key"] == [wire]
    message = {"strata": 1, "run": RUN, "kind": "row", "table": "steals", "process": "p", "seq": 0}
    row = decode(json.dumps({**message, "row": {"key": text, "key_type": kind}}).encode())
    assert row.content == {"key": text, "key_type": kind}


@pytest.mark.parametrize("scheme", ["redis", "kafka"])
def test_follow_needs_a_broker_at_its_start(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong host is an error, instead of a command that waits without a word."""
    pytest.importorskip({"redis": "redis", "kafka": "confluent_kafka"}[scheme])
    monkeypatch.setattr("dask_strata.brokers.kafka._SECONDS", 1)
    with pytest.raises(BrokerError):
        import_stream(f"{scheme}://localhost:1", tmp_path / "runs", follow=True)
    assert not (tmp_path / "runs").exists()

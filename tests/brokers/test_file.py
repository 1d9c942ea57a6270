"""Streams in a file: torn lines, several senders, full disks, files that are none."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dask_strata.brokers import file as module
from dask_strata.brokers.broker import Gap, Message, Unreadable
from dask_strata.brokers.registry import open_sink, open_source
from dask_strata.errors import BrokerError, UsageError
from tests.conftest import wait_until
from tests.support.streams import first_and_last, seen_once, simple_messages

ROOT = Path(__file__).parents[2]


def rows(*numbers: int) -> list[Message]:
    """Return rows from the first number to before the second."""
    return simple_messages("r", "p", range(*numbers))


def test_a_torn_line_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    """A reader reports it until then; the positions are those of whole lines."""
    path = tmp_path / "s.jsonl"
    sink = open_sink(f"file:{path}", "r")
    sink.send(rows(0, 3))
    whole = path.read_bytes()
    for cut in (1, 30, len(rows(2, 3)[0].data)):
        path.write_bytes(whole[:-cut])
        assert sink.last() == {"p": 1}
        found = list(open_source(f"file:{path}").messages())
        # A whole message without the end of its line is one.
        assert found[2:] == rows(2, 3) if cut == 1 else isinstance(found[2], Unreadable)
        sink.send(rows(2, 3))
        assert path.read_bytes() == whole


def test_positions_of_any_json(tmp_path: Path) -> None:
    """Other programs may write the fields in another order, and escape characters."""
    path = tmp_path / "s.jsonl"
    path.write_text(
        '{"seq": 8, "strata": 1, "run": "\\u0072", "kind": "row", "table": "job", '
        '"process": "p", "row": {}}\n'
        '{"strata":1,"run":"other","kind":"row","table":"job","process":"p","seq":99,"row":{}}\n'
        '{"strata":1,"run":"r","kind":"row","table":"job","process":"\\u0070","seq":9,"row":{}}\n'
        "no JSON\n"
    )
    sink = open_sink(f"file:{path}", "r")
    assert sink.last() == {"p": 9}
    sink.send(first_and_last("r"))
    assert sink.last() == {"p": 9}


def test_several_senders_append_to_one_file(tmp_path: Path) -> None:
    """Their batches are one after the other."""
    url = f"file:{tmp_path / 's.jsonl'}"

    def send(run: str) -> None:
        sink = open_sink(url, run)
        for start in range(0, 2000, 100):
            sink.send(simple_messages(run, "p", range(start, start + 100)))

    threads = [threading.Thread(target=send, args=(run,)) for run in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(open_source(url).messages())
    assert len(found) == 6000
    for run in "abc":
        assert seen_once(iter(found), run) == {"p": list(range(2000))}


def test_a_file_that_becomes_shorter_is_a_gap(tmp_path: Path) -> None:
    """A reader that follows continues with its new content."""
    path = tmp_path / "s.jsonl"
    sink = open_sink(f"file:{path}", "r")
    sink.send(rows(0, 3))
    source = open_source(f"file:{path}")
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.extend(source.messages(follow=True)), daemon=True
    )
    thread.start()
    wait_until(lambda: len(found) == 3, what="the first rows")
    path.write_bytes(b"")
    wait_until(lambda: len(found) == 4, what="the gap")
    sink.send(rows(3, 5))
    wait_until(lambda: len(found) == 6, what="the other rows")
    source.close()
    thread.join(10)
    assert found == [*rows(0, 3), Gap("line 3", None), *rows(3, 5)]


def test_a_long_line_is_not_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one unreadable message, and the next line is read."""
    monkeypatch.setattr(module, "MESSAGE_BYTES", 1000)
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * 10_000 + b"\n" + rows(0, 1)[0].data + b"\n" + b"y" * 10_000)
    found = list(open_source(f"file:{path}").messages())
    assert [type(m) for m in found] == [Unreadable, Message, Unreadable]
    assert open_sink(f"file:{path}", "r").last() == {"p": 0}


def test_a_locked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process with the lock may be stopped: a sink does not wait for ever."""
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.2)
    path = tmp_path / "s.jsonl"
    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        sink = open_sink(f"file:{path}", "r")
        with pytest.raises(BrokerError, match="locked"):
            sink.send(rows(0, 1))
    sink.send(rows(0, 1))
    assert sink.last() == {"p": 0}


def test_a_batch_for_which_there_is_no_space(tmp_path: Path) -> None:
    """None of it is in the file."""
    path = tmp_path / "s.jsonl"
    code = (
        "import resource, sys; from dask_strata.brokers.registry import open_sink;"
        "from dask_strata.errors import BrokerError;"
        "from tests.support.streams import simple_messages as rows;"
        "sink = open_sink('file:' + sys.argv[1], 'r'); sink.send(rows('r', 'p', range(10)));"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: sink.send(rows('r', 'p', range(10, 300)))\n"
        "except BrokerError as error: print(error)\n"
        "print(sink.last())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot be written: File too large" in done.stdout
    assert done.stdout.endswith("{'p': 9}\n")
    assert path.read_bytes() == b"".join(m.data + b"\n" for m in rows(0, 10))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Without waiting for the other end of a pipe."""
    os.mkfifo(tmp_path / "pipe")
    for call in (
        lambda: open_sink(f"file:{tmp_path / 'pipe'}", "r").send(rows(0, 1)),
        lambda: list(open_source(f"file:{tmp_path / 'pipe'}").messages()),
    ):
        with pytest.raises(UsageError, match="is not a file"):
            call()
    with pytest.raises(UsageError, match="is a folder"):
        open_sink(f"file:{tmp_path}", "r")
    with pytest.raises(BrokerError, match="cannot be opened"):
        open_sink(f"file:{tmp_path / 'no' / 'folder'}", "r").send(rows(0, 1))

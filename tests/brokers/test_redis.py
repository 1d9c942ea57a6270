"""Streams in Redis: a real server that is stopped, killed, restarted, trimmed, or refuses."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dask_strata.brokers import redis as module
from dask_strata.brokers.broker import Gap, Message, Unreadable
from dask_strata.brokers.message import encode
from dask_strata.brokers.registry import open_sink, open_source
from dask_strata.errors import BrokerError
from tests.brokers.servers import RedisServer
from tests.conftest import wait_until
from tests.support.streams import seen_once, simple_messages

redis = pytest.importorskip("redis")

SECRET = "p@ss/w?rd"
QUOTED = "p%40ss%2Fw%3Frd"


def rows(*numbers: int) -> list[Message]:
    """Return rows from the first number to before the second."""
    return simple_messages("r", "p", range(*numbers))


def read(url: str) -> list[Any]:
    """Return all that is in the stream now."""
    return list(open_source(url).messages())


def numbers(url: str) -> list[int]:
    """Return the numbers of all rows in the stream, which has nothing else."""
    return [message.first for message in read(url)]


def test_a_batch_that_is_sent_again_is_there_once(redis_server: RedisServer) -> None:
    """By the same sink, by another one, and in parts."""
    sink, other = (open_sink(redis_server.url, "r") for _ in range(2))
    sink.send(rows(0, 1000))
    sink.send(rows(0, 1000))
    other.send(rows(500, 1200))
    assert numbers(redis_server.url) == list(range(1200))
    sink.forget()
    assert sink.last() == {}
    sink.send(rows(0, 10))
    assert numbers(redis_server.url) == [*range(1200), *range(10)]


def test_a_deleted_stream_is_sent_again(redis_server: RedisServer) -> None:
    """The user deleted the stream: its positions, which are another key, count no more."""
    sink = open_sink(redis_server.url, "r")
    sink.send(rows(0, 100))
    client = redis.Redis.from_url(redis_server.url.partition("?")[0])
    streams = [key for key in client.scan_iter() if client.type(key) == b"stream"]
    assert client.delete(*streams) == 1
    again = open_sink(redis_server.url, "r")
    assert again.last() == {}
    again.send(rows(0, 100))
    lost, *found = read(redis_server.url)
    assert isinstance(lost, Gap)  # entries of other runs are gone for good
    assert [message.first for message in found] == list(range(100))


def test_batches_of_other_bounds_leave_no_gap(redis_server: RedisServer) -> None:
    """A message in Arrow that is in the stream in part is added: a reader drops the double rows."""
    url = f"{redis_server.url}?format=arrow"
    batch = pa.record_batch({"name": ["x"] * 30, "seq": pa.array(range(30), pa.int64())})
    sink = open_sink(url, "r")
    for part in (batch[:20], batch[:10], batch[10:30]):
        sink.send(encode("r", "job", "p", part, form="arrow"))
    assert [(m.first, m.last) for m in read(url)] == [(0, 19), (10, 29)]
    assert sink.last() == {"p": 29}


def test_no_more_than_a_batch_in_one_step(redis_server: RedisServer) -> None:
    """As the server counts the calls of the script."""
    sink = open_sink(redis_server.url, "r")
    sink.send(rows(0, 1300))
    with redis.Redis(port=redis_server.port) as client:
        assert client.info("commandstats")["cmdstat_eval"]["calls"] == 3
        assert client.xlen("dask-strata") == 1300


def test_a_stopped_server(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch fails in bounded time; sent again, each row is there once, whoever came first."""
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    sink = open_sink(redis_server.url, "r")
    sink.send(rows(0, 100))
    redis_server.stop()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(BrokerError, match="redis://127"):
            sink.send(rows(100, 400))
    assert time.monotonic() - started < 5
    redis_server.signal(signal.SIGCONT)
    sink.send(rows(100, 400))
    assert numbers(redis_server.url) == list(range(400))
    assert sink.last() == {"p": 399}


def test_a_killed_server_with_its_file(redis_server: RedisServer) -> None:
    """It has all acknowledged rows, and the positions, when it is back."""
    sink = open_sink(redis_server.url, "r")
    sink.send(rows(0, 100))
    redis_server.kill()
    with pytest.raises(BrokerError):
        sink.send(rows(100, 200))
    redis_server.start()
    sink.send(rows(100, 200))
    assert numbers(redis_server.url) == list(range(200))


def test_a_killed_server_that_lost_its_rows(tmp_path: Path) -> None:
    """The sink notices it before it adds a row, and its positions are those of the server."""
    server = RedisServer(tmp_path / "redis", append=False)
    try:
        sink = open_sink(server.url, "r")
        sink.send(rows(0, 100))
        server.kill()
        server.start()
        with pytest.raises(BrokerError, match="lost rows"):
            sink.send(rows(100, 200))
        assert sink.last() == {}
        sink.send(rows(0, 200))
        assert numbers(server.url) == list(range(200))
    finally:
        server.close()


def test_trimmed_entries_are_a_gap(redis_server: RedisServer) -> None:
    """At the begin of the stream, and before a reader that follows."""
    sink = open_sink(redis_server.url, "r")
    source = open_source(redis_server.url)
    found: list[Any] = []

    def follow() -> None:
        for message in source.messages(follow=True):
            found.append(message)
            stopped.wait(60)

    stopped = threading.Event()
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    sink.send(rows(0, 300))
    wait_until(lambda: found, what="the first message")
    with redis.Redis(port=redis_server.port) as client:
        client.xtrim("dask-strata", maxlen=40, approximate=False)
        first = client.xrange("dask-strata", count=1)[0][0].decode()
    assert read(redis_server.url)[0] == Gap(f"before {first}", 260)
    stopped.set()  # the reader continues behind the entries that it has fetched already
    wait_until(lambda: len(found) and found[-1] == rows(299, 300)[0], what="the last message")
    source.close()
    thread.join(10)
    (gap,) = (m for m in found if isinstance(m, Gap))
    read_rows = [m.first for m in found if isinstance(m, Message)]
    assert gap.messages == 300 - len(read_rows) > 0
    assert read_rows == [*range(len(read_rows) - 40), *range(260, 300)]


def test_a_follower_waits_for_a_server_that_is_away(redis_server: RedisServer) -> None:
    """It continues where it was."""
    sink = open_sink(redis_server.url, "r")
    sink.send(rows(0, 10))
    source = open_source(redis_server.url)
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.extend(source.messages(follow=True)), daemon=True
    )
    thread.start()
    wait_until(lambda: len(found) == 10, what="the first rows")
    redis_server.kill()
    redis_server.start()
    sink.send(rows(10, 20))
    wait_until(lambda: len(found) == 20, what="the other rows")
    source.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [m.first for m in found] == list(range(20))


def test_foreign_values_are_errors_of_the_broker(redis_server: RedisServer) -> None:
    """A key of another type, and a hash with other values."""
    with redis.Redis(port=redis_server.port) as client:
        client.set("text", "x")
        client.hset("{dask-strata}:positions:r", "p", "x")
        client.xadd("dask-strata", {"n": "9" * 30, "message": "x"})
        client.xadd("dask-strata", {b"\xff": b"\xff"})
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        open_sink(f"{redis_server.url}?stream=text", "r").send(rows(0, 1))
    with pytest.raises(BrokerError):
        read(f"{redis_server.url}?stream=text")
    with pytest.raises(BrokerError, match="positions"):
        open_sink(redis_server.url, "r").last()
    assert [type(m) for m in read(redis_server.url)] == [Unreadable] * 2


def test_users_and_passwords(redis_server: RedisServer) -> None:
    """They are decoded, databases are apart, and no error shows a password."""
    with redis.Redis(port=redis_server.port) as client:
        client.acl_setuser(
            "m@e", enabled=True, passwords=[f"+{SECRET}"], keys="*", commands=["+@all"]
        )
        client.config_set("requirepass", SECRET)
    where = f"127.0.0.1:{redis_server.port}"
    for who, database in ((f"m%40e:{QUOTED}", 0), (f":{QUOTED}", 3)):
        url = f"redis://{who}@{where}/{database}"
        open_sink(url, "r").send(rows(0, 5))
        assert numbers(url) == list(range(5))
    for who in ("", "m%40e:wrong-secret@", ":wrong-secret@"):
        with pytest.raises(BrokerError) as caught:
            open_sink(f"redis://{who}{where}", "r").send(rows(0, 1))
        assert "wrong-secret" not in str(caught.value)
        assert SECRET not in str(caught.value)
        assert "redis://USER:PASSWORD@HOST" in (caught.value.hint or "")


def test_a_full_server(tmp_path: Path) -> None:
    """Refuses a batch as a whole; when it has memory again, the batch is there once."""
    server = RedisServer(tmp_path / "redis", "--maxmemory", "3mb")
    try:
        sink = open_sink(server.url, "r")
        large = simple_messages("r", "p", range(60), "x" * 100_000)
        with pytest.raises(BrokerError, match="maxmemory"):
            _send_one_by_one(sink, large)
        done = (sink.last() or {})["p"]
        with redis.Redis(port=server.port) as client:
            client.config_set("maxmemory", 0)
        sink.send(large[done + 1 :])
        assert numbers(server.url) == list(range(60))
    finally:
        server.close()


def _send_one_by_one(sink: Any, messages: list[Message]) -> None:
    for message in messages:
        sink.send([message])


def test_tls(tmp_path: Path) -> None:
    """`rediss://` checks the certificate of the server."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    server = RedisServer(tmp_path / "redis", tls=(key, certificate))
    try:
        url = f"rediss://127.0.0.1:{server.port}"
        open_sink(f"{url}?ca={certificate}", "r").send(rows(0, 5))
        assert numbers(f"{url}?ca={certificate}") == list(range(5))
        with pytest.raises(BrokerError, match="certificate"):
            open_sink(url, "r").send(rows(0, 1))
    finally:
        server.close()


@pytest.mark.long
def test_rows_are_sent_once_through_faults(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that repeats what failed: the server is stopped, killed and started meanwhile."""
    monkeypatch.setattr(module, "_SECONDS", 1)
    done = threading.Event()
    sent = failures = 0

    def work() -> None:
        nonlocal sent, failures
        sink = open_sink(redis_server.url, "r")
        while not done.is_set():
            try:
                sink.send(rows(sent, sent + 50))
            except BrokerError:
                failures += 1
                done.wait(0.1)
            else:
                sent += 50

    source = open_source(redis_server.url)
    found: list[Any] = []
    threads = [
        threading.Thread(target=work, daemon=True),
        threading.Thread(target=lambda: found.extend(source.messages(follow=True)), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for _ in range(3):
        for fault in (_stop, _kill):
            before = sent
            wait_until(lambda n=before: sent > n + 500, what="rows")
            fault(redis_server)
    before = sent
    wait_until(lambda: sent > before + 500, what="rows")
    done.set()
    threads[0].join(10)
    assert failures >= 3
    wait_until(lambda: found and found[-1].first >= sent - 1, what="the last row")
    source.close()
    threads[1].join(10)
    assert [m.first for m in found] == list(range(sent))
    assert numbers(redis_server.url) == list(range(sent))


@pytest.mark.long
@pytest.mark.parametrize("mended", [False, True])
def test_redis_that_is_killed_within_a_write(
    redis_server: RedisServer, tmp_path: Path, *, mended: bool
) -> None:
    """It may add a part of the batch again, two starts later: a reader that looks drops it."""
    open_sink(redis_server.url, "r").send(rows(0, 100))
    redis_server.kill()
    (file,) = (tmp_path / "redis").glob("*/*.incr.aof")
    file.write_bytes(file.read_bytes()[:-4000])
    if mended:
        redis_server.remove_part_of_a_write()
    redis_server.start()
    sink = open_sink(redis_server.url, "r")
    assert sink.last() == {}
    sink.send(rows(0, 100))
    assert numbers(redis_server.url) == list(range(100))
    redis_server.kill()
    redis_server.start()
    open_sink(redis_server.url, "r").send(rows(100, 110))
    found = read(redis_server.url)
    messages = [each for each in found if isinstance(each, Message)]
    assert seen_once(iter(messages), "r") == {"p": list(range(110))}
    if mended:
        assert [each.first for each in found] == list(range(110))


def _stop(server: RedisServer) -> None:
    server.stop()
    time.sleep(3)
    server.signal(signal.SIGCONT)


def _kill(server: RedisServer) -> None:
    server.kill()
    server.remove_part_of_a_write()
    time.sleep(0.5)
    server.start()

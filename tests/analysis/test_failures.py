"""Failures that differ in an address only are one, those that differ in a number are not."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import string
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dask import delayed
from hypothesis import assume, given
from hypothesis import strategies as st

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.failures import failures, without_addresses

if TYPE_CHECKING:
    from distributed import Client

N = 5


def read(path: Path) -> str:
    """Read a file; its name is in the message, unlike in the representation of Python's error."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(str(error)) from None


def of_an_object(i: int) -> None:
    """Fail with the address of an object."""
    kept = [object() for _ in range(i + 1)]
    raise RuntimeError(f"{kept[-1]!r} of pid {os.getpid()} cannot be locked\nid {uuid.uuid4()}")


def of_a_connection(_: int) -> None:
    """Fail with the address of a server that has ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    try:
        socket.create_connection((host, port))
    except OSError as error:
        raise OSError(f"{error}: tcp://{host}:{port}, {(host, port)}, localhost:{port}") from None


def of_a_temporary_file(_: int) -> None:
    """Fail with the name of a temporary folder that was removed."""
    folder = tempfile.mkdtemp()
    shutil.rmtree(folder)
    read(Path(folder) / "part.csv")


def of_a_number(i: int) -> None:
    """Fail with a number."""
    raise ValueError(f"expected 2 columns, found {i}")


def of_a_file(i: int) -> None:
    """Fail with the name of a file."""
    read(Path(f"/data/{'abcde'[i]}.csv"))


def test_failures_of_a_cluster(client: Client, tmp_path: Path, strata: Callable[..., Any]) -> None:
    """Each function that fails with addresses is one failure; each number and each file is one."""
    alike = [of_an_object, of_a_connection, of_a_temporary_file]
    apart = [of_a_number, of_a_file]
    raised: dict[str, Counter[str]] = {}
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        for function in (*alike, *apart):
            tasks = [
                client.compute(delayed(function)(i, dask_key_name=f"{function.__name__}-{i}"))
                for i in range(N)
            ]
            errors = client.sync(_exceptions, tasks)
            raised[function.__name__] = Counter(map(repr, errors))
    for function in alike:
        assert len(raised[function.__name__]) > 1, "the messages must differ"
    found = failures(open_run(run.path))
    counts = {f.__name__: [N] for f in alike} | {f.__name__: [1] * N for f in apart}
    of_prefix = {name: [f.count for f in found if f.prefix == name] for name in counts}
    assert of_prefix == counts
    for failure in found:
        assert failure.exception in raised[failure.prefix]
        assert failure.example.rpartition("-")[0] == failure.prefix
    screen = strata("show", run.path, check=True).stdout
    words = " ".join(screen.split())
    first = found[0]
    assert f"{first.exception.partition('(')[0]}: " in words
    assert first.example[:30] in words
    assert f"({N} tasks)" in words
    assert f"`{first.prefix}` failed" in words


async def _exceptions(futures: list[Any]) -> list[BaseException]:
    return [await future.exception() for future in futures]


def _hexadecimal(n: int) -> str:
    """Return hexadecimal digits of which some are letters and some are not."""
    return "".join([random.choice("abcdef"), *random.choices("0123456789abcdef", k=n - 2), "7"])


def _name(n: int) -> str:
    return "".join(random.choices(string.ascii_lowercase + string.digits + "_", k=n))


def _port() -> int:
    return random.randrange(1024, 65536)


def _ip() -> str:
    return ".".join(str(random.randrange(256)) for _ in range(4))


#: Parts of messages that differ between tasks that failed alike.
ADDRESSES: dict[str, Callable[[], str]] = {
    "object": lambda: f"<app.Lock object at 0x{random.randrange(16**8, 16**12):x}>",
    "dask": lambda: f"<Worker 'tcp://{_ip()}:{_port()}'>",
    "tls": lambda: f"tls://[fe80::{_hexadecimal(4)}]:{_port()}",
    "inproc": lambda: f"inproc://{_ip()}/{_port()}/{random.randrange(99)}",
    "url": lambda: f"root://{random.choice(['data', 'eos.example.org'])}:{_port()}//store/a.root",
    "ip": _ip,
    "ip and port": lambda: f"{_ip()}:{_port()}",
    "socket": lambda: f"('{_ip()}', {_port()})",
    "host and port": lambda: f"{random.choice(['node17', 'localhost'])}:{_port()}",
    "port": lambda: f"HTTPConnectionPool(port={_port()})",
    "pid": lambda: f"pid {random.randrange(1, 4_000_000)}",
    "pid=": lambda: f"(PID={random.randrange(1, 4_000_000)})",
    "uuid": lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "id": lambda: f"request {_hexadecimal(random.randrange(8, 40))}",
    "temporary file": lambda: f"'/tmp/tmp{_name(8)}.csv'",
    "temporary folder": lambda: f"'/scratch/tmp{_name(8)}/part.csv'",
    "mktemp": lambda: f"/tmp/tmp.{''.join(random.choices(string.ascii_letters, k=10))}/x",
    "worker's folder": lambda: f"/scratch/dask-scratch-space/worker-{_name(8)}/storage",
    "key": lambda: f"'sum-{uuid.uuid4().hex}'",
    "key of a collection": lambda: (
        f"('rechunk-merge-{uuid.uuid4().hex}', {random.randrange(9)}, {random.randrange(99)})"
    ),
}

#: Parts of messages that make different failures of them.
FACTS: dict[str, Callable[[], str]] = {
    "integer": lambda: str(random.randrange(10**12)),
    "number": lambda: f"{random.choice([1, -1]) * random.uniform(1, 10)!r}",
    "exponent": lambda: f"{random.randrange(10**9)}e{random.choice(['-', '+', ''])}10",
    "share": lambda: f"{random.randrange(10**9)}/17",
    "file": lambda: f"{_name(6)}.csv",
    "file of a run": lambda: f"/store/{str(uuid.UUID(int=random.getrandbits(128))).upper()}.root",
    "part of a data set": lambda: f"{_hexadecimal(8)}-part-{random.randrange(99)}.parquet",
    "line of a file": lambda: f"module.py:{random.randrange(10, 10**5)}",
    "column": lambda: f"column '{_name(5)}'",
    "small offset": lambda: f"0x{random.randrange(16**4):x}",
    "member": lambda: f"tmpfile{random.randrange(100)}",
    "named port": lambda: f"port {'abc'[random.randrange(3)]}",
    "number of a record": lambda: f"could not process {random.randrange(9)} records",
}

_words = st.text(string.ascii_letters + " .,:'\"()\n", max_size=12)


@given(st.sampled_from(sorted(ADDRESSES)), _words, st.randoms(use_true_random=False))
@pytest.mark.parametrize("form", [str, repr], ids=["text", "representation"])
def test_messages_that_differ_in_an_address(
    form: Callable[[str], str], kind: str, words: str, rng: random.Random
) -> None:
    """Whatever text surrounds two addresses of a kind, the messages become equal."""
    random.seed(rng.random())
    first, second = (
        form(f"{words} {ADDRESSES[kind]()}\n{ADDRESSES[kind]()} {words}") for _ in range(2)
    )
    patterns = {without_addresses(text, hosts={"node17"}) for text in (first, second)}
    # The form of a representation depends on the quotes in the text, which are alike in both.
    assert len(patterns) == 1, patterns
    [pattern] = patterns
    assert without_addresses(pattern, hosts={"node17"}) == pattern


@given(st.sampled_from(sorted(FACTS)), _words, st.randoms(use_true_random=False))
def test_messages_that_differ_in_a_fact(kind: str, words: str, rng: random.Random) -> None:
    """Messages with different numbers or names of files stay apart, whatever surrounds them."""
    random.seed(rng.random())
    first, second = FACTS[kind](), FACTS[kind]()
    assume(first != second)
    patterns = {
        without_addresses(f"{words} {part} {words}", hosts={"node17"}) for part in (first, second)
    }
    assert len(patterns) == 2, patterns


@given(st.text(max_size=200), st.text(max_size=20) | st.just("('x', 'y')"))
def test_any_text_has_a_pattern(message: str, key: str) -> None:
    """No text is an error; without parts of addresses only the key of its task is replaced."""
    pattern = without_addresses(message, key)
    if not re.search(r"\d|[:\\]|tmp|worker-", message):
        assert pattern == (message.replace(key, "…") if key.startswith("(") else message)
    for part in (f"{message} {key}" if key.startswith("(") else message, f"{message} tcp://{key}"):
        without_addresses(part, key, hosts={"node17"})


def seconds_of(message: str) -> float:
    """Return the least CPU time of five searches of a message."""
    found = []
    for _ in range(5):
        start = time.thread_time()
        assert without_addresses(message).endswith(" end")
        found.append(time.thread_time() - start)
    return min(found)


@pytest.mark.parametrize(
    "part", ["('", "::", "1.", "[a", "0x", "a-", "1", "tmp", "x.", "://a", "e1"]
)
def test_a_long_message_takes_linear_time(part: str) -> None:
    """A message of 10 times the length takes about 10 times as long, and not 100 times."""
    assert seconds_of(part * 30_000 + " end") < 40 * seconds_of(part * 3_000 + " end")

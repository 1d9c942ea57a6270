"""Addresses of streams: their parts, and that none shows its password."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.brokers.address import parse_address
from dask_strata.brokers.registry import check_address, open_sink
from dask_strata.errors import StrataError, UsageError

SECRET = "p@ss/w?rd #1"
QUOTED = "p%40ss%2Fw%3Frd%20%231"


def test_redis() -> None:
    """User, password, database and stream."""
    address = parse_address(f"rediss://me:{QUOTED}@[::1]:7000/3?stream=runs&ca=ca.pem")
    assert (address.user, address.password) == ("me", SECRET)
    assert (address.hosts, address.database) == ((("[::1]", 7000),), 3)
    assert (address.topic, address.options) == ("runs", {"ca": "ca.pem"})
    plain = parse_address("redis://host")
    assert (plain.hosts, plain.topic, plain.password) == ((("host", 6379),), "dask-strata", None)


def test_kafka() -> None:
    """Several hosts, a topic, and any option of librdkafka."""
    address = parse_address(
        "kafka://me:x@a,b:1234/runs?format=arrow&security.protocol=SASL_SSL&ssl.ca.location=/ca"
    )
    assert address.hosts == (("a", 9092), ("b", 1234))
    assert (address.topic, address.form) == ("runs", "arrow")
    assert address.options == {"security.protocol": "SASL_SSL", "ssl.ca.location": "/ca"}


def test_file_and_mofka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are absolute, and may contain a question mark."""
    monkeypatch.chdir(tmp_path)
    assert parse_address("file:a/b?c.jsonl").path == str(tmp_path / "a" / "b?c.jsonl")
    assert parse_address("file:///x/y").path == parse_address("file:/x/y").path == "/x/y"
    mofka = parse_address("mofka:group.json?topic=t&protocol=tcp")
    assert (mofka.path, mofka.topic) == (str(tmp_path / "group.json"), "t")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "http://host",
        "redis:host",
        "redis://",
        "redis://host:port",
        "redis://host:0",
        "redis://host:99999",
        "redis://host/name",
        "redis://a,b",
        "redis://host?nope=1",
        "redis://host?format=xml",
        "redis://host?stream=a b",
        "redis://host?stream=",
        "redis://host?stream=a&stream=b",
        "kafka://host/a/b",
        "kafka://host/t?acks=0",
        "kafka://host/t?enable.idempotence=false",
        "kafka://host/t?bootstrap.servers=other",
        "kafka://host/t?error_cb=x",
        "kafka://host/t?plugin.library.paths=/tmp/x.so",
        "kafka://host/t?sasl.kerberos.kinit.cmd=sh",
        "mofka:",
        "mofka:g?nope=1",
        "file:",
        "file:folder/",
        "file://host/path",
        "file:x?format=arrow",
        "file:x\ny",
    ],
)
def test_wrong_addresses_are_refused(url: str) -> None:
    """As an error of usage with the forms that are accepted."""
    with pytest.raises(UsageError) as caught:
        parse_address(url)
    assert "kafka://" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{QUOTED}@host",
        f"redis://:{SECRET}@host",
        f"redis://me:{SECRET}@host/x/y",
        f"redis://me:{QUOTED}@host:port",
        f"redis://host/name?password={QUOTED}",
        f"kafka://me:{QUOTED}@host/t",
        f"kafka://host/t?sasl.password={QUOTED}",
        f"kafka://host/t?acks=1&sasl.password={SECRET}",
        f"kafka:/me:{SECRET}@host/t",
        f"amqp://me:{SECRET}@host/t",
        f"amqp:me:{QUOTED}@host",
        f"{SECRET}@host",
    ],
)
def test_no_text_shows_a_password(url: str) -> None:
    """Neither the address nor its error."""
    try:
        address = parse_address(url)
    except UsageError as error:
        shown = f"{error} {error!r}"
    else:
        shown = f"{address} {address!r} {address.hide(f'failed: {SECRET} {QUOTED} {url}')}"
    for part in (SECRET, QUOTED, "ss/w", "rd #1", "ss%2Fw"):
        assert part not in shown


@given(st.text(max_size=60), st.sampled_from(["redis://", "kafka://", "file:", "mofka:", ""]))
def test_any_text_is_an_address_or_refused(text: str, scheme: str) -> None:
    """Without another exception."""
    with contextlib.suppress(UsageError):
        assert parse_address(scheme + text).scheme in scheme + text.lower()


@pytest.mark.parametrize(("scheme", "extra"), [("redis", "redis"), ("kafka", "kafka")])
def test_a_missing_package_is_named(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs it."""
    monkeypatch.setattr("dask_strata.brokers.registry.find_spec", lambda _name: None)
    with pytest.raises(StrataError) as caught:
        open_sink(f"{scheme}://:secret@host", "r")
    assert f"pip install 'dask-strata[{extra}]'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_checking_an_address_imports_nothing_heavy() -> None:
    """`dask-strata record` and the scheduler check it."""
    code = (
        "import sys; from dask_strata.brokers.registry import check_address;"
        "check_address('redis://host'); check_address('kafka://host');"
        "print([m for m in ('pyarrow','redis','confluent_kafka','numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_mofka_is_named_where_it_is_missing() -> None:
    """It is on no package index."""
    if any(map(find_spec, ("mochi", "diaspora_stream"))):
        pytest.skip("Mofka is installed")
    with pytest.raises(StrataError, match="Spack"):
        check_address("mofka:group.json")

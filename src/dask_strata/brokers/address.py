"""Addresses of streams: parsed from URLs, and shown without their passwords."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import quote, unquote

from dask_strata.errors import UsageError

Form = Literal["json", "arrow"]

#: Name of the topic or stream without another one in the URL.
DEFAULT_TOPIC = "dask-strata"

EXAMPLES = "Addresses: kafka://HOST:9092/TOPIC, redis://HOST:6379, mofka:GROUPFILE, file:PATH"

_HIDDEN = "***"
_DEFAULT_PORTS = {"kafka": 9092, "redis": 6379, "rediss": 6379}
_OPTIONS = {
    "file": {"format"},
    "redis": {"format", "stream"},
    "rediss": {"format", "stream", "ca"},
    "mofka": {"format", "topic", "protocol"},
}

#: Names that Kafka and Redis both accept, without a space or a control character.
_TOPIC = re.compile(r"[A-Za-z0-9._:{}-]{1,200}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.%]{2,60}\]")

#: Options of librdkafka that run code or commands, that are not texts, or that dask-strata's
#: guarantees depend on.
_REFUSED = re.compile(
    r"plugin\.library\.paths|ssl\.engine.*|ssl\.providers|sasl\.kerberos\.kinit\.cmd|.*_cb|on_.*"
    r"|logger|opaque|(key|value)\.(de)?serializer|(request\.required\.)?acks"
    r"|enable\.(idempotence|gapless\.guarantee|auto\.commit|auto\.offset\.store|partition\.eof)"
    r"|transactional\.id|bootstrap\.servers|metadata\.broker\.list|auto\.offset\.reset"
    r"|partitioner|queuing\.strategy"
)
_DATABASE = re.compile(r"[0-9]{1,5}")
_OPTION = re.compile(r"[a-z][a-z0-9._]{0,80}")


@dataclass(frozen=True)
class Address:
    """Address of a stream.

    Attributes
    ----------
    scheme : str
        ``file``, ``redis``, ``rediss``, ``kafka`` or ``mofka``.
    hosts : tuple of (str, int)
        Hosts and ports; only Kafka has more than one.
    user, password : str or None
        Decoded; the password is in no representation of the address.
    database : int
        Number of the database in Redis.
    topic : str
        Name of the topic or stream.
    path : str
        The file, or Mofka's group file.
    form : str
        ``json`` or ``arrow``.
    options : mapping of str to str
        Further options of the URL.
    """

    scheme: str
    hosts: tuple[tuple[str, int], ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    topic: str = DEFAULT_TOPIC
    path: str = ""
    form: Form = "json"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return the address without password and options, which may contain secrets.

        >>> print(parse_address("redis://me:secret@host/1?stream=runs"))
        redis://me:***@host:6379/1?stream=runs
        """
        if self.scheme in {"file", "mofka"}:
            topic = f"?topic={self.topic}" if self.scheme == "mofka" else ""
            return f"{self.scheme}:{self.path}{topic}"
        secret = f":{_HIDDEN}" if self.password else ""
        user = f"{quote(self.user or '')}{secret}@" if self.user or secret else ""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        if self.scheme == "kafka":
            return f"kafka://{user}{hosts}/{self.topic}"
        return f"{self.scheme}://{user}{hosts}/{self.database}?stream={self.topic}"

    def hide(self, text: object) -> str:
        """Return a text, such as a library's error, without the secrets of this address.

        >>> parse_address("redis://:secret@host").hide("AUTH secret failed")
        'AUTH *** failed'
        """
        shown = str(text)
        secrets = {self.password, *self.options.values()} if self.password else set()
        secrets |= {v for name, v in self.options.items() if _is_secret(name)}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            for form in (secret, quote(secret, safe=""), quote(secret)):
                shown = shown.replace(form, _HIDDEN)
        return shown


def _is_secret(name: str) -> bool:
    return re.search(r"password|secret|token|key|pem|credential|config", name) is not None


def parse_address(url: str) -> Address:
    """Return the address that a URL has.

    Parameters
    ----------
    url : str
        The URL, see docs/brokers.md.

    Raises
    ------
    UsageError
        The URL cannot be used; the message contains no password.

    Examples
    --------
    >>> parse_address("kafka://a:9092,b/runs?format=arrow").hosts
    (('a', 9092), ('b', 9092))
    >>> parse_address("file:rows.jsonl").path.endswith("/rows.jsonl")
    True
    """
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in {*_OPTIONS, "kafka"}:
        raise _refused(url, "it begins with no known broker")
    if not url.isprintable():
        raise _refused(url, "it contains unprintable characters")
    if scheme == "file":
        return _file_address(url, rest)
    rest, _, query = rest.partition("?")
    options = _options(url, scheme, query)
    form = _form(url, options.pop("format", "json"))
    if scheme == "mofka":
        path = unquote(rest)
        if not path:
            raise _refused(url, "it names no group file")
        topic = _topic(url, options.pop("topic", DEFAULT_TOPIC))
        return Address(scheme, path=os.path.abspath(path), topic=topic, form=form, options=options)
    return _network_address(url, scheme, rest, form, options)


def _file_address(url: str, rest: str) -> Address:
    path, mark, query = rest.rpartition("?format=")
    if mark and _form(url, query) != "json":
        raise _refused(url, "a file has lines of JSON; Arrow needs a broker")
    path = path if mark else rest
    if path.startswith("//"):
        host, slash, inside = path[2:].partition("/")
        if host not in {"", "localhost"} or not slash:
            raise _refused(url, "a file has no host: write file:PATH or file:///PATH")
        path = f"/{inside}"
    if not path or path.endswith("/"):
        raise _refused(url, "it names no file")
    return Address("file", path=os.path.abspath(path))


def _network_address(
    url: str, scheme: str, rest: str, form: Form, options: dict[str, str]
) -> Address:
    if not rest.startswith("//"):
        raise _refused(url, f"{scheme}: is followed by //HOST")
    authority, _, path = rest[2:].partition("/")
    who, at, where = authority.rpartition("@")
    user, colon, secret = who.partition(":")
    hosts = tuple(_host(url, scheme, text) for text in where.split(","))
    if len(hosts) > 1 and scheme != "kafka":
        raise _refused(url, "only Kafka has several hosts")
    database = 0
    topic = options.pop("stream", DEFAULT_TOPIC)
    if scheme == "kafka":
        topic = unquote(path) or DEFAULT_TOPIC
    elif path:
        if not _DATABASE.fullmatch(path):
            raise _refused(url, "the database of Redis is a number; name the stream: ?stream=NAME")
        database = int(path)
    return Address(
        scheme,
        hosts,
        unquote(user) if at and user else None,
        unquote(secret) if at and colon and secret else None,
        database,
        _topic(url, topic),
        form=form,
        options=options,
    )


def _host(url: str, scheme: str, text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?", text, re.ASCII)
    if found is None or not _HOST.fullmatch(found[1]):
        raise _refused(url, "it has no valid host; write kafka://HOST:PORT, redis://HOST:PORT")
    port = int(found[2] or _DEFAULT_PORTS[scheme])
    if not 0 < port < 1 << 16:
        raise _refused(url, "its port is out of range")
    return found[1], port


def _options(url: str, scheme: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, equal, value = (unquote(text) for text in part.partition("="))
        if not equal or not _OPTION.fullmatch(name) or name in options:
            raise _refused(url, "its options are not of the form ?name=value&name=value")
        if scheme == "kafka" and name != "format":
            if _REFUSED.fullmatch(name):
                raise _refused(url, f"the option {name} cannot be set in an address")
        elif name not in _OPTIONS.get(scheme, {"format"}):
            known = ", ".join(sorted(_OPTIONS[scheme]))
            raise _refused(url, f"there is no option {name}; there are: {known}")
        options[name] = value
    return options


def _form(url: str, text: str) -> Form:
    if text not in {"json", "arrow"}:
        raise _refused(url, "its format is neither json nor arrow")
    return cast("Form", text)


def _topic(url: str, text: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise _refused(url, "the name of its topic has characters other than A-Z a-z 0-9 . _ : -")
    return text


def _refused(url: str, reason: str) -> UsageError:
    """Return the error of a URL without its options, and without all that may be a password."""
    scheme = re.match(r"[a-z+]{1,20}:", url)
    shown = url.partition("?")[0][:200]
    if "@" in url:
        shown = f"{scheme[0] if scheme else ''}{_HIDDEN}"
    return UsageError(f"{shown!a} is not the address of a stream: {reason}.", hint=EXAMPLES)

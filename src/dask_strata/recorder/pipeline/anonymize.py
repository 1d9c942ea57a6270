"""What is left out on purpose: it is replaced before anything is written, by what columns may tell.

Hosts, files and users keep a name each, so that a run still says which of them were the same.
The name is a keyed hash; its key is made for each run and is not written anywhere. All of this
is done on the recorder's thread, and only where something is left out.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import re
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask_strata.config import Settings
from dask_strata.schema import LEFT_OUT, RECORDED
from dask_strata.store.frames import Batch, Encoder, Sparse

#: What may stand in any text, and is looked for there.
_NAMES = frozenset({"hosts", "paths", "users"})

#: What else makes a column of its kind too telling to be kept.
_DROPPED_WITH = {
    "code": _NAMES | {"code"},
    "error": _NAMES | {"errors"},
    "text": _NAMES,
}

#: Facts of the job layer that tell numbers and kinds only.
_HARMLESS_FACT = re.compile(
    r"(?:cpu|memory|limit|locale|time|dask-strata)\..+|os\.(?:name|kernel|architecture|distribution)"
    r"|launcher|gpu\.(?:driver|\w+\.(?:driver|memory|model))|process\.(?:pid|ppid|started)"
    r"|filesystem\.\w+\.(?:free|size|type|used-for)|network\.[^.]+\.(?:kind|mtu|up|speed-mbps)"
    r"|job\.(?:array-id|array-task|memory-limit|node-count|slots|time-limit)"
)
_HARMLESS_SCRIPT = re.compile(r"kind|sha256|git_commit|git_dirty|exit_status")
_ARGUMENTS = re.compile(r"argv|command|process\.(?:arguments|command-line|parent-command-line)")
_SOURCES = frozenset({"default", "inherited", "set at run time"})

_COMM = r"\b(?:tcp|tls|ucxx?|wss?|inproc)://"
_START = r"(?<![\w/.~])"
_END = r"""[^\s'"<>|,;()\[\]{}]"""
_FOUND = (
    rf"(?P<comm>{_COMM})(?P<host>\[[^\]\s]*\]|[^\s:/'\",;()\[\]]+)",
    rf"(?P<path>\b[A-Za-z][\w+.-]*://{_END}+|{_START}[A-Za-z]:\\{_END}+"  # noqa: ISC004
    rf"|{_START}(?:~\w*|\.{{1,2}})?/(?!proc/|sys/)[^\s'\"<>|,;:()\[\]{{}}]+)",
    r"(?P<ip>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d))",
    # Dask names clients by a time and the number of the host's network card.
    r"(?P<time>\b[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[0-9a-f]{4}-)(?P<card>[0-9a-f]{12})\b",
)

#: Distinct texts whose replacement is remembered.
_REMEMBERED = 20_000


def with_secret(settings: Settings) -> Settings:
    """Return settings by which all processes of a run give the same names."""
    if not settings.leave_out or settings.leave_out_secret:
        return settings
    return replace(settings, leave_out_secret=secrets.token_hex(16))


def left_out(settings: Settings) -> tuple[str, ...]:
    """Return what these settings leave out, in the words of the setting."""
    return tuple(sorted({*settings.leave_out, *(() if settings.inputs else ("inputs",))}))


def encoder_for(settings: Settings, process: str, facts: Mapping[str, Any]) -> Encoder:
    """Return what makes frames of rows, without what is to be left out."""
    if not settings.leave_out:
        return Encoder(process, facts)
    return _Leaving(settings, process, facts)


class _Leaving(Encoder):
    def __init__(self, settings: Settings, process: str, facts: Mapping[str, Any]) -> None:
        self._replacing = Replacing(settings)
        super().__init__(process, self._replacing.facts(facts))

    def frame(self, batches: Sequence[Batch]) -> bytes:
        """Return the frame of these batches, as they may be written."""
        return super().frame([self._replacing.batch(batch) for batch in batches])


class Replacing:
    """Replaces what is left out, in rows and in single facts.

    Parameters
    ----------
    settings : Settings
        What is left out, and the key of the names that stand for it.
    """

    def __init__(self, settings: Settings) -> None:
        self._what = frozenset(settings.leave_out)
        self._key = (settings.leave_out_secret or secrets.token_hex(16)).encode()
        self._known: dict[str, str] = {}
        here = [socket.gethostname(), socket.getfqdn()] if "hosts" in self._what else []
        self._words = {word: "host" for word in here if word}
        if "users" in self._what:
            self._words[_user()] = "user"
        # The longest first: one may be the beginning of another.
        words = "|".join(map(re.escape, sorted(self._words, key=len, reverse=True)))
        found = [*_FOUND, rf"(?P<word>(?<!\w)(?:{words})(?!\w))"] if words else [*_FOUND]
        self._pattern = re.compile("|".join(found))
        self._rules: dict[tuple[str, str], Callable[[Any], Any] | None] = {}
        for table in RECORDED.values():
            for column in table.all_columns:
                self._rules[table.name, column.name] = self._rule(column.kind, column.sensitivity)

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return single facts as they may be written; a fact named ``host`` is one."""
        return {
            name: self._host(value) if name == "host" else self.text(value)
            for name, value in facts.items()
        }

    def batch(self, batch: Batch) -> Batch:
        """Return a batch as it may be written, with as many rows."""
        columns = dict(batch.columns)
        if (by_row := _BY_ROW.get(batch.table)) is not None:
            names, values, sources = (
                _listed(columns.get(name), batch.n) for name in ("name", "value", "source")
            )
            for i, name in enumerate(names):
                values[i], sources[i] = by_row(self._what, str(name), values[i], sources[i])
            columns["value"] = values
            if "source" in columns:
                columns["source"] = sources
        for name, column in columns.items():
            rule = self._rules.get((batch.table, name))
            if rule is not None:
                columns[name] = _mapped(rule, column)
        return Batch(batch.table, batch.n, columns)

    def text(self, value: Any) -> Any:
        """Return a text without addresses, absolute paths, and names of this host and user."""
        if value.__class__ is not str or not self._what & _NAMES:
            return value
        known = self._known.get(value)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[value] = self._pattern.sub(self._found, value)
        return known

    def _found(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup, match.group()
        if kind == "host" and "hosts" in self._what:
            return match["comm"] + self._name("host", match["host"])
        if kind == "path" and "paths" in self._what:
            return self._name("path", text)
        if kind == "card" and "hosts" in self._what:
            return match["time"] + self._name("", match["card"])
        if kind == "ip" and "hosts" in self._what:
            return self._name("host", text)
        if kind == "word":
            return self._name(self._words[text], text)
        if kind == "path":  # an address or a home may be in it
            return "".join(self._parts(text))
        return text

    def _parts(self, path: str) -> list[str]:
        scheme, separator, rest = path.partition("://")
        if not separator:
            scheme, rest = "", path
        authority, slash, inner = rest.partition("/")
        if separator and "hosts" in self._what and authority:
            authority = self._name("host", authority)
        parts = [
            self._name("user", p) if self._words.get(p) == "user" else p for p in inner.split("/")
        ]
        return [scheme, separator, authority, slash, "/".join(parts)]

    def _name(self, kind: str, text: str) -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), key=self._key, digest_size=6)
        return f"{kind}-{digest.hexdigest()}" if kind else digest.hexdigest()

    def _host(self, value: Any) -> Any:
        if "hosts" not in self._what or value is None or str(value).isdecimal():
            return self.text(value)
        return self._name("host", str(value))

    def _path(self, value: Any) -> Any:
        return value if value is None else self._name("path", str(value))

    def _rule(self, kind: str, sensitivity: str) -> Callable[[Any], Any] | None:
        if sensitivity in _DROPPED_WITH and self._what & _DROPPED_WITH[sensitivity]:
            return lambda value: None if value is None else LEFT_OUT
        if sensitivity == "path" and "paths" in self._what:
            return self._path
        if sensitivity == "host" and "hosts" in self._what:
            return self._host
        if sensitivity == "nothing" or not self._what & _NAMES:
            return None
        if kind == "intervals":
            return lambda value: value and [(*rest, self.text(source)) for *rest, source in value]
        return self.text if kind in ("text", "long", "key") else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a number without a name
        return ""


def _listed(column: Any, n: int) -> list[Any]:
    if isinstance(column, list):
        return list(column)
    if isinstance(column, Sparse):
        values = dict(zip(column.rows, column.values, strict=True))
        return [values.get(i) for i in range(n)]
    return [column] * n


def _mapped(rule: Callable[[Any], Any], column: Any) -> Any:
    if isinstance(column, list):
        return [rule(value) for value in column]
    if isinstance(column, Sparse):
        return Sparse(column.rows, [rule(value) for value in column.values])
    return rule(column)


_Row = Callable[[frozenset[str], str, Any, Any], tuple[Any, Any]]


def _fact(what: frozenset[str], name: str, value: Any, source: Any) -> tuple[Any, Any]:
    out = bool(what & _NAMES) and _HARMLESS_FACT.fullmatch(name) is None
    out |= "arguments" in what and _ARGUMENTS.fullmatch(name) is not None
    out |= "code" in what and name == "job.script"
    # What was read from a variable has the variable as its source.
    from_variable = str(source).isidentifier() and str(source).isupper()
    out |= "environment" in what and (name.startswith("environment.") or from_variable)
    return (LEFT_OUT, None) if out else (value, source)


def _setting(what: frozenset[str], _: str, value: Any, source: Any) -> tuple[Any, Any]:
    if not what & _NAMES:
        return value, source
    try:
        plain = isinstance(json.loads(value), (bool, int, float, type(None)))
    except (ValueError, TypeError):
        plain = False
    harmless = source in _SOURCES or str(source).isidentifier()
    return value if plain else json.dumps(LEFT_OUT), source if harmless else LEFT_OUT


def _script(what: frozenset[str], name: str, value: Any, source: Any) -> tuple[Any, Any]:
    out = bool(what & _NAMES) and _HARMLESS_SCRIPT.fullmatch(name) is None
    out |= "arguments" in what and _ARGUMENTS.fullmatch(name) is not None
    return (LEFT_OUT, source) if out else (value, source)


#: Tables in which what a row tells depends on its name.
_BY_ROW: dict[str, _Row] = {"job": _fact, "config": _setting, "script": _script}

"""Replacement of left-out facts in rows; see the setting ``leave-out``.

Each column has a sensitivity, which decides whether and how its values are replaced. A host, path
or user is replaced by a keyed hash, so that equal ones stay recognisable within a run. The key is
random for each run and never written.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any

from dask_strata.config import Settings
from dask_strata.schema import LEFT_OUT, RECORDED
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch

#: Classes of facts that any text may contain; texts are searched for them.
_NAMES = frozenset({"hosts", "paths", "users"})

#: Left-out classes for which columns of a sensitivity are replaced as a whole.
_DROPPED_WITH = {
    "code": _NAMES | {"code"},
    "error": _NAMES | {"errors"},
    "text": _NAMES,
}

#: Facts of the job layer that contain only numbers and kinds, no names.
_HARMLESS_FACT = re.compile(
    r"(?:cpu|memory|limit|locale|time|dask-strata)\..+|os\.(?:name|kernel|architecture|distribution)"
    r"|launcher|gpu\.(?:driver|\w+\.(?:driver|memory|model))|process\.(?:pid|ppid|started)"
    r"|filesystem\.\w+\.(?:free|size|type|used-for)|network\.[^.]+\.(?:kind|mtu|up|speed-mbps)"
    r"|job\.(?:array-id|array-task|memory-limit|node-count|slots|time-limit)"
)
_HARMLESS_SCRIPT = re.compile(r"kind|name|sha256|git_commit|git_dirty|exit_status")
_ARGUMENTS = re.compile(r"argv|command|process\.(?:arguments|command-line|parent-command-line)")
_SOURCES = frozenset({"default", "inherited", "set at run time"})

#: Class of facts that a kind of name belongs to.
_WORDS = {"host": "hosts", "user": "users"}

_COMM = r"\b(?:tcp|tls|ucxx?|wss?|inproc)://"
_START = r"(?<![\w/.~])"
_END = r"""[^\s'"<>|,;()\[\]{}]"""
_ADDRESS = rf"\b[A-Za-z][\w+.-]*://{_END}+"
_WINDOWS_PATH = rf"{_START}[A-Za-z]:\\{_END}+"
_POSIX_PATH = rf"{_START}(?:~\w*|\.{{1,2}})?/(?!proc/|sys/)[^\s'\"<>|,;:()\[\]{{}}]+"
_FOUND = (
    rf"(?P<comm>{_COMM})(?P<host>\[[^\]\s]*\]|[^\s:/'\",;()\[\]]+)",
    rf"(?P<path>{_ADDRESS}|{_WINDOWS_PATH}|{_POSIX_PATH})",
    r"(?P<ip>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d))",
    # The id of a Dask client contains a time and the address of the host's network card.
    r"(?P<time>\b[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[0-9a-f]{4}-)(?P<card>[0-9a-f]{12})\b",
)

#: Every text that a pattern above matches has one of these: a slash, a part of an address or an id.
_HINT = r"[/\\]|\p{Nd}\.\p{Nd}|-1[0-9a-f]{3}-"

#: Number of distinct texts whose replacements are cached.
_MAX_CACHED = 20_000


class Replacing:
    """Replaces left-out facts in rows and in single facts.

    Parameters
    ----------
    settings : Settings
        Settings with the left-out classes and the secret of the run.
    names : mapping of str to str, optional
        Names to search texts for: ``host`` or ``user`` by name. By default those of this process's
        host and user.

    Examples
    --------
    >>> from dask_strata.config import read_settings
    >>> replacing = Replacing(read_settings({"leave-out": "paths", "leave-out-secret": "s"}))
    >>> replacing.text("cannot read /data/x.csv").startswith("cannot read path-")
    True
    """

    def __init__(self, settings: Settings, names: Mapping[str, str] | None = None) -> None:
        self._classes = frozenset(settings.leave_out)
        self._key = (settings.leave_out_secret or secrets.token_hex(16)).encode()
        self._known: dict[str, str] = {}
        kinds = {kind for kind, name in _WORDS.items() if name in self._classes}
        found_names = _own_names() if names is None else names
        self._words = {name: kind for name, kind in found_names.items() if name and kind in kinds}
        # Longest first, because one word may be a prefix of another.
        words = "|".join(map(re.escape, sorted(self._words, key=len, reverse=True)))
        found = [*_FOUND, rf"(?P<word>(?<!\w)(?:{words})(?!\w))"] if words else [*_FOUND]
        self._pattern = re.compile("|".join(found))
        #: Pattern of RE2, Arrow's engine: each text that `text` changes matches it.
        self.hint = "|".join((_HINT, *map(re.escape, self._words)))
        self._rules: dict[tuple[str, str], Callable[[Any], Any] | None] = {}
        for table in RECORDED.values():
            for column in table.all_columns:
                self._rules[table.name, column.name] = self._rule(column.kind, column.sensitivity)

    def rule(self, table: str, column: str) -> Callable[[Any], Any] | None:
        """Return the function that replaces the values of a column; None if they stay."""
        return self._rules.get((table, column))

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return facts with left-out ones replaced.

        Parameters
        ----------
        facts : mapping
            Facts by name; the value of ``host`` is a host name.
        """
        return {
            name: self._host(value) if name == "host" else self.text(value)
            for name, value in facts.items()
        }

    def batch(self, batch: Batch) -> Batch:
        """Return a batch with left-out facts replaced; the number of rows stays the same.

        Parameters
        ----------
        batch : Batch
            Rows of a recorded table.
        """
        columns = dict(batch.columns)
        if (by_row := BY_ROW.get(batch.table)) is not None:
            names, values, sources = (
                _listed(columns.get(name), batch.n) for name in ("name", "value", "source")
            )
            for i, name in enumerate(names):
                values[i], sources[i] = by_row(self._classes, str(name), values[i], sources[i])
            columns["value"] = values
            if "source" in columns:
                columns["source"] = sources
        for name, column in columns.items():
            rule = self._rules.get((batch.table, name))
            if rule is not None:
                columns[name] = _mapped(rule, column)
        return Batch(batch.table, batch.n, columns)

    def text(self, value: Any) -> Any:
        """Return a text with left-out addresses, absolute paths, host and user names replaced.

        Parameters
        ----------
        value : object
            The text; other objects are returned unchanged.
        """
        if value.__class__ is not str or not self._classes & _NAMES:
            return value
        known = self._known.get(value)
        if known is None:
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            known = self._known[value] = self._pattern.sub(self._found, value)
        return known

    def _found(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup, match.group()
        if kind == "host" and "hosts" in self._classes:
            return match["comm"] + self._name("host", match["host"])
        if kind == "path" and "paths" in self._classes:
            return self._name("path", text)
        if kind == "card" and "hosts" in self._classes:
            return match["time"] + self._name("", match["card"])
        if kind == "ip" and "hosts" in self._classes:
            return self._name("host", text)
        if kind == "word":
            return self._name(self._words[text], text)
        if kind == "path":  # it may contain a host or a home folder
            return "".join(self._parts(text))
        return text

    def _parts(self, path: str) -> list[str]:
        scheme, separator, rest = path.partition("://")
        if not separator:
            scheme, rest = "", path
        authority, slash, inner = rest.partition("/")
        if separator and "hosts" in self._classes and authority:
            authority = self._name("host", authority)
        parts = [
            self._name("user", p) if self._words.get(p) == "user" else p for p in inner.split("/")
        ]
        return [scheme, separator, authority, slash, "/".join(parts)]

    def _name(self, kind: str, text: str) -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), key=self._key, digest_size=6)
        return f"{kind}-{digest.hexdigest()}" if kind else digest.hexdigest()

    def _host(self, value: Any) -> Any:
        if "hosts" not in self._classes or value is None or str(value).isdecimal():
            return self.text(value)
        return self._name("host", str(value))

    def _path(self, value: Any) -> Any:
        return value if value is None else self._name("path", str(value))

    def _rule(self, kind: str, sensitivity: str) -> Callable[[Any], Any] | None:
        if sensitivity in _DROPPED_WITH and self._classes & _DROPPED_WITH[sensitivity]:
            return lambda value: None if value is None else LEFT_OUT
        if sensitivity == "path" and "paths" in self._classes:
            return self._path
        if sensitivity == "host" and "hosts" in self._classes:
            return self._host
        if sensitivity == "nothing" or not self._classes & _NAMES:
            return None
        if kind == "intervals":
            return lambda value: value and [(*rest, self.text(source)) for *rest, source in value]
        return self.text if kind in ("text", "long", "key") else None


def _own_names() -> dict[str, str]:
    return {_user(): "user", socket.gethostname(): "host", socket.getfqdn(): "host"}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user id has no name
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


def _fact(classes: frozenset[str], name: str, value: Any, source: Any) -> tuple[Any, Any]:
    out = bool(classes & _NAMES) and _HARMLESS_FACT.fullmatch(name) is None
    out |= "arguments" in classes and _ARGUMENTS.fullmatch(name) is not None
    out |= "code" in classes and name == "job.script"
    # The source of a fact from an environment variable is the name of the variable.
    from_variable = str(source).isidentifier() and str(source).isupper()
    out |= "environment" in classes and (name.startswith("environment.") or from_variable)
    return (LEFT_OUT, None) if out else (value, source)


def _setting(classes: frozenset[str], _: str, value: Any, source: Any) -> tuple[Any, Any]:
    if not classes & _NAMES:
        return value, source
    try:
        plain = isinstance(json.loads(value), (bool, int, float, type(None)))
    except (ValueError, TypeError):
        plain = False
    harmless = source in _SOURCES or str(source).isidentifier()
    return value if plain else json.dumps(LEFT_OUT), source if harmless else LEFT_OUT


def _script(classes: frozenset[str], name: str, value: Any, source: Any) -> tuple[Any, Any]:
    out = bool(classes & _NAMES) and _HARMLESS_SCRIPT.fullmatch(name) is None
    out |= "arguments" in classes and _ARGUMENTS.fullmatch(name) is not None
    return (LEFT_OUT, source) if out else (value, source)


#: Tables in which the sensitivity of a row depends on its column ``name``.
BY_ROW: dict[str, _Row] = {"job": _fact, "config": _setting, "script": _script}

"""Identifiers and texts that are valid in every serialisation of PROV and in RO-Crates.

Keys and paths are any text. An identifier has ASCII letters, digits, ``-`` and ``_``; all other
characters are percent-encoded, so that it needs no escape in JSON, PROV-N, Turtle or an IRI.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from urllib.parse import quote

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

#: Longest text that is encoded as a whole, in characters.
_LONGEST = 500
_KEPT = 100

#: Control characters, and halves of surrogate pairs, which have no UTF-8.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@lru_cache(maxsize=10_000)
def encode(text: str) -> str:
    """Return a text as a part of an identifier; a long one ends with its hash.

    Parameters
    ----------
    text : str
        Any text, also with surrogates.

    Examples
    --------
    >>> encode("load-1"), encode("('x', 0)"), encode("-"), encode("a.b")
    ('load-1', '%28%27x%27%2C%200%29', '%2D', 'a%2Eb')
    >>> encode("")
    '%00'
    """
    if _SAFE.fullmatch(text) and len(text) <= _LONGEST:
        return text
    if not text:
        return "%00"
    raw = text.encode("utf-8", "surrogatepass")
    if len(text) > _LONGEST:
        return f"{_quoted(text[:_KEPT])}.{hashlib.sha256(raw).hexdigest()}"
    return _quoted(text)


def _quoted(text: str) -> str:
    found = quote(text.encode("utf-8", "surrogatepass"), safe="")
    found = found.replace(".", "%2E").replace("~", "%7E")
    return f"%2D{found[1:]}" if found.startswith("-") else found


def encode_key(key: str, key_type: str | None) -> str:
    """Return the identifier of a key: keys of different types can have the same text.

    >>> encode_key("7", "str"), encode_key("7", "int")
    ('7', '7.int')
    """
    if key_type == "str":
        return encode(key)
    return f"{encode(key)}.{encode(key_type or '')}"


def plain(text: str) -> str:
    r"""Return a text in which each character that documents cannot contain is replaced.

    >>> plain("a\x00b")
    'a\ufffdb'
    """
    return _UNWRITABLE.sub("\ufffd", text)


def iri(uri: str) -> str:
    """Return the IRI of a file or store: that of a path has the scheme ``file``.

    Parameters
    ----------
    uri : str
        An absolute path, a URL, or any other name.

    Examples
    --------
    >>> iri("/data/a b.txt"), iri("s3://bucket/a b"), iri("name")
    ('file:///data/a%20b.txt', 's3://bucket/a%20b', '#file-name')
    """
    if uri.startswith("/"):
        return "file://" + quote(uri.encode("utf-8", "surrogatepass"), safe="/-._~")
    if _URL.match(uri):
        return quote(uri.encode("utf-8", "surrogatepass"), safe="/:?&=@%+,;-._~!$()*")
    return f"#file-{encode(uri)}"

"""Access to the server: the token, its cookie, names of this server, and pages of other sites."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

_SCHEMES = ("token", "bearer")


class Token:
    """The secret that a browser or a script must send.

    Parameters
    ----------
    text : str
        The secret.

    Examples
    --------
    >>> token = Token("open-sesame")
    >>> token.is_in_header("Bearer open-sesame"), token.is_in_header("Basic open-sesame")
    (True, False)
    >>> token.is_cookie(token.cookie), token.is_cookie("open-sesame")
    (True, False)
    """

    def __init__(self, text: str) -> None:
        self._bytes = text.encode("utf-8", "surrogatepass")

    @property
    def cookie(self) -> str:
        """The cookie of a browser that has sent the token; the token cannot be computed from it."""
        return hmac.new(self._bytes, b"dask-strata serve", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token; the time taken does not depend on the text."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._bytes)

    def is_cookie(self, given: str) -> bool:
        """Return whether a text is the cookie; the time taken does not depend on the text."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.cookie.encode())

    def is_in_header(self, header: str) -> bool:
        """Return whether the ``Authorization`` header of a script has the token."""
        scheme, _, given = header.strip().partition(" ")
        return scheme.lower() in _SCHEMES and self.is_token(given.strip())


def host_of(header: str) -> str:
    """Return the name in a `Host` header, without its port.

    Examples
    --------
    >>> host_of("localhost:8788"), host_of("[::1]:8788"), host_of("::1")
    ('localhost', '::1', '::1')
    """
    name, _, port = header.rpartition(":")
    return (name if name and port.isdecimal() and name[-1] != ":" else header).strip("[]").lower()


def _host_and_port(origin: str) -> str | None:
    """Return host and port of an origin; None if it is malformed."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def is_foreign(host: str, headers: Mapping[str, str]) -> bool:
    """Return whether a page of another origin sent a request.

    A link to this server on a page of another origin is not such a request.

    Parameters
    ----------
    host : str
        The request's ``Host``.
    headers : mapping
        The request's headers. Only browsers send those that are examined.

    Examples
    --------
    >>> is_foreign("localhost:8788", {"Origin": "http://localhost:8788"})
    False
    >>> is_foreign("localhost:8788", {"Origin": "http://evil.example"})
    True
    """
    origin = headers.get("Origin")
    if origin is not None and _host_and_port(origin) != host.lower():
        return True
    site, mode = headers.get("Sec-Fetch-Site", "none"), headers.get("Sec-Fetch-Mode", "navigate")
    return site in ("cross-site", "same-site") and mode != "navigate"

"""The base of all pages: access control, headers, templates and error pages."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import jinja2
from tornado.web import HTTPError, RequestHandler

from dask_strata.errors import (
    NotARunError,
    QueryError,
    StrataError,
    UnknownTaskError,
    UsageError,
)
from dask_strata.report import words
from dask_strata.server.run_cache import RunCache

T = TypeVar("T")

logger = logging.getLogger("dask_strata")

#: Length of the longest query and address, in characters.
LONGEST = 20_000

_COOKIE = "dask_strata_token"

_CSP = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'"
)

_STATUS: dict[type[StrataError], HTTPStatus] = {
    NotARunError: HTTPStatus.NOT_FOUND,
    UnknownTaskError: HTTPStatus.NOT_FOUND,
    QueryError: HTTPStatus.BAD_REQUEST,
    UsageError: HTTPStatus.BAD_REQUEST,
}


@dataclass(frozen=True)
class ServerContext:
    """The objects that all handlers share.

    Parameters
    ----------
    runs : RunCache
        The runs.
    hosts : frozenset of str
        Names that a request's `Host` header may contain; empty if any.
    token : str or None
        Secret that a browser must send; None if no secret is required.
    threads : ThreadPoolExecutor
        Threads that process requests.
    templates : jinja2.Environment
        Templates of the pages.
    """

    runs: RunCache
    hosts: frozenset[str]
    token: str | None
    threads: ThreadPoolExecutor
    templates: jinja2.Environment


def make_templates() -> jinja2.Environment:
    """Return the templates; they escape all values."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": words.duration,
        "size": words.size,
        "visible": words.visible,
        "query": urlencode,
    }
    return made


class Page(RequestHandler):  # type: ignore[misc]  # Tornado has no types here
    """Base of all handlers: access control, headers and error pages."""

    def initialize(self, context: ServerContext) -> None:
        """Store the objects that all handlers share."""
        self.context = context

    def set_default_headers(self) -> None:
        """Forbid the browser to load anything from other sites, and to cache pages."""
        self.set_header("Content-Security-Policy", _CSP)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> None:
        """Refuse requests with a foreign name in `Host`, a too long address or no token.

        A foreign name means that another site resolves its name to this machine, to read the
        pages with its own scripts (DNS rebinding).
        """
        hosts = self.context.hosts
        if hosts and _host(self.request.host) not in hosts:
            self.refuse(
                HTTPStatus.FORBIDDEN, "This server does not accept requests under that name."
            )
        elif len(self.request.uri or "") > LONGEST:
            self.refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long.")
        elif self.context.token is not None:
            self._check_token(self.context.token)

    def _check_token(self, token: str) -> None:
        given = self.get_query_argument("token", None)
        if given is not None and _same(given, token):
            self.set_cookie(_COOKIE, token, httponly=True, samesite="Strict")
            rest = [(n, v) for n, v in parse_qsl(self.request.query) if n != "token"]
            # A path that begins with `//` or `/\` would redirect to another server.
            path = "/" + self.request.path.lstrip("/\\")
            self.redirect(path + (f"?{urlencode(rest)}" if rest else ""))
        elif not _same(self.get_cookie(_COOKIE) or "", token):
            message = "This server requires a token: open the address that it printed (?token=…)."
            self.refuse(HTTPStatus.UNAUTHORIZED, message)

    def refuse(self, status: HTTPStatus, message: str, hint: str | None = None) -> None:
        """Respond with an error page."""
        self.clear()
        self.set_status(status)
        self.show("error.html", title=status.phrase, message=message, hint=hint)

    def show(self, template: str, **values: Any) -> None:
        """Respond with a page from a template."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        # Characters that UTF-8 cannot encode, such as lone surrogates, become question marks.
        page = self.context.templates.get_template(template).render(**values)
        self.finish(page.encode("utf-8", "replace"))

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of a function that runs in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.context.threads, function, *args)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Respond with an error page: full text of a StrataError, no details of other errors."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, StrataError):
            status = _STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
            self.refuse(status, error.message, error.hint)
            return
        status = HTTPStatus(status_code)
        texts = {
            HTTPStatus.NOT_FOUND: "There is no page at this address.",
            HTTPStatus.METHOD_NOT_ALLOWED: "This page does not accept that method.",
            HTTPStatus.BAD_REQUEST: "The address is malformed.",
        }
        bug = "This is a bug in dask-strata: the terminal of the server shows a traceback."
        self.refuse(status, texts.get(status, bug))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected errors only: a StrataError is on the page."""
        if not isinstance(value, (StrataError, HTTPError)):
            logger.error(
                "dask-strata serve failed at %r", self.request.path, exc_info=(typ, value, tb)
            )


class NotFound(Page):
    """The handler of unknown addresses."""

    def get(self) -> None:
        """Respond with an error page."""
        self.refuse(HTTPStatus.NOT_FOUND, "There is no page at this address.")


def _host(header: str) -> str:
    """Return the name in a `Host` header, without its port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
    return (name or header).strip("[]").lower()


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())

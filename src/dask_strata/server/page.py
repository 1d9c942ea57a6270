"""The base of all pages: access control, headers, templates and error pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import jinja2
from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler

from dask_strata.errors import (
    NotARunError,
    NothingToCompareError,
    QueryError,
    StrataError,
    UnfinishedRunError,
    UnknownTaskError,
    UsageError,
)
from dask_strata.report import words
from dask_strata.report.story import file_lines
from dask_strata.server.access import Token, host_of, is_foreign
from dask_strata.server.hints import browser_hint
from dask_strata.server.run_cache import RunCache
from dask_strata.server.sql import BusyError, SqlProcesses

T = TypeVar("T")

logger = logging.getLogger("dask_strata")

#: Length of the longest query and address, in characters.
LONGEST = 20_000

#: Length of the longest address of a query that a page offers as a link.
LONGEST_LINK = 8_000

#: Seconds in which a client must receive each MiB of a response.
_SEND_SECONDS = 30
_SEND_BYTES = 1 << 20

#: Seconds after which a browser may repeat a request that the server was too busy to answer.
_RETRY_SECONDS = 10

_CSP = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'"
)

_STATUS: dict[type[StrataError], HTTPStatus] = {
    NotARunError: HTTPStatus.NOT_FOUND,
    UnknownTaskError: HTTPStatus.NOT_FOUND,
    UnfinishedRunError: HTTPStatus.CONFLICT,
    NothingToCompareError: HTTPStatus.UNPROCESSABLE_ENTITY,
    QueryError: HTTPStatus.BAD_REQUEST,
    UsageError: HTTPStatus.BAD_REQUEST,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: StrataError) -> HTTPStatus:
    """Return the status of a response that reports an error."""
    return _STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)


@dataclass(frozen=True)
class ServerContext:
    """The objects that all handlers share.

    Parameters
    ----------
    runs : RunCache
        The runs.
    hosts : frozenset of str
        Names that a request's `Host` header may contain; empty if any.
    token : Token or None
        Secret that a browser must send; None if no secret is required.
    cookie : str
        Name of the token's cookie. All servers of a host share their cookies.
    threads : ThreadPoolExecutor
        Threads that process requests about runs.
    list_threads : ThreadPoolExecutor
        Threads for the list of runs, so that it does not wait for requests about runs.
    short_threads : ThreadPoolExecutor
        Threads for short work, such as looking up a run, so that it waits for neither.
    sql : SqlProcesses
        Processes that answer users' queries.
    templates : jinja2.Environment
        Templates of the pages.
    making : dict of str to Future
        Pages of runs that are being made, by the name of the run.
    """

    runs: RunCache
    hosts: frozenset[str]
    token: Token | None
    cookie: str
    threads: ThreadPoolExecutor
    list_threads: ThreadPoolExecutor
    short_threads: ThreadPoolExecutor
    sql: SqlProcesses
    templates: jinja2.Environment
    making: dict[str, asyncio.Future[Any]] = field(default_factory=dict)


def quoted(name: str) -> str:
    r"""Return the name of a run, quoted for an address.

    Bytes of a file name that are no UTF-8 are quoted as they are, see `Page.decode_argument`.

    Examples
    --------
    >>> quoted("a/b ü"), quoted("caf\udce9"), quoted("\ud800")
    ('a%2Fb%20%C3%BC', 'caf%E9', '%3F')
    """
    try:
        return quote(name, safe="", errors="surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate, which is in no file name
        return quote(name, safe="", errors="replace")


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
        "lines": partial(words.visible, keep_lines=True),
        "query": partial(urlencode, errors="replace"),
        "urlencode": quoted,
    }
    made.globals |= {"file_lines": file_lines}
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
        # With `no-referrer`, browsers send `Origin: null` with forms of this server's own pages.
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Return an argument, or a part of the path, as a text.

        A file name, and so a part of the path, may contain bytes that are no UTF-8.
        """
        if name is None:
            return value.decode("utf-8", "surrogateescape")
        return str(super().decode_argument(value, name))

    def prepare(self) -> None:
        """Refuse requests of other sites, with a too long address, or without the token.

        A foreign name in `Host` means that another site resolves its name to this machine, to
        read the pages with its own scripts (DNS rebinding).
        """
        hosts = self.context.hosts
        if hosts and host_of(self.request.host) not in hosts:
            self.refuse(
                HTTPStatus.FORBIDDEN, "This server does not accept requests under that name."
            )
        elif is_foreign(self.request.host, self.request.headers):
            self.refuse(HTTPStatus.FORBIDDEN, "This server does not accept that site's requests.")
        elif len(self.request.uri or "") > LONGEST:
            self.refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long.")
        elif self.context.token is not None:
            self._check_token(self.context.token)

    def _check_token(self, token: Token) -> None:
        given = self.get_query_argument("token", None)
        if given is not None and token.is_token(given):
            self.set_cookie(self.context.cookie, token.cookie, httponly=True, samesite="Strict")
            self.set_header("Referrer-Policy", "no-referrer")
            rest = [(n, v) for n, v in parse_qsl(self.request.query) if n != "token"]
            # A path that begins with `//` or `/\` would redirect to another server.
            path = "/" + self.request.path.lstrip("/\\")
            self.redirect(path + (f"?{urlencode(rest)}" if rest else ""))
        elif not (
            token.is_cookie(self.get_cookie(self.context.cookie) or "")
            or token.is_in_header(self.request.headers.get("Authorization", ""))
        ):
            message = "This server requires a token: open the address that it printed (?token=…)."
            self.refuse(HTTPStatus.UNAUTHORIZED, message)

    def respond_with(self, status: HTTPStatus) -> None:
        """Set the status, and the header that browsers expect with it."""
        self.set_status(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.set_header("WWW-Authenticate", "Bearer")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", str(_RETRY_SECONDS))

    def refuse(self, status: HTTPStatus, message: str, hint: str | None = None) -> None:
        """Respond with an error page."""
        self.clear()
        self.respond_with(status)
        self.show("error.html", title=status.phrase, message=message, hint=hint)

    async def send(self, piece: bytes) -> None:
        """Send a part of the response.

        Raises
        ------
        Finish
            The client has closed the connection, or does not receive the part in time: this ends
            the request without an error page.
        """
        self.write(piece)
        try:
            await asyncio.wait_for(self.flush(), _SEND_SECONDS)
        except (StreamClosedError, asyncio.TimeoutError):
            self.request.connection.close()
            raise Finish from None

    def finish(self, chunk: str | bytes | None = None) -> Any:
        """Send the rest of the response; close the connection if the client does not receive it."""
        sent = super().finish(chunk)
        seconds = _SEND_SECONDS * (1 + len(chunk or b"") // _SEND_BYTES)
        late = asyncio.get_running_loop().call_later(seconds, self.request.connection.close)
        sent.add_done_callback(lambda _: late.cancel())
        return sent

    def show(self, template: str, **values: Any) -> None:
        """Respond with a page from a template."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.page_of(template, **values))

    def page_of(self, template: str, **values: Any) -> bytes:
        """Return a page from a template."""
        page = self.context.templates.get_template(template).render(**values)
        # Characters that UTF-8 cannot encode, such as lone surrogates, become question marks.
        return page.encode("utf-8", "replace")

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of a function that runs in a thread."""
        return await self._in(self.context.threads, function, *args)

    async def in_list_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of a function that runs in a thread for the list of runs."""
        return await self._in(self.context.list_threads, function, *args)

    async def in_short_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of a function that takes little time and runs in a thread."""
        return await self._in(self.context.short_threads, function, *args)

    async def _in(self, threads: ThreadPoolExecutor, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *args)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Respond with an error page: full text of a StrataError, no details of other errors."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, StrataError):
            self.refuse(status_of(error), error.message, browser_hint(error))
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

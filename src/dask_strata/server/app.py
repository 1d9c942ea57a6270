"""The server itself: who may ask, for what, and how it is answered.

Tornado serves it: it comes with Dask, and is kept well. Everything that takes time is done
in threads, so that a slow question keeps no other waiting.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import jinja2
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

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

#: Questions that are answered at the same time.
_THREADS = 3

#: The longest question, in characters.
LONGEST = 20_000
_LARGEST_BODY = 1 << 20

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
    """What all handlers share.

    Parameters
    ----------
    shelf : RunCache
        The runs.
    hosts : frozenset of str
        Names that the server may be called by; empty if any.
    token : str, optional
        What a browser must know.
    """

    shelf: RunCache
    hosts: frozenset[str]
    token: str | None
    threads: ThreadPoolExecutor
    templates: jinja2.Environment


def make_templates() -> jinja2.Environment:
    """Return the templates; everything that is put into them is escaped."""
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
    """What every page has: who may see it, and what is said when something is wrong."""

    def initialize(self, house: ServerContext) -> None:
        """Take what handlers share."""
        self.house = house

    def set_default_headers(self) -> None:
        """Have the browser load nothing from elsewhere, and keep nothing."""
        self.set_header("Content-Security-Policy", _CSP)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> None:
        """Turn away whoever calls us by another name, does not know the token, or asks at length.

        A foreign name in `Host` means that a page from elsewhere had its name lead here.
        """
        hosts = self.house.hosts
        if hosts and _host(self.request.host) not in hosts:
            self.refuse(HTTPStatus.FORBIDDEN, "This server is not called by that name.")
        elif len(self.request.uri or "") > LONGEST:
            self.refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "That is too long an address.")
        elif self.house.token is not None:
            self._check_token(self.house.token)

    def _check_token(self, token: str) -> None:
        given = self.get_query_argument("token", None)
        if given is not None and _same(given, token):
            self.set_cookie(_COOKIE, token, httponly=True, samesite="Strict")
            rest = [(n, v) for n, v in parse_qsl(self.request.query) if n != "token"]
            # Two slashes, or one the other way, would lead to another server.
            path = "/" + self.request.path.lstrip("/\\")
            self.redirect(path + (f"?{urlencode(rest)}" if rest else ""))
        elif not _same(self.get_cookie(_COOKIE) or "", token):
            what = "This server asks for a token: open the address that it printed, with ?token=…"
            self.refuse(HTTPStatus.UNAUTHORIZED, what)

    def refuse(self, status: HTTPStatus, message: str, hint: str | None = None) -> None:
        """Answer with a page that says what is wrong."""
        self.clear()
        self.set_status(status)
        self.show("error.html", title=status.phrase, message=message, hint=hint)

    def show(self, template: str, **values: Any) -> None:
        """Answer with a page."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        # What is no text, such as half of a character, is shown as a mark.
        page = self.house.templates.get_template(template).render(**values)
        self.finish(page.encode("utf-8", "replace"))

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Do what takes time in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.house.threads, function, *args)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say what is wrong: our own errors as they are, others without what is inside."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, StrataError):
            status = _STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
            self.refuse(status, error.message, error.hint)
            return
        status = HTTPStatus(status_code)
        texts = {
            HTTPStatus.NOT_FOUND: "There is nothing at this address.",
            HTTPStatus.METHOD_NOT_ALLOWED: "That cannot be done here.",
            HTTPStatus.BAD_REQUEST: "This address is not understood.",
        }
        mistake = "A mistake in dask-strata: the terminal that it was started in shows more."
        self.refuse(status, texts.get(status, mistake))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Tell of mistakes only, not of what a user was told."""
        if not isinstance(value, (StrataError, HTTPError)):
            logger.error(
                "dask-strata serve failed at %r", self.request.path, exc_info=(typ, value, tb)
            )


class Nowhere(Page):
    """Any other address."""

    def get(self) -> None:
        """Say that there is nothing."""
        self.refuse(HTTPStatus.NOT_FOUND, "There is nothing at this address.")


def _host(header: str) -> str:
    """Return the name in a `Host` header, without its port."""
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
    return (name or header).strip("[]").lower()


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server that is bound to a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    shelf: RunCache,
    host: str,
    port: int,
    token: str | None,
    started: Callable[[int], None],
) -> None:
    """Serve until the process is told to end.

    Parameters
    ----------
    shelf : RunCache
        The runs.
    host, port : str, int
        Where; port 0 for any that is free.
    token : str, optional
        What a browser must know.
    started : callable
        Is told the port, once anyone can ask.

    Raises
    ------
    OSError
        The port is taken, or not ours to take.
    """
    from dask_strata.server.handlers import routes

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        known = {"localhost", "127.0.0.1", "::1", host} if is_loopback(host) else ()
        with ThreadPoolExecutor(_THREADS, "dask-strata-serve") as threads:
            house = ServerContext(shelf, frozenset(known), token, threads, make_templates())
            application = Application(
                routes(house),
                default_handler_class=Nowhere,
                default_handler_args={"house": house},
                log_function=lambda _: None,
            )
            server = HTTPServer(application, max_body_size=_LARGEST_BODY)
            sockets = bind_sockets(port, host)
            server.add_sockets(sockets)
            started(sockets[0].getsockname()[1])
            await stop.wait()
            server.stop()
            await server.close_all_connections()

    asyncio.run(main())

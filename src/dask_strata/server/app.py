"""The HTTP server: start and stop.

Tornado serves the pages, as Dask depends on it anyway. Queries and files are processed in threads,
so that a slow request does not delay the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from dask_strata.server.handlers import routes
from dask_strata.server.page import NotFound, ServerContext, make_templates
from dask_strata.server.run_cache import RunCache

#: Number of requests that are processed at the same time.
_THREADS = 3

#: Largest body of a request, in bytes.
_LARGEST_BODY = 1 << 20


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on a host.

    Examples
    --------
    >>> is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    runs: RunCache,
    host: str,
    port: int,
    token: str | None,
    started: Callable[[int], None],
) -> None:
    """Serve until the process receives SIGINT or SIGTERM.

    Parameters
    ----------
    runs : RunCache
        The runs.
    host : str
        Name or address of the interface to listen on.
    port : int
        Port to listen on; 0 for a free one.
    token : str or None
        Secret that a browser must send; None if no secret is required.
    started : callable
        Called with the port, once the server accepts requests.

    Raises
    ------
    OSError
        The port is in use, or may not be used.
    """

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        known = {"localhost", "127.0.0.1", "::1", host} if is_loopback(host) else ()
        with ThreadPoolExecutor(_THREADS, "dask-strata-serve") as threads:
            context = ServerContext(runs, frozenset(known), token, threads, make_templates())
            application = Application(
                routes(context),
                default_handler_class=NotFound,
                default_handler_args={"context": context},
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

"""The HTTP server: start and stop.

Tornado serves the pages, as Dask depends on it anyway. Files are processed in threads, queries in
processes, so that a slow request does not delay the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tornado.web import Application

from dask_strata.server.access import Token
from dask_strata.server.connections import LimitedServer
from dask_strata.server.handlers import routes
from dask_strata.server.page import NotFound, ServerContext, make_templates
from dask_strata.server.run_cache import RunCache
from dask_strata.server.sql import SqlProcesses

#: Number of requests about runs that are processed at the same time.
_THREADS = 3

#: Largest body of a request, in bytes.
_LARGEST_BODY = 1 << 20

#: Seconds in which the headers of a request must arrive, and then its body.
_REQUEST_SECONDS = 15

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


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


@dataclass(frozen=True)
class Access:
    """The users of the server, and the limits of their queries.

    Parameters
    ----------
    host : str or None
        Name or address that the server listens on; None for a Unix socket.
    token : str or None
        Secret that a browser must send; None if no secret is required.
    sql_seconds : float
        Time limit of a query, in seconds.
    open_seconds : float
        Time limit for opening a run before a query, in seconds.
    """

    host: str | None
    token: str | None
    sql_seconds: float
    open_seconds: float

    @property
    def hosts(self) -> frozenset[str]:
        """The names that a request's `Host` may contain; empty if any.

        A Unix socket is used through a tunnel, which has a port of loopback at its other end.
        """
        if self.host is None:
            return _LOOPBACK
        return _LOOPBACK | {self.host} if is_loopback(self.host) else frozenset()


def serve(
    runs: RunCache, sockets: Sequence[socket.socket], access: Access, started: Callable[[], None]
) -> None:
    """Serve until the process receives SIGINT or SIGTERM.

    Parameters
    ----------
    runs : RunCache
        The runs.
    sockets : sequence of socket
        Sockets that listen.
    access : Access
        Access to the server.
    started : callable
        Called once the server accepts requests.
    """

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        sql = SqlProcesses(access.sql_seconds, access.open_seconds)
        with (
            ThreadPoolExecutor(_THREADS, "dask-strata-serve") as threads,
            ThreadPoolExecutor(1, "dask-strata-list") as list_threads,
            ThreadPoolExecutor(1, "dask-strata-short") as short_threads,
        ):
            context = ServerContext(
                runs=runs,
                hosts=access.hosts,
                token=None if access.token is None else Token(access.token),
                cookie=f"dask_strata_{_port(sockets)}",
                threads=threads,
                list_threads=list_threads,
                short_threads=short_threads,
                sql=sql,
                templates=make_templates(),
            )
            application = Application(
                routes(context),
                default_handler_class=NotFound,
                default_handler_args={"context": context},
                log_function=lambda _: None,
            )
            server = LimitedServer(
                application,
                max_body_size=_LARGEST_BODY,
                idle_connection_timeout=_REQUEST_SECONDS,
                body_timeout=_REQUEST_SECONDS,
            )
            server.add_sockets(sockets)
            list_threads.submit(runs.rows)  # before somebody opens it
            started()
            await stop.wait()
            server.stop()
            await server.close_all_connections()
            await sql.close()

    asyncio.run(main())


def _port(sockets: Sequence[socket.socket]) -> str:
    """Return the port; empty for a Unix socket."""
    name = sockets[0].getsockname()
    return str(name[1]) if isinstance(name, tuple) else "socket"

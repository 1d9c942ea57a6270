"""The HTTP server with a limit on its connections."""

from __future__ import annotations

import asyncio
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError

#: Number of connections that are open at the same time. A browser opens six to a server.
CONNECTIONS = 128

#: Number of further connections that receive the reason at the same time; others are closed.
_REFUSED = 32

#: Seconds that a refused connection has to send its request, and the bytes that are read of it.
#: Closed before, it could lose the response.
_REFUSED_SECONDS = 1
_REQUEST_BYTES = 1 << 16

_TEXT = b"The server has as many connections as it accepts. Try again in a moment.\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Retry-After: 10\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_TEXT), _TEXT)
)


class LimitedServer(HTTPServer):  # type: ignore[misc]  # Tornado has no types here
    """An HTTP server that refuses connections beyond `CONNECTIONS` with status 503."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Count no connections yet; the parameters are those of `tornado.httpserver.HTTPServer`."""
        super().initialize(*args, **kwargs)
        self._n_open = 0
        self._refusing: set[asyncio.Task[None]] = set()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Serve a new connection, or refuse it."""
        if self._n_open < CONNECTIONS:
            self._n_open += 1
            super().handle_stream(stream, address)
        elif len(self._refusing) < _REFUSED:
            task = asyncio.ensure_future(_refuse(stream))
            self._refusing.add(task)
            task.add_done_callback(self._refusing.discard)
        else:
            stream.close()

    def on_close(self, server_conn: object) -> None:
        """Count a connection of `handle_stream` as closed."""
        self._n_open -= 1
        super().on_close(server_conn)


async def _refuse(stream: IOStream) -> None:
    try:
        await stream.write(_FULL)
        await asyncio.wait_for(
            stream.read_bytes(_REQUEST_BYTES, partial=True), timeout=_REFUSED_SECONDS
        )
    except (StreamClosedError, asyncio.TimeoutError):
        pass
    finally:
        stream.close()

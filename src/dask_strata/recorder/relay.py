"""Sending records to the scheduler over Dask's own connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_SECONDS = 5


def sender(scheduler: Any, operation: str, loop: Any) -> Callable[[str, bytes], None]:
    """Return a function that hands a frame to the scheduler and waits until it has it.

    It is for the writing thread: the event loop does the sending. A call that the scheduler
    no longer answers fails by itself; a message in Dask's own streams that nobody expects
    would cost the connection.

    Parameters
    ----------
    scheduler : distributed.core.PooledRPCCall
        As workers, nannies and clients have it.
    operation : str
        Name of the scheduler's handler.
    loop : tornado.ioloop.IOLoop
        The loop of the worker, nanny or client.
    """

    def send(process: str, frame: bytes) -> None:
        async def call() -> None:
            await getattr(scheduler, operation)(process=process, frame=frame)

        sent = asyncio.run_coroutine_threadsafe(call(), loop.asyncio_loop)
        try:
            sent.result(_SECONDS)
        finally:
            sent.cancel()

    return send

"""Sending records to the scheduler over Dask's own connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dask_strata.store.manifest import MANIFEST, SEGMENTS, SUFFIX
from dask_strata.store.sinks import CallSink, FileSink, Sink

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


def open_sink(
    folder: Path, process: str, run_id: str, send: Callable[[bytes], None] | None, header: bytes
) -> Sink:
    """Return a file in the run's folder, or the comm where the folder cannot be written.

    Parameters
    ----------
    folder : Path
        Folder of the run, as this process sees it.
    process : str
        Id of the process, and name of its file.
    run_id : str
        Id of the run; a folder of another run is not written to.
    send : callable or None
        Sends a frame to the scheduler.
    header : bytes
        First frame.

    Raises
    ------
    OSError
        The folder cannot be written, and ``send`` is None.
    """
    try:
        if run_id not in (folder / MANIFEST).read_text(encoding="utf-8"):
            raise FileNotFoundError(f"{folder} is another run")
        return FileSink(folder / SEGMENTS / f"{process}{SUFFIX}", header)
    except (OSError, UnicodeDecodeError):
        if send is None:
            raise
        return CallSink(send, header)

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
    """Return a function that sends a frame to the scheduler and waits for its reply.

    Call the function on the writer thread; the event loop sends the frame. It uses an RPC call,
    which merely fails if the scheduler has removed the handler. An unknown message in Dask's own
    batched streams would close the connection instead.

    Parameters
    ----------
    scheduler : distributed.core.PooledRPCCall
        The attribute ``scheduler`` of a worker, nanny or client.
    operation : str
        Name of the scheduler's handler.
    loop : tornado.ioloop.IOLoop
        The loop of the worker, nanny or client.

    Returns
    -------
    callable
        Takes ``(process, frame)``. Raises if the scheduler does not reply within 5 s.
    """

    def send(process: str, frame: bytes) -> None:
        async def call() -> None:
            await getattr(scheduler, operation)(process=process, frame=frame)

        coroutine = call()
        try:
            sent = asyncio.run_coroutine_threadsafe(coroutine, loop.asyncio_loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise
        try:
            sent.result(_SECONDS)
        finally:
            sent.cancel()

    return send


def open_sink(
    folder: Path, process: str, run_id: str, send: Callable[[bytes], None] | None, header: bytes
) -> Sink:
    """Return a sink for frames: a file in the run's folder, or else the scheduler.

    Frames are sent to the scheduler if the folder cannot be written, or belongs to another run.

    Parameters
    ----------
    folder : Path
        Folder of the run, as this process sees it.
    process : str
        Id of the process; also the name of its file.
    run_id : str
        Id of the run, which the folder's manifest must contain.
    send : callable or None
        Sends a frame to the scheduler.
    header : bytes
        First frame of the sink.

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

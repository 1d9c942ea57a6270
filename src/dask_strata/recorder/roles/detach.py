"""Detaching the recorders of all workers and nannies, within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from distributed.core import Status

#: Longest wait for replies of all workers, and then of all nannies: longer than one of them needs
#: to end its recording.
_SECONDS = 8
_RETRY_SECONDS = 0.2


async def detach_all(scheduler: Any, name: str) -> AsyncIterator[str]:
    """Remove a plugin from all workers and nannies; yield a text for each error.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler, on whose event loop this runs.
    name : str
        Name of the plugin.
    """
    for nanny in (False, True):
        try:
            await asyncio.wait_for(_remove_plugin(scheduler, name, nanny=nanny), _SECONDS)
        except Exception as error:  # noqa: BLE001  a worker that hangs must not block the end
            if scheduler.status is not Status.running:
                return  # the scheduler closes, and the recorders end with it
            yield f"{type(error).__name__}: {error or f'no reply within {_SECONDS} s'}"


async def _remove_plugin(scheduler: Any, name: str, *, nanny: bool) -> None:
    plugins = scheduler.nanny_plugins if nanny else scheduler.worker_plugins
    if plugins.pop(name, None) is None:
        return
    # Unlike Dask's own method, send the message once to each server and skip those that have left.
    message = {"op": "plugin_remove" if nanny else "plugin-remove", "name": name}
    # While a nanny replaces its worker, two workers may briefly have the same nanny.
    servers = {(ws.nanny if nanny else w): w for w, ws in scheduler.workers.items()}
    remaining = [worker for server, worker in servers.items() if server]
    while remaining:
        answers = await scheduler.broadcast(
            msg=message, workers=remaining, nanny=nanny, on_error="return"
        )
        # Retry unreachable workers: they may be shutting down.
        failed = [w for w, answer in answers.items() if isinstance(answer, Exception)]
        if failed:
            await asyncio.sleep(_RETRY_SECONDS)
        remaining = [w for w in failed if w in scheduler.workers]

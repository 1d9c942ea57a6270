"""How the recorders of workers and nannies are taken off: each is asked, none is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from distributed.core import Status

#: How long a detaching scheduler waits for workers, and for nannies, that do not answer: longer
#: than the end of a recording takes on one of them.
_SECONDS = 8
_RETRY_SECONDS = 0.2


async def take_off(scheduler: Any, name: str) -> AsyncIterator[str]:
    """Have the plugin of a name removed from all workers and nannies; yield what went wrong."""
    for nanny in (False, True):
        try:
            await asyncio.wait_for(_ask(scheduler, name, nanny=nanny), _SECONDS)
        except Exception as error:  # noqa: BLE001  a worker that hangs must not keep us here
            if scheduler.status is not Status.running:
                return  # it closes, and everyone ends with it
            yield f"{type(error).__name__}: {error or f'within {_SECONDS} s'}"


async def _ask(scheduler: Any, name: str, *, nanny: bool) -> None:
    plugins = scheduler.nanny_plugins if nanny else scheduler.worker_plugins
    if plugins.pop(name, None) is None:
        return
    # As Dask does it, but each is asked once only, and who is gone is not waited for.
    message = {"op": "plugin_remove" if nanny else "plugin-remove", "name": name}
    # A nanny whose worker was replaced may for a moment be that of two workers.
    servers = {(ws.nanny if nanny else w): w for w, ws in scheduler.workers.items()}
    asked = [worker for server, worker in servers.items() if server]
    while asked:
        answers = await scheduler.broadcast(
            msg=message, workers=asked, nanny=nanny, on_error="return"
        )
        # Who cannot be reached may be about to end: then it is gone in a moment.
        failed = [w for w, answer in answers.items() if isinstance(answer, Exception)]
        if failed:
            await asyncio.sleep(_RETRY_SECONDS)
        asked = [w for w in failed if w in scheduler.workers]

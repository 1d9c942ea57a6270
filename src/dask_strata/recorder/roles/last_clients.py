"""Clients whose rows leave with the scheduler: they end before it closes its connections.

Rows that are sent to the scheduler, or written to a folder that it passes on, are lost after its
end, and Dask does not announce this end to clients. So such a client subscribes to a topic of the
run, where the scheduler's recorder logs an event; then it waits for the last rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from dask_strata.recorder.pipeline.source import Source

_WAIT_SECONDS = 0.02

#: Pause between two events that ask clients to end.
_AGAIN_SECONDS = 0.5

#: Delay after which no event of an ended subscription is on its way.
_FORGET_SECONDS = 2


def client_topic(run_id: str) -> str:
    """Return the topic of the events between the scheduler and these clients.

    >>> client_topic("0a1b2c3d")
    'dask-strata-0a1b2c3d-client'
    """
    return f"dask-strata-{run_id}-client"


class LastClients:
    """The scheduler's side: which clients it has to end, and the event that ends them.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    run_id : str
        Id of the run.
    """

    def __init__(self, scheduler: Any, run_id: str) -> None:
        self._scheduler, self._topic = scheduler, client_topic(run_id)
        self._clients: set[str] = set()

    def logged(self, msg: dict[str, Any]) -> None:
        """Note that a client has begun or ended its recording."""
        client = str(msg.get("client"))
        if msg.get("records") is True:
            self._clients.add(client)
        elif msg.get("records") is False:
            self._clients.discard(client)

    def _present(self) -> set[str]:
        # A client that has lost its connection may be back, with the same id.
        return self._clients.intersection(self._scheduler.clients)

    async def end(self, seconds: float) -> set[str]:
        """End the recordings of these clients; return those that did not answer in time.

        They are not waited for a second time.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        until = time.monotonic() + seconds
        next_event = 0.0
        while self._present() and time.monotonic() < until:
            if time.monotonic() >= next_event:  # a subscription may arrive after the first event
                self._scheduler.log_event(self._topic, {"end": True})
                next_event = time.monotonic() + _AGAIN_SECONDS
            await asyncio.sleep(_WAIT_SECONDS)
        silent = self._present()
        self._clients.clear()
        return silent

    def remove(self) -> None:
        """Remove the events from the scheduler, when no client sends one any more."""
        topics = getattr(getattr(self._scheduler, "_broker", None), "_topics", None)
        if isinstance(topics, dict):
            self._scheduler.loop.call_later(_FORGET_SECONDS, topics.pop, self._topic, None)


class EndNotice(Source):
    """The client's side: calls a function when the scheduler's recorder ends.

    It is the last source of its engine, as other sources may write files after the last row.

    Parameters
    ----------
    client : distributed.Client
        The client, on whose event loop this is created.
    run_id : str
        Id of the run.
    end : callable
        Called on the event loop.
    """

    def __init__(self, client: Any, run_id: str, end: Callable[[], None]) -> None:
        self._client, self._topic = client, client_topic(run_id)
        self._end: Callable[[], None] | None = end
        self._in_order = asyncio.Lock()  # two calls may use two connections
        client.subscribe_topic(self._topic, self._received)
        self._report(records=True)

    def _received(self, event: Any) -> None:
        _, msg = event
        end = self._end
        if end is not None and msg.get("end"):
            end()

    def after_last_row(self) -> None:
        """Report that the last row is written."""
        self._end = None  # Dask's client refers to this object for some time
        with contextlib.suppress(Exception):  # the client, its connection or its loop is closed
            self._client.unsubscribe_topic(self._topic)
            self._client.loop.add_callback(self._forget_later)
        self._report(records=False)

    def _forget_later(self) -> None:
        """Remove the handler, which Dask keeps; an event that is on its way needs it."""
        forget = partial(self._client._event_handlers.pop, self._topic, None)  # noqa: SLF001
        self._client.loop.call_later(_FORGET_SECONDS, forget)

    def _report(self, *, records: bool) -> None:
        msg = {"client": self._client.id, "records": records}

        async def log_event() -> None:
            with contextlib.suppress(Exception):  # the scheduler has closed
                async with self._in_order:
                    await self._client.scheduler.log_event(topic=self._topic, msg=msg)

        coroutine = log_event()
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()

"""Sizes of the graphs that a client sends, as it has pickled them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class SentSizes:
    """Notes the size of each graph that a client sends, for the thread that sends it.

    Parameters
    ----------
    client : distributed.Client
        The client; its private method that sends messages is replaced until `restore`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._sizes = threading.local()
        self._wrapper = self._wrapped(client._send_to_scheduler)  # noqa: SLF001  it gets all messages
        client._send_to_scheduler = self._wrapper  # noqa: SLF001  as above

    def _wrapped(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        sizes = self._sizes

        def send_to_scheduler(msg: Any) -> Any:
            if type(msg) is dict and msg.get("op") == "update-graph":
                sizes.last = graph_bytes(msg)
            return original(msg)

        return send_to_scheduler

    def take(self) -> int | None:
        """Return the bytes of the graph that this thread sent last, once; None if unknown."""
        size: int | None = getattr(self._sizes, "last", None)
        self._sizes.last = None
        return size

    def restore(self) -> None:
        """Restore the client's own method, unless other code has replaced it, too."""
        if self._client.__dict__.get("_send_to_scheduler") is self._wrapper:
            del self._client._send_to_scheduler  # noqa: SLF001  as above


def graph_bytes(message: dict[str, Any]) -> int | None:
    """Return the bytes of the graph in a message of a client; None if it has another form.

    Parameters
    ----------
    message : dict
        The message ``update-graph``, with the graph as serialised frames.

    Examples
    --------
    >>> graph_bytes({"op": "update-graph", "graph_frames": [b"12345", memoryview(b"678")]})
    8
    """
    try:
        frames = message.get("graph_frames")
        if frames is None:
            frames = message["expr_ser"].frames
        return sum(memoryview(frame).nbytes for frame in frames)
    except (KeyError, AttributeError, TypeError):
        return None

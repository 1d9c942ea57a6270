"""Streams in Mofka: how messages become events and events messages.

Mofka is on no package index. Its driver is tested by the conformance suite where `mochi.mofka` can
be imported; here only the conversions and the limits of time are.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest

from dask_strata.brokers.message import decode
from dask_strata.brokers.mofka import _Thread, event_of, message_bytes
from dask_strata.errors import BrokerError, MessageError
from tests.brokers.test_messages import FOREIGN, HOSTILE
from tests.support.streams import first_and_last, messages_of


@pytest.mark.parametrize("form", ["json", "arrow"])
@pytest.mark.parametrize("as_text", [True, False], ids=["0.6", "0.8"])
def test_events_become_the_messages_that_were_sent(form: Any, as_text: bool) -> None:  # noqa: FBT001
    """Metadata is a text in version 0.6 and a dictionary in 0.8."""
    for message in (*first_and_last("r"), *messages_of("r", "worker-1", rows=4, form=form)):
        metadata, data = event_of(message)
        text = json.dumps(metadata, allow_nan=False)  # as Mofka stores it: NaN would become null
        received = text if as_text else json.loads(text)
        back = decode(message_bytes(received, [data] if data else []))
        assert (back.run, back.process, back.first) == (message.run, message.process, message.first)
        assert back.content == message.content


def test_values_that_mofka_refuses() -> None:
    """NaN and scalars of NumPy in events of other programs become JSON."""
    metadata = {"a": float("nan"), "b": np.int64(3), "c": np.float32(0.5), "d": {1}}
    assert json.loads(message_bytes(metadata, [])) == {"a": "NaN", "b": 3, "c": 0.5, "d": [1]}


def test_hostile_events_are_refused() -> None:
    """Any metadata gives bytes, which are no message."""
    events: list[tuple[object, list[bytes]]] = [
        (None, []),
        (3, []),
        ([1], []),
        (object(), []),
        ({"format": "arrow", "strata": 1}, []),
        ({"format": "arrow", "strata": 1}, [b"x", b"y"]),
        ('{"format":"arrow","strata":1}', [b"x"]),
        ('{"format":"arrow"' * 100_000, []),
        ("\ud800", []),
        ({"\ud800": 1}, []),
    ]
    events += [(data.decode("utf-8", "replace"), []) for data in HOSTILE.values()]
    events += [({"format": "arrow", "strata": 1}, [data]) for data in FOREIGN.values()]
    for metadata, data in events:
        with pytest.raises(MessageError):
            decode(message_bytes(metadata, data))


def test_a_call_that_never_returns_is_given_up() -> None:
    """`flush` of version 0.6 blocks for ever when the server has ended."""
    thread, never = _Thread(), threading.Event()
    started = time.monotonic()
    with pytest.raises(BrokerError, match="has not answered"):
        thread.call(never.wait, 0.2)
    assert time.monotonic() - started < 5
    never.set()
    assert thread.call(lambda: 3, 5) == 3
    with pytest.raises(BrokerError, match="no such topic"):
        thread.call(lambda: _fail("no such topic"), 5)
    thread.stop()


def _fail(text: str) -> None:
    raise RuntimeError(text)

"""Gathers and scatters of a client: their time and size, and the user's line."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import distributed.utils
from dask.sizeof import sizeof

from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sampling.frames import NOWHERE, Place, other_frames, place_of
from dask_strata.recorder.sampling.places import code_of, place_columns
from dask_strata.store.segments.frames import Batch

#: Most values whose size is measured, and the time for it in seconds.
_MAX_VALUES = 1000
_SECONDS = 0.005

#: Frames between the innermost one of a thread that waits for the event loop, and Dask's `sync`.
_NEAR = 12


class Call(NamedTuple):
    """A gather or a scatter; the columns of a row, and the thread that called it if known."""

    kind: str
    start: int
    stop: int
    n_keys: int | None
    nbytes: int | None
    place: Place
    thread: int | None


_Note = Callable[[Call], None]

#: Number of values and their bytes, from the arguments of a call and its result.
_Measure = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[int | None, int | None]]


class CallSource(Source):
    """Make batches of ``client_calls``.

    Parameters
    ----------
    client : distributed.Client
        The client; its private methods that gather and scatter are replaced.
    follow : callable
        Called with the identity of each thread that calls.
    code : bool
        Whether to record the text of the user's line.
    """

    def __init__(self, client: Any, follow: Callable[[int], None], *, code: bool) -> None:
        self._client, self._follow, self._code = client, follow, code
        self._calls: deque[Call] = deque()
        for name in _METHODS:
            _watch(client, name, self._note)

    def _note(self, call: Call) -> None:
        self._calls.append(call)
        if call.thread is not None:
            self._follow(call.thread)

    def detach(self) -> None:
        """Restore the client's own methods, unless another recording still watches them."""
        for name in _METHODS:
            _unwatch(self._client, name, self._note)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the calls since the last call of this."""
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        if calls:
            yield Batch.of_rows("client_calls", [self._row(call) for call in calls])

    def _row(self, call: Call) -> dict[str, Any]:
        place = place_columns(call.place)
        del place["calls"]
        return {
            "start": call.start,
            "stop": call.stop,
            "client": self._client.id,
            "kind": call.kind,
            "n_keys": call.n_keys,
            "nbytes": call.nbytes,
            **place,
            "code": code_of(call.place) if self._code else None,
        }


def _watch(client: Any, name: str, note: _Note) -> None:
    """Call a function after each call of a method; several functions may watch one client."""
    notes: list[_Note] | None = getattr(client.__dict__.get(name), "strata_notes", None)
    if notes is not None:
        notes.append(note)
    elif hasattr(client, name):
        setattr(client, name, _wrapper(client, name, [note]))


def _unwatch(client: Any, name: str, note: _Note) -> None:
    """Undo `_watch`; after the last function, restore the client's own method."""
    present = client.__dict__.get(name)
    notes: list[_Note] = getattr(present, "strata_notes", [])
    if note in notes:
        notes.remove(note)
    if present is not None and not notes:
        delattr(client, name)


def _wrapper(client: Any, name: str, notes: list[_Note]) -> Callable[..., Any]:
    original = getattr(client, name)
    kind, measure = _METHODS[name]

    @functools.wraps(original)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.time_ns()
        thread, place = _caller(client)
        done, result = False, None
        try:
            result = await original(*args, **kwargs)
            done = True
            return result
        finally:
            stop = time.time_ns()
            n_keys, nbytes = _measured(measure, args, kwargs, result) if done else (None, None)
            for note in list(notes):
                note(Call(kind, start, stop, n_keys, nbytes, place, thread))

    wrapper.strata_notes = notes  # type: ignore[attr-defined]
    return wrapper


def _measured(
    measure: _Measure, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[int | None, int | None]:
    try:
        return measure(args, kwargs, result)
    except Exception:  # noqa: BLE001  a user's objects may raise anything
        return None, None


def _of_gather(
    _: tuple[Any, ...], __: dict[str, Any], result: Any
) -> tuple[int | None, int | None]:
    if result.get("status") != "OK":
        return None, None
    data = result["data"]
    return len(data), _bytes(data.values())


def _of_scatter(
    args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[int | None, int | None]:
    data = args[0] if args else kwargs["data"]
    if isinstance(data, dict) and isinstance(result, dict):
        return len(data), _bytes(data.values())
    if isinstance(result, (list, tuple, set, frozenset)):
        return len(result), None if isinstance(data, Iterator) else _bytes(data)
    return 1, _bytes([data])


def _bytes(values: Collection[Any]) -> int | None:
    """Return the size of values in bytes; None if measuring it takes too long."""
    if len(values) > _MAX_VALUES:
        return None
    total, until = 0, time.monotonic() + _SECONDS
    for value in values:
        total += sizeof(value)
        if time.monotonic() > until:
            return None
    return total


#: Kind of call of each method, and how it is measured. Of a gather, the method that requests
#: results which have been computed.
_METHODS: dict[str, tuple[str, _Measure]] = {
    "_gather_remote": ("gather", _of_gather),
    "_scatter": ("scatter", _of_scatter),
}


def _caller(client: Any) -> tuple[int | None, Place]:
    """Return the thread that waits for the client's event loop, and the user's line in it.

    Without such a thread, the user's line is that of a coroutine on the present stack, if any.
    """
    try:
        with other_frames() as frames:
            waiting = [t for t in frames if _waits_for(frames[t], client.loop)]
            if waiting:
                main = threading.main_thread().ident
                thread = min(waiting, key=lambda t: t != main)
                return thread, place_of(frames[thread])
        place = place_of(sys._getframe(2))  # noqa: SLF001  as Dask does
    except Exception:  # noqa: BLE001  the user's call must not fail
        return None, NOWHERE
    return None, place if place.file is not None else NOWHERE


def _waits_for(innermost: FrameType, loop: Any) -> bool:
    frame: FrameType | None = innermost
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code is _SYNC:
            return frame.f_locals.get("loop") is loop
        frame = frame.f_back
    return False


_SYNC = distributed.utils.sync.__code__

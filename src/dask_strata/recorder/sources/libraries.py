"""Probes in libraries that count their own reads: uproot's counters, coffea's chunks and phases.

This module imports no library. While a recording is under way, it looks for loaded libraries when
a task starts and when a task opens a file, and places probes in them. The end of the last
recording removes the probes.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

from dask_strata.recorder.sources.attribute_probes import Probes, take_note_errors
from dask_strata.recorder.sources.library_reads import LibraryUse

logger = logging.getLogger("dask_strata")

_lock = threading.Lock()
_watchers = 0
_current: ContextVar[Any] | None = None

#: Probes in each module that is watched, by its name.
_placed: dict[str, Probes] = {}


def _after_fork() -> None:
    """Replace the lock in a forked process: a thread of the parent may hold the old one."""
    global _lock  # noqa: PLW0603  a held lock cannot be reset
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: Errors that the next `take_errors` returns, to be recorded as losses.
_errors: deque[str] = deque()

#: Modules without probes so far, perhaps not loaded; empty while no recording is under way.
_awaited: tuple[str, ...] = ()


def attach(current: ContextVar[Any]) -> None:
    """Begin to place probes in the libraries that this process has loaded or loads later.

    Parameters
    ----------
    current : ContextVar
        Holds the execution that the calling code is part of, or None.
    """
    global _watchers, _current, _awaited  # noqa: PLW0603  probes change classes, of which a process has one
    with _lock:
        _watchers += 1
        _current = current
        if sys.version_info < (3, 12) and "threading" not in _placed:
            # Before Python 3.12 no audit event reports the start of a thread.
            _placed["threading"] = Probes()
            _placed["threading"].on_look(threading.Thread, "start", _thread_starting)
        _awaited = tuple(name for name in _PLACERS if name not in _placed)
    place_probes()


def detach() -> None:
    """Undo one `attach`; the last call removes all probes."""
    global _watchers, _awaited  # noqa: PLW0603  as above
    with _lock:
        _watchers -= 1
        if _watchers:
            return
        _awaited = ()
        for probes in _placed.values():
            probes.remove()
        _placed.clear()


def place_probes(execution: Any = None) -> None:
    """Place probes in libraries that were loaded since the last call; never raises.

    Parameters
    ----------
    execution : Execution, optional
        The execution under way; its reads from before the probes are counted later.
    """
    for name in _awaited:
        if name in sys.modules and _is_loaded(name):
            _place(name, execution)


def _place(name: str, execution: Any) -> None:
    global _awaited  # noqa: PLW0603  as above
    # Do not wait: the holder places the probes. It may be this thread, which opened a file in here.
    if not _lock.acquire(blocking=False):
        return
    try:
        if name not in _awaited:
            return
        probes = Probes()
        try:
            _PLACERS[name](probes)
        except Exception as error:  # noqa: BLE001  an unknown version may fail in any way
            probes.remove()
            logger.warning(
                "dask-strata does not record the reads of %s: probes do not fit this version: %s",
                name,
                error,
            )
            _errors.append(f"probes do not fit this version of {name}: {error!r}")
        _awaited = tuple(other for other in _awaited if other != name)
        _placed[name] = probes
        if execution is not None:
            use_of(execution).caught_up = set()
    finally:
        _lock.release()


def take_errors() -> list[str]:
    """Return the errors since the last call, such as libraries that probes do not fit."""
    failed = [f"a probe of a library failed: {text}" for text in take_note_errors()]
    return [*(_errors.popleft() for _ in range(len(_errors))), *failed]


def use_of(execution: Any) -> LibraryUse:
    """Return the `LibraryUse` of an execution; make it on the first call."""
    if execution.library is None:
        execution.library = LibraryUse(execution.thread)
    return execution.library  # type: ignore[no-any-return]


def _thread_starting(thread: Any) -> None:  # noqa: ARG001
    execution = _current.get() if _current is not None else None
    if execution is not None:
        execution.elsewhere.add("threads")


def _using() -> LibraryUse | None:
    execution = _current.get() if _current is not None else None
    return None if execution is None else use_of(execution)


# uproot: a source counts the requests for it, and empty hooks mark the opening of a file.


def _place_uproot(probes: Probes) -> None:
    reading = sys.modules["uproot.reading"]
    source: type = sys.modules["uproot.source.chunk"].Source
    probes.on_change(source, "_num_requested_bytes", _bytes_requested)
    probes.on_change(source, "_num_requests", _requests)
    probes.on_change(source, "_num_requested_chunks", _ranges)
    for kind in _with_subclasses(source):
        probes.on_look(kind, "__exit__", _closing)
    # uproot calls these two empty methods for subclasses to override.
    probes.on_look(reading.ReadOnlyFile, "hook_before_create_source", _opening)
    probes.on_look(reading.ReadOnlyDirectory, "hook_after_keys", _opened)


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    below: type
    for below in kind.__subclasses__():
        yield from _with_subclasses(below)


def _bytes_requested(source: Any, before: Any, value: int, frame: FrameType) -> None:
    use = _using()
    if use is None:
        return
    before = before or 0
    if use.caught_up is not None and id(source) not in use.caught_up:
        # The execution loaded the library: add the bytes from before the probes were in place.
        use.caught_up.add(id(source))
        if before:
            use.add(_path(source), requested=before, ranges_known=False)
    if value > before:
        use.add(_path(source), requested=value - before, span=_span(frame, value - before))


def _requests(source: Any, before: Any, value: int, frame: FrameType) -> None:  # noqa: ARG001
    more = value - (before or 0)
    use = _using() if more > 0 else None
    if use is not None:
        use.add(_path(source), requests=more)


def _ranges(source: Any, before: Any, value: int, frame: FrameType) -> None:  # noqa: ARG001
    more = value - (before or 0)
    use = _using() if more > 0 else None
    if use is not None:
        use.add(_path(source), ranges=more)


def _span(frame: FrameType, requested: int) -> list[tuple[int, int]] | None:
    """Return the requested ranges, from the variables of the method that counts their bytes.

    Return None if they do not add up to the requested bytes.
    """
    variables = frame.f_locals
    spans = variables.get("ranges") or [(variables.get("start"), variables.get("stop"))]
    try:
        known = [(int(start), int(stop)) for start, stop in spans]
    except (TypeError, ValueError):
        return None
    return known if sum(stop - start for start, stop in known) == requested else None


def _opening(file: Any) -> None:  # noqa: ARG001
    use = _using()
    if use is not None:
        use.opening()


def _opened(directory: Any) -> None:
    use = _using()
    if use is not None:
        use.opened(_path(directory._file.source))  # noqa: SLF001  uproot has no public attribute for the file


def _closing(source: Any) -> None:
    use = _using()
    if use is not None:
        use.closing(id(source))


def _path(source: Any) -> str:
    return str(getattr(source, "_file_path_orig", None) or source._file_path)  # noqa: SLF001


# coffea: a factory has the facts of its chunk, and sets an attribute when the events are built.


def _place_factory(probes: Probes) -> None:
    factory = sys.modules["coffea.nanoevents.factory"].NanoEventsFactory
    probes.on_look(factory, "from_root", _building)
    probes.on_look(factory, "from_parquet", _building)
    probes.on_look(factory, "events", _making)
    probes.on_change(factory, "_events", _made)


def _place_executor(probes: Probes) -> None:
    # The Runner calls it when a chunk fails, before it raises the error or skips the chunk.
    probes.on_call(sys.modules["coffea.processor.executor"], "_exception_chain", _failed)


def _failed(error: BaseException) -> None:
    execution = _current.get() if _current is not None else None
    if execution is not None:
        execution.reported["exception", repr(error)] = (1.0, 1)


def _building(factory: Any) -> None:  # noqa: ARG001
    use = _using()
    if use is not None:
        use.building()


def _making(factory: Any) -> None:
    use = _using()
    if use is not None and factory is not None:
        use.making(id(factory))


def _made(factory: Any, before: Any, value: Any, frame: FrameType) -> None:  # noqa: ARG001
    use = _using()
    if use is None:
        return
    if before is not None:
        use.ready(id(factory))
    elif use.is_building and isinstance(factory._partition_key, str):  # noqa: SLF001
        use.seen(id(factory), *_chunk(factory))


def _chunk(factory: Any) -> tuple[dict[str, Any], Any, int]:
    """Return the facts of a factory's chunk, its log of columns, the identity of its source."""
    _, tree, entries = sys.modules["coffea.nanoevents.util"].key_to_tuple(factory._partition_key)  # noqa: SLF001
    first, last = entries.split("-")
    handle = getattr(factory._mapping, "_file_handle", None)  # noqa: SLF001
    source = getattr(getattr(handle, "file", handle), "source", None)
    metadata = factory._schema.form.get("parameters", {}).get("metadata") or {}  # noqa: SLF001
    uri = metadata.get("filename") if source is None else _path(source)
    facts = {
        "dataset": metadata.get("dataset"),
        "uri": uri,
        # A Parquet file has no tree; coffea then writes the text "None".
        "tree": None if tree == "None" else tree.strip("/").partition(";")[0],
        "first": int(first),
        "last": int(last),
    }
    return facts, getattr(factory._mapping, "_access_log", None), id(source)  # noqa: SLF001


def _is_loaded(name: str) -> bool:
    """Return whether a module is completely loaded."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


#: Functions that place probes in a module, by its name.
_PLACERS: dict[str, Callable[[Probes], None]] = {
    "uproot": _place_uproot,
    "coffea.nanoevents.factory": _place_factory,
    "coffea.processor.executor": _place_executor,
}

"""What libraries know of their own reading: uproot's counters, coffea's chunks and phases.

No library is imported here. Probes are placed when one is found to be loaded while somebody
records (looked for when a task starts and when it opens a file), and taken out at the end.
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

from dask_strata.recorder.sources.attribute_probes import Probes
from dask_strata.recorder.sources.library_reads import LibraryUse

logger = logging.getLogger("dask_strata")

_lock = threading.Lock()
_watchers = 0
_current: ContextVar[Any] | None = None

#: Probes in each module that is watched, by its name.
_placed: dict[str, Probes] = {}


def _after_fork() -> None:
    """Give a forked process a lock of its own: the other may have been taken meanwhile."""
    global _lock  # noqa: PLW0603  a lock cannot be made new
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: What went wrong, until somebody puts it on record.
_troubles: deque[str] = deque()

#: Modules that are not loaded yet, as far as we know; none while nobody records.
_awaited: tuple[str, ...] = ()


def attach(current: ContextVar[Any]) -> None:
    """Begin to watch the libraries that this process has loaded, or will have.

    Parameters
    ----------
    current : ContextVar
        The run that the calling code is part of, or None.
    """
    global _watchers, _current, _awaited  # noqa: PLW0603  classes of a library exist once
    with _lock:
        _watchers += 1
        _current = current
        if sys.version_info < (3, 12) and "threading" not in _placed:
            # There is no audit event for it yet.
            _placed["threading"] = Probes()
            _placed["threading"].on_look(threading.Thread, "start", _thread_starting)
        _awaited = tuple(name for name in _PLACERS if name not in _placed)
    look()


def detach() -> None:
    """Watch no longer; the last one to say so leaves the libraries as they were."""
    global _watchers, _awaited  # noqa: PLW0603  as above
    with _lock:
        _watchers -= 1
        if _watchers:
            return
        _awaited = ()
        for probes in _placed.values():
            probes.remove()
        _placed.clear()


def look(run: Any = None) -> None:
    """Place probes in libraries that were loaded since the last look; never raises.

    Parameters
    ----------
    run : Execution, optional
        The run in the midst of which this is: what it did before is made up for.
    """
    for name in _awaited:
        if name in sys.modules and _is_loaded(name):
            _place(name, run)


def _place(name: str, run: Any) -> None:
    global _awaited  # noqa: PLW0603  as above
    # Whoever has the lock sees to it: it may be us, opening a file on the way.
    if not _lock.acquire(blocking=False):
        return
    try:
        if name not in _awaited:
            return
        probes = Probes()
        try:
            _PLACERS[name](probes)
        except Exception as error:  # noqa: BLE001  a version that we do not know
            probes.remove()
            logger.warning("dask-strata does not understand this version of %s: %s", name, error)
            _troubles.append(f"this version of {name} is not understood: {error!r}")
        _awaited = tuple(other for other in _awaited if other != name)
        _placed[name] = probes
        if run is not None:
            use_of(run).made_up_for = set()
    finally:
        _lock.release()


def troubles() -> list[str]:
    """Return what went wrong since the last call."""
    return [_troubles.popleft() for _ in range(len(_troubles))]


def use_of(run: Any) -> LibraryUse:
    """Return what a run uses of libraries, which begins to be known now."""
    if run.library is None:
        run.library = LibraryUse(run.thread)
    return run.library  # type: ignore[no-any-return]


def _thread_starting(thread: Any) -> None:  # noqa: ARG001
    run = _current.get() if _current is not None else None
    if run is not None:
        run.elsewhere.add("threads")


def _using() -> LibraryUse | None:
    run = _current.get() if _current is not None else None
    return None if run is None else use_of(run)


# uproot: a source counts what is requested of it; files tell when they are opened.


def _place_uproot(probes: Probes) -> None:
    reading = sys.modules["uproot.reading"]
    source: type = sys.modules["uproot.source.chunk"].Source
    probes.on_change(source, "_num_requested_bytes", _bytes_requested)
    probes.on_change(source, "_num_requests", _requests)
    probes.on_change(source, "_num_requested_chunks", _ranges)
    for kind in _with_subclasses(source):
        probes.on_look(kind, "__exit__", _closing)
    # Both are empty, and there for others to be told.
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
    if use.made_up_for is not None and id(source) not in use.made_up_for:
        # The library was loaded, and read this, before we knew of it.
        use.made_up_for.add(id(source))
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
    """Return the ranges that a source is asked for, as the method that counts them has them."""
    asked = frame.f_locals
    spans = asked.get("ranges") or [(asked.get("start"), asked.get("stop"))]
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
        use.opened(_path(directory._file.source))  # noqa: SLF001  no public way to its file


def _closing(source: Any) -> None:
    use = _using()
    if use is not None:
        use.closing(id(source))


def _path(source: Any) -> str:
    return str(getattr(source, "_file_path_orig", None) or source._file_path)  # noqa: SLF001


# coffea: a factory of events knows the chunk, and when the events are there.


def _place_factory(probes: Probes) -> None:
    factory = sys.modules["coffea.nanoevents.factory"].NanoEventsFactory
    probes.on_look(factory, "from_root", _building)
    probes.on_look(factory, "from_parquet", _building)
    probes.on_look(factory, "events", _making)
    probes.on_change(factory, "_events", _made)


def _place_executor(probes: Probes) -> None:
    # Asked by the Runner when a chunk failed, before it raises or skips it.
    probes.on_call(sys.modules["coffea.processor.executor"], "_exception_chain", _failed)


def _failed(error: BaseException) -> None:
    run = _current.get() if _current is not None else None
    if run is not None:
        run.reported["exception", repr(error)] = (1.0, 1)


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
    """Return the chunk of a factory, its log of columns, and the identity of its source."""
    _, tree, entries = sys.modules["coffea.nanoevents.util"].key_to_tuple(factory._partition_key)  # noqa: SLF001
    first, last = entries.split("-")
    handle = getattr(factory._mapping, "_file_handle", None)  # noqa: SLF001
    source = getattr(getattr(handle, "file", handle), "source", None)
    metadata = factory._schema.form.get("parameters", {}).get("metadata") or {}  # noqa: SLF001
    uri = metadata.get("filename") if source is None else _path(source)
    found = {
        "dataset": metadata.get("dataset"),
        "uri": uri,
        # A Parquet file has none, which coffea writes as text.
        "tree": None if tree == "None" else tree.strip("/").partition(";")[0],
        "first": int(first),
        "last": int(last),
    }
    return found, getattr(factory._mapping, "_access_log", None), id(source)  # noqa: SLF001


def _is_loaded(name: str) -> bool:
    """Tell whether a module is loaded, and not in the midst of that."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


#: Modules that are waited for, and who places probes in them.
_PLACERS: dict[str, Callable[[Probes], None]] = {
    "uproot": _place_uproot,
    "coffea.nanoevents.factory": _place_factory,
    "coffea.processor.executor": _place_executor,
}

"""Darshan in one worker: the nanny sets its environment, the worker records the result."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterable, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.profiling.darshan_library import (
    is_loaded,
    log_folder,
    prepare_environment,
    usable_library,
)
from dask_strata.store.segments.frames import Batch


class DarshanEnvironment(Source):
    """Sets the environment of the worker processes that a nanny starts, so that they load Darshan.

    Dask copies the variables of a worker's process into the nanny's own environment, which the
    process inherits, and leaves them there. In a local cluster this is the user's process.
    So they are removed as soon as no worker is being started. Another process that starts in
    between loads Darshan, too.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    engine : Engine
        Its recorder.
    """

    def __init__(self, nanny: Any, engine: Engine) -> None:
        self._nanny, self._engine = nanny, engine
        self._variables: dict[str, str] = {}
        self._previous: dict[str, str | None] = {}

    async def begin(self) -> None:
        """Set the variables, if the settings request Darshan and it is usable; never raises."""
        settings = self._engine.settings
        if settings.darshan_library is None:
            return
        present = self._nanny.pre_spawn_env
        preload = present.get("LD_PRELOAD") or _original_value("LD_PRELOAD")
        loop = asyncio.get_running_loop()
        try:
            variables = await loop.run_in_executor(None, _variables, self._engine, preload)
        except Exception as error:  # noqa: BLE001  a nanny must start without Darshan, too
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            _add_loss(self._engine, f"Darshan is not loaded into this nanny's worker: {first}")
            return
        if self._engine.finished:  # nothing would restore the variables any more
            return
        self._previous = {name: present.get(name) for name in variables}
        self._variables = variables
        for name, value in variables.items():
            _originals.setdefault(name, os.environ.get(name))
            _own_values.setdefault(name, set()).add(value)
        _active.append(self)
        present.update(variables)
        self._engine.sources.append(self)

    def is_worker_started(self) -> bool:
        """Return whether the nanny's worker process is started, and not about to start."""
        process = getattr(self._nanny.process, "process", None)
        return process is not None and process.pid is not None

    def rows(self) -> Iterable[Batch]:
        """Return no rows; restore this process's environment when no worker is being started."""
        if any(os.environ.get(name) != value for name, value in dict(_originals).items()):
            # The event loop starts processes: none is being started between two callbacks.
            self._nanny.loop.add_callback(_restore_process)
        return ()

    def detach(self) -> None:
        """Restore the environments of the nanny and of this process."""
        own = {name: {value} for name, value in self._variables.items()}
        _restore(self._nanny.pre_spawn_env, self._previous, own)
        if self in _active:
            _active.remove(self)
        if not _active:
            _restore(os.environ, _originals, _own_values)
            _originals.clear()
            _own_values.clear()


#: Environments of this process's nannies that are set now.
_active: list[DarshanEnvironment] = []
#: Values of this process's variables without Darshan; None if a variable is not set.
_originals: dict[str, str | None] = {}
#: Values that dask-strata sets for workers, by variable. Any other value is the user's.
_own_values: dict[str, set[str]] = {}


def _restore_process() -> None:
    for name in _originals:
        _originals[name] = _original_value(name)
    if all(environment.is_worker_started() for environment in _active):
        _restore(os.environ, _originals, _own_values)


def _restore(
    mapping: MutableMapping[str, str],
    originals: Mapping[str, str | None],
    own_values: Mapping[str, AbstractSet[str]],
) -> None:
    """Restore original values of variables, but keep values that other code has set since."""
    for name, value in originals.items():
        if mapping.get(name) not in own_values.get(name, ()):
            continue
        if value is None:
            mapping.pop(name, None)
        else:
            mapping[name] = value


def _original_value(name: str) -> str | None:
    """Return the value of a variable in this process without Darshan."""
    value = os.environ.get(name)
    return _originals.get(name) if value in _own_values.get(name, ()) else value


def _variables(engine: Engine, preload: str | None) -> dict[str, str]:
    settings = engine.settings
    library = _usable(settings.darshan_library or "auto")
    logs = log_folder(settings, engine.folder)
    return prepare_environment(settings, library, logs, engine.folder, preload)


_usable = functools.cache(usable_library)


def add_darshan_facts(engine: Engine) -> None:
    """Record that this worker has loaded Darshan, or why it has not.

    Parameters
    ----------
    engine : Engine
        The worker's recorder.
    """
    library = engine.settings.darshan_library
    if library is None:
        return
    loaded = _loaded(library)
    if loaded is None:
        _add_loss(
            engine,
            "Darshan is not loaded into this worker: it has no nanny, or started before the "
            "recording; start it with LD_PRELOAD, or restart it",
        )
        return
    folder = log_folder(engine.settings, engine.folder)
    engine.add("job", name="darshan.library", value=loaded, source="/proc/self/maps")
    engine.add("job", name="darshan.log-folder", value=str(folder), source="dask_strata.darshan")


def _loaded(library: str) -> str | None:
    if library != "auto":
        return library if is_loaded(library) else None
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    found = [line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/libdarshan" in line]
    return found[0] if found else None


def _add_loss(engine: Engine, reason: str) -> None:
    engine.add("losses", time=now_ns(), what="darshan", reason=reason, where=engine.process)

"""Darshan for one worker: its nanny sets the environment, the worker says whether that worked."""

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
    environment,
    is_loaded,
    log_folder,
    usable_library,
)
from dask_strata.store.frames import Batch


class Preparation(Source):
    """Has the processes that a nanny is yet to start load Darshan.

    Dask puts what is set for a worker's process into the nanny's own environment, where the
    process gets it from, and leaves it there: in a local cluster that is the user's. It is
    taken out again as soon as no process is being started. What else is started in that moment
    has Darshan, too.

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
        self._replaced: dict[str, str | None] = {}

    async def begin(self) -> None:
        """Set the variables, if the settings say so and Darshan is there; never raises."""
        settings = self._engine.settings
        if settings.darshan_library is None:
            return
        present = self._nanny.pre_spawn_env
        already = present.get("LD_PRELOAD") or _outside_of("LD_PRELOAD")
        work = asyncio.get_running_loop().run_in_executor(None, _variables, self._engine, already)
        try:
            variables = await work
        except Exception as error:  # noqa: BLE001  a nanny must start, with Darshan or without
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            _add_loss(self._engine, f"Darshan is not loaded into this nanny's worker: {first}")
            return
        self._replaced = {name: present.get(name) for name in variables}
        self._variables = variables
        for name, value in variables.items():
            _outside.setdefault(name, os.environ.get(name))
            _ours.setdefault(name, set()).add(value)
        _prepared.append(self)
        present.update(variables)
        self._engine.sources.append(self)

    @property
    def _settled(self) -> bool:
        process = getattr(self._nanny.process, "process", None)
        return process is not None and process.pid is not None

    def rows(self) -> Iterable[Batch]:
        """Return no rows; restore this process's environment when no worker is being started."""
        if any(os.environ.get(name) != value for name, value in dict(_outside).items()):
            # On the event loop, where processes are started: none is, between two calls there.
            self._nanny.loop.add_callback(_tidy_environment)
        return ()

    def detach(self) -> None:
        """Give the nanny and this process back their environment."""
        mine = {name: {value} for name, value in self._variables.items()}
        _restore(self._nanny.pre_spawn_env, self._replaced, mine)
        if self in _prepared:
            _prepared.remove(self)
        if not _prepared:
            _restore(os.environ, _outside, _ours)
            _outside.clear()
            _ours.clear()


#: Nannies of this process that were prepared; what its environment is without them; and what
#: they have set in it. A value that is none of these is the user's own.
_prepared: list[Preparation] = []
_outside: dict[str, str | None] = {}
_ours: dict[str, set[str]] = {}


def _tidy_environment() -> None:
    for name in _outside:
        _outside[name] = _outside_of(name)
    if all(preparation._settled for preparation in _prepared):  # noqa: SLF001  our own
        _restore(os.environ, _outside, _ours)


def _restore(
    mapping: MutableMapping[str, str],
    before: Mapping[str, str | None],
    ours: Mapping[str, AbstractSet[str]],
) -> None:
    """Put back what was there before, but not in place of what others have set since."""
    for name, value in before.items():
        if mapping.get(name) not in ours.get(name, ()):
            continue
        if value is None:
            mapping.pop(name, None)
        else:
            mapping[name] = value


def _outside_of(name: str) -> str | None:
    """Return what a variable is in this process, but for what is in it for a worker's sake."""
    value = os.environ.get(name)
    return _outside.get(name) if value in _ours.get(name, ()) else value


def _variables(engine: Engine, already: str | None) -> dict[str, str]:
    settings = engine.settings
    library = _usable(settings.darshan_library or "auto")
    logs = log_folder(settings, engine.folder)
    return environment(settings, library, logs, engine.folder, already)


_usable = functools.cache(usable_library)


def note_darshan(engine: Engine) -> None:
    """Put on record that Darshan is in this worker, or why it is not."""
    library = engine.settings.darshan_library
    if library is None:
        return
    loaded = _loaded(library)
    if loaded is None:
        _add_loss(
            engine,
            "Darshan is not in this worker: it has no nanny, or ran before the recording began; "
            "start it with LD_PRELOAD, or restart it",
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

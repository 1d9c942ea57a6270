"""Yappi in this process: there is one, whoever records here."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path
from typing import Any

from dask_strata.recorder.profiling.conflicts import profiler_at_work, watch
from dask_strata.recorder.profiling.coroutines import is_coroutine, source_lines
from dask_strata.recorder.profiling.yappi_readings import Function, Readings, Thread
from dask_strata.schema.owners import Owner, local_roots, owner_of, waits
from dask_strata.store.manifest import PROFILE_FORMS

INSTALL = "pip install 'dask-strata[yappi]'"

#: How long Yappi pauses at most for somebody who asks it for its statistics.
_PAUSE_SECONDS = 0.5

#: Entries of Yappi's in a process, one for each function in each thread, beyond which it is
#: stopped: reading holds up all threads, 1 to 2 ms for 1,000 entries, and each takes some 2 kB.
MOST_ENTRIES = 50_000

_lock = threading.RLock()
_here: Profiler | None = None


class CannotProfileError(Exception):
    """No profile can be made of this process; the text says why, and what to do about it."""


def is_installed() -> bool:
    """Tell whether Yappi is installed here; it is not imported."""
    return importlib.util.find_spec("yappi") is not None


def join(run: str, clock: str, holder: Any) -> Profiler:
    """Profile this process for a run, or share what is already being profiled for it.

    Parameters
    ----------
    run : str
        Id of the run.
    clock : str
        wall or cpu.
    holder : object
        On whose behalf: the profile lasts until the last one has left.

    Raises
    ------
    CannotProfileError
        Yappi is not there, or another profiler is at work, which is left alone.
    """
    global _here  # noqa: PLW0603  there is one profiler in a process
    with _lock:
        if _here is None:
            _here = Profiler(run, clock)
        elif _here.run != run:
            raise CannotProfileError(
                f"this process is already profiled for run {_here.run}; there can be one profile"
            )
        _here.holders.append(holder)
        return _here


class Profiler:
    """The one profile of this process; made by `join`.

    Parameters
    ----------
    run : str
        Id of the run that it is for.
    clock : str
        wall or cpu.
    """

    def __init__(self, run: str, clock: str) -> None:
        if not is_installed():
            raise CannotProfileError(f"Yappi is not installed here: {INSTALL}")
        import yappi

        other = "a Yappi of somebody else" if yappi.is_running() else profiler_at_work()
        if other is not None:
            raise CannotProfileError(f"{other} is at work in this process, and is left alone")
        self.run, self.clock = run, clock
        self.holders: list[Any] = []
        self._yappi = yappi
        self._readings = Readings()
        self._known: dict[tuple[str, int, str], tuple[bool | None, bool, Owner]] = {}
        self._roots = local_roots()
        self._told: set[str] = set()
        self._others = watch()
        yappi.clear_stats()
        yappi.set_clock_type(clock)
        yappi.set_context_name_callback(_thread_name)
        # Compiled functions have entries either way; they are read for whose time theirs is.
        yappi.start(builtins=True, profile_threads=True)
        self._hook = threading.getprofile()
        self._full = False

    def speaks_for(self, holder: Any) -> bool:
        """Tell whether this holder is the one to put the profile on record."""
        with _lock:
            return bool(self.holders) and self.holders[0] is holder

    def troubles(self) -> list[str]:
        """Return what the profile has lost to others since the last call."""
        found = self._others.taken()
        if self._full:
            found.append(_too_many(self._readings.entries))
        elif self._is_stopped():
            found.append("somebody stopped Yappi: what came then is missing")
        elif threading.getprofile() is not self._hook:
            found.append("another profiler takes new threads: they are missing")
        fresh = [text for text in found if text not in self._told]
        self._told.update(fresh)
        return fresh

    def _is_stopped(self) -> bool:
        """Tell whether Yappi is stopped, and not merely pauses while somebody reads it."""
        end = time.monotonic() + _PAUSE_SECONDS
        while not self._yappi.is_running():
            if time.monotonic() >= end:
                return True
            time.sleep(0.01)
        return False

    def take(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return rows of functions and of threads, with how much they grew since the last call."""
        with _lock:
            if self._full:
                return [], []  # Yappi was stopped, and nothing has come since
            now = time.time_ns()
            threads, functions = self._readings.read()
            if self._readings.entries > MOST_ENTRIES and self._yappi.is_running():
                self._full = True
                self._halt()
            self._learn({(f.module, f.line, f.name) for f in functions})
            of = {t.context: t for t in threads}
            return [self._function_row(now, f, of.get(f.context)) for f in functions], [
                {
                    "time": now,
                    "thread": t.ident,
                    "thread_name": t.name,
                    "total_seconds": t.total_seconds,
                    "scheduled": t.scheduled,
                    "clock": self.clock,
                }
                for t in threads
                if t.scheduled
            ]

    def _function_row(self, now: int, f: Function, thread: Thread | None) -> dict[str, Any]:
        coroutine, waiting, owner = self._known[f.module, f.line, f.name]
        return {
            "time": now,
            "thread": None if thread is None else thread.ident,
            "thread_name": None if thread is None else thread.name,
            "name": f.name,
            "module": f.module,
            "line": f.line,
            "is_coroutine": coroutine,
            "waiting": waiting,
            "ncall": f.ncall,
            "nactualcall": f.nactualcall,
            "total_seconds": f.total_seconds,
            "own_seconds": f.own_seconds,
            "clock": self.clock,
            "owner": owner.owner,
            "package": owner.package,
        }

    def _learn(self, functions: set[tuple[str, int, str]]) -> None:
        """Find out what kind of functions the new ones are, a file at a time."""
        new: dict[str, list[tuple[int, str]]] = {}
        for module, line, name in functions - self._known.keys():
            new.setdefault(module, []).append((line, name))
        for module, places in new.items():
            lines, owner = source_lines(module), owner_of(module, self._roots)
            for line, name in places:
                coroutine = is_coroutine(lines, line, name)
                waiting = waits(module, name, owner.owner, coroutine=coroutine, clock=self.clock)
                self._known[module, line, name] = coroutine, waiting, owner

    def leave(self, holder: Any, save: Path | None) -> str | None:
        """Profile no longer for a holder; the last one to go stops Yappi and clears it.

        Parameters
        ----------
        holder : object
            As it joined.
        save : Path, optional
            Path of files for other tools, without their endings; none are written otherwise.

        Returns
        -------
        str or None
            Why the files could not be written.
        """
        global _here  # noqa: PLW0603  as above
        with _lock:
            self.holders.remove(holder)
            if self.holders:
                return None
            try:
                return None if save is None else self._save(save)
            finally:
                self._yappi.clear_stats()
                self._yappi.set_context_name_callback(None)
                _here = None

    def stop(self, holder: Any) -> None:
        """Stop Yappi, if there is nobody else to go on for; what it has can still be taken."""
        with _lock:
            if self.holders == [holder] and not self._full and self._yappi.is_running():
                self._halt()

    def _halt(self) -> None:
        self._others.end()
        hook = threading.getprofile()
        self._yappi.stop()
        if hook is not self._hook:
            threading.setprofile(hook)  # somebody else's: Yappi takes it off, too

    def _save(self, path: Path) -> str | None:
        stats = self._readings.as_statistics()
        try:
            path.parent.mkdir(exist_ok=True)
            for form in PROFILE_FORMS:
                hidden = path.parent / f".{path.name}.{form}"
                stats.save(str(hidden), form)
                hidden.replace(path.parent / f"{path.name}.{form}")
        except OSError as error:
            return f"{path.name}.{form} could not be written: {error}"
        return None


def _too_many(entries: int) -> str:
    return (
        f"Yappi was stopped at {entries:,} functions: what came then, and the calls under way, are "
        "missing. Functions of a script are made anew for each task, and each counts: put them "
        "into a module that workers import, or profile a shorter part of the program"
    )


def _thread_name() -> str | None:
    """Return the name of the thread that this is called in, without taking any lock."""
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]  # noqa: SLF001  its public way locks
    return None if thread is None else thread.name

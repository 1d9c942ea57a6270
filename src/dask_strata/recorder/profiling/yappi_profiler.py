"""Yappi in this process: one profile, which all recorders of the process share."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path
from typing import Any

from dask_strata.recorder.profiling.conflicts import active_profiler, watch
from dask_strata.recorder.profiling.coroutines import is_coroutine, source_lines
from dask_strata.recorder.profiling.yappi_readings import Function, Readings, Thread
from dask_strata.schema.owners import Owner, local_roots, owner_of, waiting, waits
from dask_strata.store.manifest import PROFILE_FORMS
from dask_strata.store.safe_files import share_as

INSTALL = "pip install 'dask-strata[yappi]'"

#: Longest time that Yappi pauses while other code reads its statistics.
_PAUSE_SECONDS = 0.5

#: Bound on Yappi's entries in a process, one for each function in each thread; beyond it, Yappi is
#: stopped. Reading 1,000 entries stops all threads for 1 to 2 ms; one entry takes about 2 KiB.
MOST_ENTRIES = 50_000

_lock = threading.RLock()
_profiler: Profiler | None = None


class CannotProfileError(Exception):
    """Raised if a process cannot be profiled; the text states the cause, and the remedy if any."""


def is_installed() -> bool:
    """Return whether Yappi is installed, without importing it."""
    return importlib.util.find_spec("yappi") is not None


def join(run_id: str, clock: str, holder: Any) -> Profiler:
    """Profile this process for a run, or share the profile if the run already has one.

    Parameters
    ----------
    run_id : str
        Id of the run.
    clock : str
        wall or cpu.
    holder : object
        The caller's identity. The profile lasts until each holder has called `Profiler.leave`.

    Returns
    -------
    Profiler
        The profile.

    Raises
    ------
    CannotProfileError
        Yappi is not installed, this process is profiled for another run, or another profiler
        is active, which is left alone.
    """
    global _profiler  # noqa: PLW0603  there is one profiler in a process
    with _lock:
        if _profiler is None:
            _profiler = Profiler(run_id, clock)
        elif _profiler.run_id != run_id:
            raise CannotProfileError(
                f"this process is already profiled for run {_profiler.run_id}; a second "
                "profile at the same time is not possible"
            )
        _profiler.holders.append(holder)
        return _profiler


class Profiler:
    """The profile of this process; made by `join`.

    Parameters
    ----------
    run_id : str
        Id of the run.
    clock : str
        wall or cpu.

    Attributes
    ----------
    holders : list of object
        Holders of the profile, in the order in which they joined.

    Raises
    ------
    CannotProfileError
        See `join`.
    """

    def __init__(self, run_id: str, clock: str) -> None:
        if not is_installed():
            raise CannotProfileError(f"Yappi is not installed in this process's Python: {INSTALL}")
        import yappi

        other = "Yappi, started by other code," if yappi.is_running() else active_profiler()
        if other is not None:
            raise CannotProfileError(f"{other} is active in this process, and is left alone")
        self.run_id, self.clock = run_id, clock
        self.holders: list[Any] = []
        self._yappi = yappi
        self._readings = Readings()
        self._known: dict[tuple[str, int, str], tuple[bool | None, bool, Owner]] = {}
        self._roots = local_roots()
        self._reported: set[str] = set()
        self._conflicts = watch()
        yappi.clear_stats()
        yappi.set_clock_type(clock)
        yappi.set_context_name_callback(_thread_name)
        # Entries of compiled functions are needed to attribute their time to their callers.
        yappi.start(builtins=True, profile_threads=True)
        self._hook = threading.getprofile()
        self._full = False

    def is_recorded_by(self, holder: Any) -> bool:
        """Return whether a holder is the one that records the profile: the first of them."""
        with _lock:
            return bool(self.holders) and self.holders[0] is holder

    def take_losses(self) -> list[str]:
        """Return the losses since the last call, each as a sentence; each is returned once."""
        found = self._conflicts.take()
        if self._full:
            found.append(_too_many(self._readings.entries))
        elif self._is_stopped():
            found.append("other code stopped Yappi: later calls are missing")
        elif threading.getprofile() is not self._hook:
            found.append("another profiler hooks new threads: they are missing")
        new = [text for text in found if text not in self._reported]
        self._reported.update(new)
        return new

    @waiting
    def _is_stopped(self) -> bool:
        """Return whether Yappi is stopped, and does not only pause while other code reads it."""
        end = time.monotonic() + _PAUSE_SECONDS
        while not self._yappi.is_running():
            if time.monotonic() >= end:
                return True
            time.sleep(0.01)
        return False

    def take(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return rows of functions and of threads, with their growth since the last call."""
        with _lock:
            if self._full:
                return [], []  # Yappi was stopped: nothing has grown since
            now = time.time_ns()
            threads, functions = self._readings.read()
            if self._readings.entries > MOST_ENTRIES and self._yappi.is_running():
                self._full = True
                self._halt()
            self._classify({(f.module, f.line, f.name) for f in functions})
            by_context = {t.context: t for t in threads}
            return [self._function_row(now, f, by_context.get(f.context)) for f in functions], [
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
        coroutine, idle, owner = self._known[f.module, f.line, f.name]
        return {
            "time": now,
            "thread": None if thread is None else thread.ident,
            "thread_name": None if thread is None else thread.name,
            "name": f.name,
            "module": f.module,
            "line": f.line,
            "is_coroutine": coroutine,
            "waiting": idle,
            "ncall": f.ncall,
            "nactualcall": f.nactualcall,
            "total_seconds": f.total_seconds,
            "own_seconds": f.own_seconds,
            "clock": self.clock,
            "owner": owner.owner,
            "package": owner.package,
        }

    def _classify(self, functions: set[tuple[str, int, str]]) -> None:
        """Find kind and owner of functions seen for the first time; each file is read once."""
        new: dict[str, list[tuple[int, str]]] = {}
        for module, line, name in functions - self._known.keys():
            new.setdefault(module, []).append((line, name))
        for module, definitions in new.items():
            lines, owner = source_lines(module), owner_of(module, self._roots)
            for line, name in definitions:
                coroutine = is_coroutine(lines, line, name)
                idle = waits(module, name, owner.owner, coroutine=coroutine, clock=self.clock)
                self._known[module, line, name] = coroutine, idle, owner

    def leave(self, holder: Any, save: Path | None) -> str | None:
        """Release the profile; when the last holder leaves, clear Yappi.

        Parameters
        ----------
        holder : object
            The holder that joined.
        save : Path, optional
            Path of the files for other tools, without their suffixes. Without it, or while there
            are other holders, none are written.

        Returns
        -------
        str or None
            Why the files could not be written; None if they were.
        """
        global _profiler  # noqa: PLW0603  as above
        with _lock:
            self.holders.remove(holder)
            if self.holders:
                return None
            try:
                return None if save is None else self._save(save)
            finally:
                self._yappi.clear_stats()
                self._yappi.set_context_name_callback(None)
                _profiler = None

    def stop(self, holder: Any) -> None:
        """Stop Yappi, unless there are other holders; `take` still returns the last growth."""
        with _lock:
            if self.holders == [holder] and not self._full and self._yappi.is_running():
                self._halt()

    def _halt(self) -> None:
        self._conflicts.end()
        hook = threading.getprofile()
        self._yappi.stop()
        if hook is not self._hook:
            threading.setprofile(hook)  # of another profiler: Yappi removes it, too

    def _save(self, path: Path) -> str | None:
        stats = self._readings.as_statistics()
        try:
            path.parent.mkdir(exist_ok=True)
            for form in PROFILE_FORMS:
                hidden = path.parent / f".{path.name}.{form}"
                stats.save(str(hidden), form)
                share_as(path.parents[1], path.parent, hidden)
                hidden.replace(path.parent / f"{path.name}.{form}")
        except OSError as error:
            return f"{path.name}.{form} could not be written: {error}"
        return None


def _too_many(entries: int) -> str:
    return (
        f"Yappi was stopped at {entries:,} functions: later calls, and calls in progress, are "
        "missing. Dask unpickles a script's functions for each task, and each copy counts: put "
        "them into a module that workers import, or profile a shorter part of the program"
    )


def _thread_name() -> str | None:
    """Return the name of the current thread, without a lock."""
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]  # noqa: SLF001  the public function takes a lock
    return None if thread is None else thread.name

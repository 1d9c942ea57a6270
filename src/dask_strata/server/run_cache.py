"""The runs of a folder, opened when they are looked at, and kept as long as they are used.

A run is found by its name among those that the folder has at that moment: what a browser
asks for is never taken for a path.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dask_strata.analysis.list import list_run
from dask_strata.errors import NotARunError
from dask_strata.run import Run, open_run
from dask_strata.store.reader import find_runs, fingerprint

T = TypeVar("T")

#: Runs that are kept open, and pages that are kept.
_OPEN = 4
_PAGES = 8

#: What a query of a user may use of the machine's memory.
_SQL_MEMORY = "1GiB"


class RunCache:
    """The runs of one folder.

    Parameters
    ----------
    folder : Path
        Folder of runs, or one run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], Run] = OrderedDict()
        self._rows: dict[Path, tuple[Any, dict[str, Any]]] = {}
        self._pages: OrderedDict[tuple[str, str], tuple[Any, str]] = OrderedDict()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, the newest first; only what has changed is read again."""
        found = []
        for path in find_runs(self.folder):
            seen = fingerprint(path)
            with self._lock:
                known = self._rows.get(path)
            if known is None or known[0] != seen:
                known = seen, list_run(path)
                with self._lock:
                    self._rows[path] = known
            found.append(known[1])
        return found[::-1]

    def path(self, name: str) -> Path:
        """Return the folder of a run.

        Raises
        ------
        NotARunError
            There is no run of this name, perhaps no longer.
        """
        for path in find_runs(self.folder):
            if path.name == name:
                return path
        raise NotARunError(
            f"There is no run {name[:200]!r} here.", hint="It may have been moved or removed."
        )

    def run(self, name: str, purpose: str = "pages") -> Run:
        """Return a run as it is on record now.

        Parameters
        ----------
        name : str
            Its name.
        purpose : str, optional
            Runs for different purposes do not wait for each other.

        Raises
        ------
        NotARunError
            There is no run of this name, perhaps no longer.
        """
        path = self.path(name)
        with self._lock:
            run = self._open.get((name, purpose))
            if run is None:
                run = open_run(path)
                run.sql_memory_limit = _SQL_MEMORY
                self._open[name, purpose] = run
            self._open.move_to_end((name, purpose))
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        run.refresh()
        return run

    def page(self, name: str, kind: str, make: Callable[[Run], str]) -> str:
        """Return a page of a run, made again only if there is more on record.

        Raises
        ------
        NotARunError
            There is no run of this name, perhaps no longer.
        """
        seen = fingerprint(self.path(name))
        with self._lock:
            known = self._pages.get((name, kind))
        if known is None or known[0] != seen:
            known = seen, make(self.run(name))
        with self._lock:
            self._pages[name, kind] = known
            self._pages.move_to_end((name, kind))
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return known[1]

    def mark(self, name: str) -> str:
        """Return a text that changes when there is more on record of a run."""
        return format(hash(fingerprint(self.path(name))) & (1 << 64) - 1, "x")

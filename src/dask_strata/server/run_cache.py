"""The runs of a folder: opened on first use, the recently used ones kept open.

A run is looked up by its name among the folders that exist at that moment: a name from an address
is never used as a path.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dask_strata.analysis.list import list_run, remote_rows
from dask_strata.errors import NotARunError
from dask_strata.run import Run, open_run
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.copies.remote_runs import RemoteRuns
from dask_strata.store.manifest import find_runs
from dask_strata.store.reader import fingerprint

T = TypeVar("T")

#: Number of runs that are kept open, and of pages that are kept.
_OPEN = 4
_PAGES = 8


class RunCache:
    """The runs of one folder.

    Parameters
    ----------
    folder : str or Path
        Folder or URL of runs, or of one run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = shown(folder)
        self._remote = RemoteRuns(str(folder)) if is_url(folder) else None
        self._local = local_path(folder)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Run] = OrderedDict()
        self._rows: dict[Path, tuple[Any, dict[str, Any]]] = {}
        self._pages: OrderedDict[tuple[str, str], tuple[Any, str]] = OrderedDict()

    def count(self) -> int:
        """Return the number of runs."""
        if self._remote is not None:
            return len(self._remote.names())
        return sum(1 for _ in find_runs(self._local))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, the newest first; only changed runs are read again."""
        if self._remote is not None:
            return remote_rows(self._remote)[::-1]
        found = []
        for path in find_runs(self._local):
            current = fingerprint(path)
            with self._lock:
                cached = self._rows.get(path)
            if cached is None or cached[0] != current:
                cached = current, list_run(path)
                with self._lock:
                    self._rows[path] = cached
            found.append(cached[1])
        return found[::-1]

    def folder_of(self, name: str) -> tuple[Path, Run | None]:
        """Return the folder of a run, and the run that keeps it: a bundle has a temporary one.

        Raises
        ------
        NotARunError
            There is no run of this name, or it is a bundle that cannot be read.
        """
        path = self.path(name)
        if path.is_dir():
            return path, None
        run = self.run(name)
        return run.path, run

    def path(self, name: str) -> Path:
        """Return the path of a run's folder or bundle.

        Raises
        ------
        NotARunError
            The folder has no run of this name; it may have been removed.
        """
        if self._remote is not None:
            return self._remote.path(name)
        for path in find_runs(self._local):
            if path.name == name:
                return path
        raise NotARunError(
            f"No such run: {name[:200]!r}.", hint="It may have been moved or removed."
        )

    def run(self, name: str) -> Run:
        """Return a run with its present record.

        Parameters
        ----------
        name : str
            Name of the run's folder.

        Raises
        ------
        NotARunError
            The folder has no run of this name; it may have been removed.
        """
        path = self.path(name)
        with self._lock:
            run = self._open.get(name)
            if run is None:
                run = open_run(path)
                self._open[name] = run
            self._open.move_to_end(name)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        run.refresh()
        return run

    def page(self, name: str, kind: str, make: Callable[[Run], str]) -> str:
        """Return a page of a run; make it again only if the record has changed.

        Parameters
        ----------
        name : str
            Name of the run's folder.
        kind : str
            Name of the kind of page, by which it is kept.
        make : callable
            Returns the page of a run.

        Raises
        ------
        NotARunError
            The folder has no run of this name; it may have been removed.
        """
        current = fingerprint(self.path(name))
        with self._lock:
            cached = self._pages.get((name, kind))
        if cached is None or cached[0] != current:
            cached = current, make(self.run(name))
        with self._lock:
            self._pages[name, kind] = cached
            self._pages.move_to_end((name, kind))
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return cached[1]

    def mark(self, name: str) -> str:
        """Return a text that changes whenever the record of a run changes."""
        return format(hash(fingerprint(self.path(name))) & (1 << 64) - 1, "x")

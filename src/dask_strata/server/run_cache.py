"""The runs of a folder: opened on first use, the recently used ones kept open.

A run is looked up by its name among the folders that exist at that moment: a name from an address
is never used as a path.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dask_strata.analysis.list import list_run, remote_rows
from dask_strata.errors import NotARunError
from dask_strata.run import Run, open_run
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.copies.remote_runs import RemoteRuns
from dask_strata.store.manifest import find_runs
from dask_strata.store.reader import fingerprint
from dask_strata.store.summaries.notes import notes_mark

T = TypeVar("T")

#: Number of runs that are kept open, and of pages that are kept.
_OPEN = 4
_PAGES = 8

#: Seconds for which a list reads rows that it does not have yet.
_ROWS_SECONDS = 4


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
        self._pages: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def count(self) -> int:
        """Return the number of runs."""
        if self._remote is not None:
            return len(self._remote.names())
        return sum(1 for _ in find_runs(self._local))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, the newest first; only changed runs are read again.

        Rows of new and changed runs are read or computed for some seconds, the newest first.
        Further runs have the column ``pending`` until a later call.
        """
        if self._remote is not None:
            return remote_rows(self._remote)[::-1]
        found = []
        end = time.monotonic() + _ROWS_SECONDS
        n_read = 0
        for path in reversed([*find_runs(self._local)]):
            current = fingerprint(path), notes_mark(path)
            with self._lock:
                cached = self._rows.get(path)
            if cached is None or cached[0] != current:
                if n_read and time.monotonic() > end:
                    found.append({"run": path.name, "problem": None, "pending": True})
                    continue
                cached = current, list_run(path)
                n_read += 1
                with self._lock:
                    self._rows[path] = cached
            found.append(cached[1])
        return found

    def paths(self, names: Sequence[str]) -> list[Path]:
        """Return the paths of runs, see `path`."""
        if self._remote is not None:
            return [self.path(name) for name in names]
        known = {path.name: path for path in find_runs(self._local)}
        return [known[name] if name in known else self.path(name) for name in names]

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

    def page(self, name: str, make: Callable[[Run], str]) -> tuple[str, str]:
        """Return the page of a run and its mark; make it again only if the record has changed.

        Parameters
        ----------
        name : str
            Name of the run's folder.
        make : callable
            Returns the page of a run.

        Raises
        ------
        NotARunError
            The folder has no run of this name; it may have been removed.
        """
        current = self.mark(name)
        cached = self.present_page(name)
        if cached is None or cached[1] != current:
            cached = make(self.run(name)), current
        with self._lock:
            self._pages[name] = cached
            self._pages.move_to_end(name)
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return cached

    def present_page(self, name: str) -> tuple[str, str] | None:
        """Return the page of a run as it was made last, and its mark; None if it is not kept."""
        with self._lock:
            return self._pages.get(name)

    def mark(self, name: str) -> str:
        """Return a text that changes whenever the record of a run changes."""
        return format(hash(fingerprint(self.path(name))) & (1 << 64) - 1, "x")

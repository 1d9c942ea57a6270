"""The runs at a URL: their names, their rows in the list, and local copies to read them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from dask_strata.errors import NotARunError
from dask_strata.store.copies.mirror import Mirror
from dask_strata.store.copies.place import RemotePlace, split_run
from dask_strata.store.manifest import MANIFEST
from dask_strata.store.safe_files import is_name

T = TypeVar("T")

#: Object in a finished run's place with the run's row in the list of runs.
ROW = "list.json"
_ROW_BYTES = 1 << 16

#: Time for which a copy counts as new, and a row of a finished run, in seconds.
_COPY_SECONDS, _ROW_SECONDS = 2, 60

#: Requests at the same time.
_THREADS = 8


class RemoteRuns:
    """The runs at a URL.

    Parameters
    ----------
    url : str
        URL of a folder of runs, or of one run.
    """

    def __init__(self, url: str) -> None:
        self.place = RemotePlace(url)
        self._is_run = False
        self._lock = threading.Lock()
        self._mirrors: dict[str, Mirror] = {}
        self._copied: dict[str, tuple[float, Path]] = {}
        self._rows: dict[str, tuple[float, bytes]] = {}

    def names(self) -> list[str]:
        """Return the names of the folders that may be runs, oldest first."""
        entries = self.place.entries()
        self._is_run = entries.get(MANIFEST) is False
        if self._is_run:
            return [split_run(self.place.url)[1]]
        return sorted(n for n, folder in entries.items() if folder and _is_run_name(n))

    def _place_of(self, name: str) -> RemotePlace:
        return self.place if self._is_run else self.place / name

    def path(self, name: str) -> Path:
        """Return the folder of a run's copy, at most some seconds old.

        Raises
        ------
        NotARunError
            There is no run of this name.
        """
        with self._lock:
            copied = self._copied.get(name)
        if copied is not None and time.monotonic() - copied[0] < _COPY_SECONDS:
            return copied[1]
        if name not in self.names():
            raise NotARunError(
                f"No such run: {name[:200]!r}.", hint="It may have been moved or removed."
            )
        with self._lock:
            mirror = self._mirrors.get(name)
        if mirror is None:
            place = self._place_of(name)
            mirror = Mirror(place.url, place)
        path = mirror.fetch()
        with self._lock:
            self._mirrors[name] = mirror
            self._copied[name] = time.monotonic(), path
        return path

    def row(self, name: str) -> bytes | None:
        """Return the row that the upload of a finished run wrote; None if there is none."""
        with self._lock:
            known = self._rows.get(name)
        if known is not None and time.monotonic() - known[0] < _ROW_SECONDS:
            return known[1]
        with suppress(FileNotFoundError):
            found = self._place_of(name).read(ROW, 0, _ROW_BYTES)
            with self._lock:
                self._rows[name] = time.monotonic(), found
            return found
        return None

    def each(self, make: Callable[[str], T | None]) -> Iterator[T]:
        """Yield the result of a function for each name, in their order; None is left out."""
        with ThreadPoolExecutor(_THREADS, "dask-strata-runs") as pool:
            yield from (found for found in pool.map(make, self.names()) if found is not None)


def _is_run_name(name: str) -> bool:
    return is_name(name) and not name.startswith(".")

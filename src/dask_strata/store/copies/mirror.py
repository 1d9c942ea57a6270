"""Local copies of runs at URLs, for reading: only new bytes are fetched.

The copies are in the user's cache folder. Objects are as untrusted as the files of a run: names
that are not those of a run's files are ignored, and a copy never exceeds the free disk space.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dask_strata.config import read_settings
from dask_strata.errors import NotARunError, StrataError
from dask_strata.store.copies.bundle import BUNDLE_BYTES, bundle_number, decode_bundle
from dask_strata.store.copies.growth import FOLDERS, Part, is_segment, run_files, write_part
from dask_strata.store.copies.place import Object, RemotePlace, split_run
from dask_strata.store.limits import MANIFEST_BYTES
from dask_strata.store.manifest import ADDITIONS, INDEX, MANIFEST, PARQUET
from dask_strata.store.safe_files import RefusedError

#: Bytes that are fetched at a time.
_BLOCK = 8 << 20

#: Tries to fetch a run while its upload replaces objects.
_TRIES = 5

#: Copies that were used within this time, in seconds, are not removed.
_IN_USE_SECONDS = 3600

#: Share of the free disk space that one run may take.
_SPACE = 0.9

#: File in a copy with the number of the last bundle in it.
_APPLIED = ".bundles"


class Mirror:
    """The local copy of one run.

    Parameters
    ----------
    url : str
        URL of the run.
    place : RemotePlace, optional
        Its place, if it is open.

    Attributes
    ----------
    folder : Path
        Folder of the copy.
    """

    def __init__(self, url: str, place: RemotePlace | None = None) -> None:
        self.place = RemotePlace(url) if place is None else place
        runs, name = split_run(self.place.url)
        self._cache = cache_folder()
        key = hashlib.sha256(runs.encode()).hexdigest()[:16]
        self.folder = self._cache / key / (name.lstrip(".") or "run")
        self._lock = self.folder.with_name(f".{self.folder.name}.lock")

    def fetch(self) -> Path:
        """Fetch new bytes; return the folder of the copy.

        Raises
        ------
        NotARunError
            There is no run at the URL.
        StrataError
            The place cannot be read, or the disk has too little space.
        """
        try:
            self._require_run()
            with self._locked():
                new = self._fetch()
        except OSError as error:
            raise StrataError(
                f"{self.place.shown} cannot be copied to {self.folder}: {error.strerror or error}.",
                hint="Choose another folder with the setting dask_strata.cache.",
            ) from error
        if new:
            remove_old_copies(self._cache, read_settings().cache_size)
        return self.folder

    def _require_run(self) -> None:
        """Raise NotARunError if the place has no manifest, without a list of all that it has."""
        try:
            self.place.read(MANIFEST, 0, 1)
        except FileNotFoundError:
            raise NotARunError(
                f"{self.place.shown} is not a run: it has no {MANIFEST}.",
                hint="List the runs of a place: dask-strata list URL",
            ) from None

    def _fetch(self) -> bool:
        for _ in range(_TRIES):
            # The upload replaces bundles by files, and segments by Parquet, meanwhile.
            with suppress(FileNotFoundError):
                return self._update(self.place.objects())
        raise StrataError(f"{self.place.shown} changes while it is read.", hint="Try again.")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time change the copy; note its last use."""
        while True:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._holds(file.fileno()):
                    os.utime(self._lock)
                    yield
                    return

    def _holds(self, lock: int) -> bool:
        """Return whether a lock was not removed with an old copy meanwhile."""
        try:
            return os.path.samestat(os.fstat(lock), self._lock.stat())
        except FileNotFoundError:
            return False

    def _update(self, objects: Mapping[str, Object]) -> bool:
        """Make the copy equal to the place; return whether anything was new."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        files = {name: facts for name, facts in objects.items() if _is_wanted(name, objects)}
        bundles = sorted(
            (number, name)
            for name in objects
            if (number := bundle_number(name)) is not None and number > self._applied()
        )
        new = {name: facts for name, facts in files.items() if not self._has(name, facts)}
        self._require_space([*new.values(), *(objects[name] for _, name in bundles)])
        for number, name in bundles:
            self._apply(number, name, objects[name])
        for name, facts in new.items():
            with suppress(RefusedError):  # not the name of a run's file
                self._download(name, facts)
        if not any(bundle_number(name) is not None for name in objects):
            for name in run_files(self.folder):
                if name not in files:
                    (self.folder / name).unlink()
        return bool(new or bundles)

    def _applied(self) -> int:
        try:
            return int((self.folder / _APPLIED).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return -1

    def _has(self, name: str, facts: Object) -> bool:
        try:
            status = (self.folder / name).lstat()
        except (OSError, ValueError):
            return False
        same = is_segment(name) or status.st_mtime_ns == facts.modified_ns
        return same and status.st_size == facts.size

    def _require_space(self, new: list[Object]) -> None:
        needed, free = sum(o.size for o in new), shutil.disk_usage(self.folder).free
        if needed > free * _SPACE:
            raise StrataError(
                f"{self.place.shown} has {needed / (1 << 30):.3g} GiB that are not in "
                f"{self._cache}, whose disk has {free / (1 << 30):.3g} GiB left.",
                hint="Choose another folder with the setting dask_strata.cache.",
            )

    def _apply(self, number: int, name: str, facts: Object) -> None:
        """Add the parts in a bundle to the copy."""
        parts: list[Part] = []
        with suppress(ValueError):  # not a bundle: `check` reports the missing rows
            parts = decode_bundle(self.place.read(name, 0, min(facts.size, BUNDLE_BYTES)))
        for part in parts:
            # Earlier bundles are gone if the file is an object of its own by now.
            with suppress(RefusedError):
                write_part(self.folder, part)
                if is_segment(part.name) and facts.modified_ns:
                    self._set_time(part.name, facts)
        (self.folder / _APPLIED).write_text(str(number), encoding="ascii")

    def _download(self, name: str, facts: Object) -> None:
        """Fetch one object, of a segment only the bytes that the copy lacks."""
        offset = version = 0
        if is_segment(name):
            with suppress(OSError):
                offset = min((self.folder / name).lstat().st_size, facts.size)
        else:
            version = facts.modified_ns
        while True:
            data = self.place.read(name, offset, min(offset + _BLOCK, facts.size))
            if len(data) < min(_BLOCK, facts.size - offset):
                raise FileNotFoundError(name)  # it was replaced by a smaller one
            size = 0 if is_segment(name) else facts.size
            write_part(self.folder, Part(name, offset, data, size, version))
            offset += len(data)
            if offset >= facts.size:
                break
        if is_segment(name) and facts.modified_ns:
            self._set_time(name, facts)

    def _set_time(self, name: str, facts: Object) -> None:
        # The time of the last write decides whether a process elsewhere counts as alive.
        times = (facts.modified_ns, facts.modified_ns)
        os.utime(self.folder / name, ns=times, follow_symlinks=False)


def _is_wanted(name: str, objects: Mapping[str, Object]) -> bool:
    """Return whether an object is a file of a run; Parquet only once its index is there."""
    if name == MANIFEST:
        return objects[name].size <= MANIFEST_BYTES
    top, *rest = name.split("/")
    if top == PARQUET:
        return f"{PARQUET}/{INDEX}" in objects
    if top == ADDITIONS:
        return bool(rest) and f"{ADDITIONS}/{rest[0]}/{INDEX}" in objects
    return top in FOLDERS


def digest(*texts: str) -> str:
    """Return a name for a folder in the cache; texts of a run may not be usable as one.

    >>> digest("../0a1b2c3d")
    '0d10b180b2b58cb6'
    """
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder of all copies."""
    chosen = read_settings().cache
    if chosen is not None:
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "dask-strata" / "runs"


def remove_old_copies(cache: Path, limit_bytes: int) -> None:
    """Remove the copies that were not used for longest, until the others are within a limit.

    Parameters
    ----------
    cache : Path
        Folder of all copies.
    limit_bytes : int
        Size of the copies that may stay; those in use stay, too.
    """
    copies = []
    for lock in cache.glob("*/.*.lock"):
        with suppress(OSError):
            folder = lock.with_name(lock.name[1:].removesuffix(".lock"))
            size = sum(f.lstat().st_blocks * 512 for f in folder.rglob("*"))
            copies.append((lock.stat().st_mtime, size, folder, lock))
    total = sum(size for _, size, _, _ in copies)
    for used, size, folder, lock in sorted(copies):
        if total <= limit_bytes or used > time.time() - _IN_USE_SECONDS:
            break
        if _removed(folder, lock):
            total -= size


def _removed(folder: Path, lock: Path) -> bool:
    """Remove a copy and its lock, unless a process uses it now; return whether it was removed."""
    with suppress(OSError), lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock.stat().st_mtime <= time.time() - _IN_USE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink()
            return True
    return False

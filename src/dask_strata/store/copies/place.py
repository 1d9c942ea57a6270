"""Places for runs: folders, and URLs that fsspec knows, such as ``s3://bucket/runs``.

Credentials come from the configuration and environment of fsspec and of its libraries only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from glob import has_magic
from pathlib import Path
from typing import Any

from dask_strata.errors import StrataError, UsageError

#: A scheme of one letter is a drive. ``a::b://`` chains file systems.
_URL = re.compile(r"(?:[\w.+-]+::)*(?P<scheme>[A-Za-z][A-Za-z0-9.+-]+)://")
_FILE_SCHEMES = {"file", "local"}

#: ``s3://`` names no bucket; ``s3:/bucket`` is what `pathlib.Path` makes of ``s3://bucket``.
_INCOMPLETE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9.+-]+):/(?:/+$|(?!/))")

#: A user and a password; ``abfs://container@account`` has neither.
_PASSWORD = re.compile(r"(?<=://)[^\s:/]*:\S*@")

#: Packages of common schemes, for the hint where one is missing.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
}

#: Objects of one run, at most: a listing that never ends is not a run.
_OBJECTS = 200_000


def is_url(place: str | Path) -> bool:
    """Return whether a place for runs is a URL, and not a folder.

    Examples
    --------
    >>> [is_url(p) for p in ("s3://bucket/runs", "runs", "C:/runs", "file:///tmp/runs")]
    [True, False, False, False]
    """
    found = _URL.match(place) if isinstance(place, str) else None
    return found is not None and found["scheme"].lower() not in _FILE_SCHEMES


def local_path(place: str | Path) -> Path:
    """Return a place that is no URL as a path.

    >>> local_path("file:///tmp/runs").as_posix()
    '/tmp/runs'
    """
    if isinstance(place, str) and _URL.match(place):
        return Path(place.partition("://")[2])
    return Path(place)


def absolute(place: str) -> str:
    """Return a place for runs that means the same in every folder.

    Raises
    ------
    UsageError
        It would be a URL, but for a missing slash or a missing name behind its slashes.

    Examples
    --------
    >>> absolute("S3://bucket/runs/")
    's3://bucket/runs'
    """
    _require_complete(place)
    return _plain_url(place) if is_url(place) else os.path.abspath(local_path(place))


def _plain_url(url: str) -> str:
    scheme, separator, rest = url.rstrip("/").partition("://")
    return f"{scheme.lower()}{separator}{rest}"


def _require_complete(place: str) -> None:
    found = _INCOMPLETE.match(place)
    if found is not None and found["scheme"].lower() in {*_PACKAGES, "memory", "ftp"}:
        raise UsageError(
            f"{shown(place)} is no place for runs: it is neither a folder nor a whole URL.",
            hint="Write the URL as a text, as in s3://bucket/runs.",
        )


def shown(place: str | Path) -> str:
    """Return a place without the password that a URL may contain.

    >>> shown("ftp://me:secret@host/runs"), shown("abfs://container@account/runs")
    ('ftp://***@host/runs', 'abfs://container@account/runs')
    """
    return _PASSWORD.sub("***@", str(place))


def split_run(url: str) -> tuple[str, str]:
    """Return the URL of the folder of runs, and the name of the run.

    >>> split_run("s3://bucket/runs/2026-pipeline/")
    ('s3://bucket/runs', '2026-pipeline')
    """
    runs, _, name = url.rstrip("/").rpartition("/")
    return runs, name


@dataclass(frozen=True)
class Object:
    """One object below a place.

    Attributes
    ----------
    size : int
        Its size in bytes.
    modified_ns : int
        When it was written, in nanoseconds since the epoch; 0 if the store does not record that.
    """

    size: int
    modified_ns: int


class RemotePlace:
    """A folder of a file system that fsspec opens.

    Parameters
    ----------
    url : str
        Its URL.

    Raises
    ------
    UsageError
        fsspec does not know the scheme, or its library is not installed.
    StrataError
        The library refuses the URL.
    """

    def __init__(self, url: str) -> None:
        _require_complete(url)
        self.url = _plain_url(url)
        self.shown = shown(self.url)
        self._fs, self._root = self._open()

    def _open(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        if "::" in self.url:
            raise UsageError(f"{self.shown} chains file systems: it is no place for runs.")
        with _failures(f"{self.shown} cannot be opened"):
            try:
                fs, root = url_to_fs(self.url, skip_instance_cache=True, use_listings_cache=False)
            except (ImportError, ValueError) as error:
                raise self._refused(error) from None
        return fs, str(root).rstrip("/")

    def _refused(self, error: Exception) -> StrataError:
        scheme = self.url.partition("://")[0]
        if isinstance(error, ImportError):
            package = _PACKAGES.get(scheme)
            return UsageError(
                f"{self.shown} needs a library that is not installed: {error}.",
                hint=f"Install it: pip install {package}" if package else None,
            )
        if "not known" in str(error):
            return UsageError(
                f"{self.shown} is no place for runs: fsspec knows no scheme {scheme!r}.",
                hint="Use a folder, or a URL such as s3://bucket/runs.",
            )
        return StrataError(f"{self.shown} is no place for runs: {_reason(error)}.")

    def __truediv__(self, name: str) -> RemotePlace:
        """Return a place below this one."""
        below = object.__new__(RemotePlace)
        below.url, below.shown = f"{self.url}/{name}", f"{self.shown}/{name}"
        below._fs, below._root = self._fs, f"{self._root}/{name}"
        return below

    def objects(self) -> dict[str, Object]:
        """Return all objects below this place by name; none if there is nothing."""
        with _failures(f"{self.shown} cannot be read"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                self._fs.ls(self._bucket())  # raises if the bucket itself is missing
                found = {}
        if len(found) > _OBJECTS:
            raise StrataError(f"{self.shown} has more than {_OBJECTS:,} objects: it is no run.")
        start = len(self._root.lstrip("/")) + 1
        return {
            path.lstrip("/")[start:]: Object(int(facts.get("size") or 0), _modified_ns(facts))
            for path, facts in found.items()
            if facts.get("type") == "file"
        }

    def _bucket(self) -> str:
        return self._root.split("/")[0] or "/"

    def entries(self) -> dict[str, bool]:
        """Return the names in this place, each with whether it is a folder; none if it is empty."""
        with _failures(f"{self.shown} cannot be read"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:
                self._fs.ls(self._bucket())  # raises if the bucket itself is missing
                return {}
        return {
            str(entry["name"]).rstrip("/").rpartition("/")[2]: entry.get("type") == "directory"
            for entry in found
        }

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes of an object; fewer at its end.

        Raises
        ------
        FileNotFoundError
            The object was removed.
        """
        if start >= stop:  # an empty object has no range of bytes
            return b""
        with _failures(f"{self.shown}/{name} cannot be read", missing=True):
            data = bytes(self._fs.cat_file(f"{self._root}/{name}", start=start, end=stop))
        return data[: stop - start]

    def write(self, name: str, data: bytes) -> None:
        """Write an object, all or nothing."""
        with _failures(f"{self.shown} cannot be written"):
            self._make_folder(name)
            self._fs.pipe_file(f"{self._root}/{name}", data)

    def upload(self, name: str, file: Path) -> None:
        """Write a local file as an object, all or nothing."""
        with _failures(f"{self.shown} cannot be written"):
            self._make_folder(name)
            self._fs.put_file(str(file), f"{self._root}/{name}")

    def _make_folder(self, name: str) -> None:
        # Object stores have no folders: there, this would look for a bucket each time.
        if not hasattr(self._fs, "_call_s3"):
            self._fs.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)

    def remove(self, names: list[str]) -> None:
        """Remove objects."""
        if names:
            with _failures(f"objects of {self.shown} cannot be removed"):
                # Of a name with such characters, `rm` makes a pattern that others match, too.
                literal = [f"{self._root}/{name}" for name in names]
                plain = [path for path in literal if not has_magic(path)]
                if plain:
                    self._fs.rm(plain)
                for path in set(literal) - set(plain):
                    self._fs.rm_file(path)


@contextmanager
def _failures(what: str, *, missing: bool = False) -> Iterator[None]:
    """Raise StrataError for any exception; with ``missing``, not for FileNotFoundError."""
    try:
        yield
    except StrataError:
        raise
    except FileNotFoundError as error:
        if missing:
            raise
        raise StrataError(
            f"{what}: {_reason(error)}.", hint="Check the name in the URL."
        ) from error
    except PermissionError as error:
        raise StrataError(
            f"{what}: {_reason(error)}.", hint="Check the credentials and their permissions."
        ) from error
    except Exception as error:  # each library has its own exceptions
        hint = "Check the credentials." if "redentials" in type(error).__name__ else None
        raise StrataError(f"{what}: {_reason(error)}.", hint=hint) from error


def _reason(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0]
    return shown(text.rstrip(".") or type(error).__name__)[:300]


def _modified_ns(facts: dict[str, Any]) -> int:
    """Return when an object was written, from the facts that its file system has."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = facts.get(name)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value.replace("Z", "+00:00"))
            except ValueError:
                continue
        if isinstance(value, datetime):
            value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
            value = value.timestamp()
        if isinstance(value, (int, float)) and 0 < value < 1 << 32:
            return int(value * 1e6) * 1000
    return 0

"""A bundle as a run's folder: a private temporary copy, removed when nobody uses it.

Readers of Parquet need files. Members are stored as they are, so that copying them is as fast as
reading them. The folder is removed with the last run that uses it, or at the end of the process;
what a killed process leaves is removed by the next one that opens a bundle.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from dask_strata.errors import NotARunError, StrataError, UsageError
from dask_strata.store.copies.growth import FOLDERS
from dask_strata.store.limits import INDEX_BYTES, MANIFEST_BYTES
from dask_strata.store.manifest import INDEX, MANIFEST, PARQUET
from dask_strata.store.safe_files import RefusedError
from dask_strata.store.zipped.directory import Member, blocks, read_directory

#: Time of the last change of all files of a run in a bundle, in nanoseconds since the epoch: the
#: first one that a zip file can have, 1980.
MODIFIED_NS = 315_532_800 * 10**9

#: Begin of the name of temporary folders, and the file in them that is locked while they are used.
_PREFIX = "dask-strata-bundle-"
_LOCK = "lock"

#: Share of the free disk space that a copy may take.
_SPACE = 0.9

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_REFUSED_HINT = "Copy it again from where it came from, or export the run again."

_lock = threading.Lock()
_kept: set[BundleCopy] = set()
_copies: weakref.WeakValueDictionary[tuple[int, ...], BundleCopy] = weakref.WeakValueDictionary()


def is_bundle(path: Path) -> bool:
    """Return whether a path is that of a file which is read as a bundle, damaged or not.

    Parameters
    ----------
    path : Path
        The path; a link is followed.
    """
    try:
        if not path.is_file():
            return False
        if path.name.endswith(".zip"):
            return True
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return False


def refuse_bundle(path: Path, task: str) -> None:
    """Raise UsageError if a path is that of a bundle: it is only read.

    Parameters
    ----------
    path : Path
        The path, as the user named it.
    task : str
        What would change the run, for the message.
    """
    if is_bundle(path):
        raise UsageError(
            f"{path} is a bundle, which is only read: dask-strata needs a folder to {task}.",
            hint=f"Unpack it first: unzip {path} -d FOLDER",
        )


def bundle_name(path: Path) -> str:
    """Return the name of a bundle without its suffix, as the name of a folder.

    >>> bundle_name(Path("runs/pipeline.strata.zip")), bundle_name(Path(".zip"))
    ('pipeline', 'run')
    """
    return path.name.removesuffix(".zip").removesuffix(".strata").lstrip(".") or "run"


def open_bundle(path: Path) -> tuple[BinaryIO, dict[str, Member]]:
    """Open a bundle, and return its files.

    Parameters
    ----------
    path : Path
        The bundle.

    Raises
    ------
    NotARunError
        It cannot be read, or is none.
    """
    try:
        file = open_file(path)
    except OSError as error:
        raise NotARunError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        members = read_directory(file)
        _check_sizes(members)
    except OSError as error:
        file.close()
        raise refused(path, error) from None
    except BaseException:
        file.close()
        raise
    return file, members


def open_file(path: Path) -> BinaryIO:
    """Open a bundle for reading, without waiting if it is a pipe.

    Raises
    ------
    OSError
        It cannot be opened.
    """
    return os.fdopen(os.open(path, _OPEN), "rb")


def refused(path: Path, error: OSError) -> NotARunError:
    """Return the error of a bundle that cannot be read."""
    return NotARunError(
        f"{path} cannot be read as a bundle: {error.strerror or error}.", hint=_REFUSED_HINT
    )


def _check_sizes(members: dict[str, Member]) -> None:
    if MANIFEST not in members:
        raise RefusedError(f"it has no {MANIFEST}")
    for name, limit in ((MANIFEST, MANIFEST_BYTES), (f"{PARQUET}/{INDEX}", INDEX_BYTES)):
        if name in members and members[name].size > limit:
            raise RefusedError(f"{name} has more than {limit:,} bytes")


def is_of_run(name: str) -> bool:
    """Return whether a member of a bundle is a file of the run, unlike its page.

    >>> is_of_run("run.json"), is_of_run("parquet/index.json"), is_of_run("page.html")
    (True, True, False)
    """
    top, slash, _ = name.partition("/")
    return name == MANIFEST or (bool(slash) and top in FOLDERS)


class BundleCopy:
    """The temporary copy of one bundle; it is removed with this object.

    Parameters
    ----------
    path : Path
        The bundle.

    Attributes
    ----------
    folder : Path
        The run's folder in the copy; its name is that of the bundle without its suffix.
    identity : tuple
        Value that changes if the bundle is replaced.

    Raises
    ------
    NotARunError
        The file is not a bundle, or damaged.
    StrataError
        The temporary folder cannot be written, or has too little space.
    """

    def __init__(self, path: Path) -> None:
        file, members = open_bundle(path)
        with file:
            self.identity = identity_of(os.fstat(file.fileno()))
            wanted = [member for name, member in members.items() if is_of_run(name)]
            try:
                _remove_abandoned()
                base, lock = _new_folder()
            except OSError as error:
                raise _unwritable(path, error) from None
            self._remove = weakref.finalize(self, _removed, base, lock, os.getpid())
            try:
                _require_space(path, base, sum(member.size for member in wanted))
                self.folder = base / bundle_name(path)
                self.folder.mkdir(mode=0o700)
                for member in wanted:
                    _copy(file, member, self.folder)
            except BaseException as error:
                self._remove()
                if isinstance(error, RefusedError):
                    raise refused(path, error) from None
                if isinstance(error, OSError):
                    raise _unwritable(path, error) from None
                raise


def keep(copy: BundleCopy) -> None:
    """Keep a copy until the process ends, for readers that only have the path of its folder."""
    _kept.add(copy)


def copy_of(path: Path) -> BundleCopy:
    """Return the temporary copy of a bundle: the one in use, if there is one.

    Parameters
    ----------
    path : Path
        The bundle.

    Raises
    ------
    NotARunError, StrataError
        As `BundleCopy` raises them.
    """
    with _lock:
        found = None
        name = hash(bundle_name(path))  # of a link it may be another one
        with suppress(OSError):
            found = _copies.get((*identity_of(path.stat()), name))
        if found is None:
            found = BundleCopy(path)
            _copies[(*found.identity, name)] = found
        return found


def is_current(copy: BundleCopy, path: Path) -> bool:
    """Return whether a bundle is the file that a copy was made of; also if it was removed."""
    try:
        return identity_of(path.stat()) == copy.identity
    except OSError:
        return True


def is_copy(folder: Path) -> bool:
    """Return whether a run's folder is the temporary copy of a bundle, of any process."""
    return folder.parent.name.startswith(_PREFIX) and (folder.parent / _LOCK).is_file()


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that changes if a file is replaced or written."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unwritable(path: Path, error: OSError) -> StrataError:
    return StrataError(
        f"{path} cannot be copied to {tempfile.gettempdir()} for reading: "
        f"{error.strerror or error}.",
        hint="Choose another folder for temporary files: TMPDIR=/path dask-strata …",
    )


def _require_space(path: Path, base: Path, needed: int) -> None:
    free = shutil.disk_usage(base).free
    if needed > free * _SPACE:
        raise StrataError(
            f"{path} has {needed / (1 << 30):.3g} GiB, which are copied to {base.parent} for "
            f"reading; its disk has {free / (1 << 30):.3g} GiB left.",
            hint="Choose another folder for temporary files: TMPDIR=/path dask-strata …",
        )


def _new_folder() -> tuple[Path, int]:
    """Make a temporary folder; return it with its lock."""
    while True:
        base = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), (base / _LOCK).lstat()):
                return base, lock
        os.close(lock)  # another process took the folder for an abandoned one before the lock


def _copy(file: BinaryIO, member: Member, folder: Path) -> None:
    target = folder.joinpath(*member.parts)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb", buffering=0) as copy:
        for block in blocks(file, member):
            left = memoryview(block)
            while left:
                left = left[copy.write(left) :]
        os.utime(copy.fileno(), ns=(MODIFIED_NS, MODIFIED_NS))


def _removed(base: Path, lock: int, pid: int) -> None:
    """Remove a temporary folder, unless this process is a fork of the one that made it."""
    if os.getpid() == pid:
        shutil.rmtree(base, ignore_errors=True)
        with suppress(OSError):
            os.close(lock)


def _remove_abandoned() -> None:
    """Remove temporary folders of this user whose process was killed."""
    for base in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = base.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = os.open(base / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(base, ignore_errors=True)
            finally:
                os.close(lock)

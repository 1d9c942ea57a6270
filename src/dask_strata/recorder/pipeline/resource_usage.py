"""The kernel's accounting of a thread and of its process: I/O, faults, switches, memory.

A sample keeps the kernel's raw texts, because the thread that executes tasks takes it. `used`
parses them later, on another thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter, sub
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple

from dask_strata.recorder.pipeline import foreign_io

try:
    import resource
    from resource import getrusage

    _THREAD: int | None = resource.RUSAGE_THREAD
except (ImportError, AttributeError):  # not on Linux
    _THREAD = None

_IO = "/proc/thread-self/io"
_PROCESS_IO = "/proc/self/io"
_STATM = "/proc/self/statm"
_STATUS = "/proc/self/status"
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
_LONGEST = 512
_LONGEST_STATUS = 16_384

_lock = threading.Lock()
_files_of_threads: weakref.WeakSet[_Files] = weakref.WeakSet()
_local = threading.local()


def _after_fork() -> None:
    """Replace the lock in a forked process: another thread may have held it during the fork."""
    global _lock  # noqa: PLW0603  a lock cannot be reset in place
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Sample(NamedTuple):
    """Readings of the calling thread at one moment; None where the system has no such reading.

    Attributes
    ----------
    time_ns : int
        Wall clock in nanoseconds since the epoch.
    usage : resource.struct_rusage or None
        Usage of the thread.
    io, statm : bytes or None
        Raw text of ``/proc/thread-self/io`` and ``/proc/self/statm``.
    status : bytes or None
        Raw text of ``/proc/self/status``; read only if the peak memory in ``usage`` is inherited.
    process_io : bytes or None
        Raw text of ``/proc/self/io``; read only if no other task runs, as it belongs to all tasks.
    foreign : tuple of int or None
        I/O of the process that belongs to no task, see `foreign_io.state`; None if some of it was
        under way during the reading of `process_io`.
    """

    time_ns: int
    usage: Any
    io: bytes | None
    statm: bytes | None
    status: bytes | None = None
    process_io: bytes | None = None
    foreign: tuple[int, int, int, int] | None = None


class _Files:
    """Open accounting files of one thread."""

    def __init__(self) -> None:
        self.io = _open(_IO)
        self.process_io = _open(_PROCESS_IO)
        self.statm = _open(_STATM)
        self.status = _open(_STATUS) if _inherited_peak() else None
        self.busy = False
        self.closing = False

    def close(self) -> None:
        for name in ("io", "process_io", "statm", "status"):
            fd = getattr(self, name)
            setattr(self, name, None)
            if fd is not None:
                _close(fd)

    def __del__(self) -> None:
        self.close()


def begin(*, alone: bool = False) -> Sample:
    """Return a sample of the calling thread, before it executes a task.

    Parameters
    ----------
    alone : bool, optional
        Whether no other task runs in the process, so that its I/O is of interest, too.
    """
    files = getattr(_local, "files", None)
    if files is None or files.closing:
        files = _local.files = _Files()
        with _lock:
            _files_of_threads.add(files)
    files.busy = True
    status = None if files.status is None else _read(files.status, _LONGEST_STATUS)
    statm = _read(files.statm)
    process_io, foreign = _process_io(files) if alone else (None, None)
    io = _read(files.io)
    usage = None if _THREAD is None else getrusage(_THREAD)
    return Sample(time_ns(), usage, io, statm, status, process_io, foreign)


def end(*, alone: bool = False) -> Sample:
    """Return a sample of the calling thread, after it executed a task; follows `begin`.

    Parameters
    ----------
    alone : bool, optional
        Whether no other task ran in the process meanwhile.
    """
    now = time_ns()
    usage = None if _THREAD is None else getrusage(_THREAD)
    files = _local.files
    io = _read(files.io)
    process_io, foreign = _process_io(files) if alone else (None, None)
    statm = _read(files.statm)
    status = None if files.status is None else _read(files.status, _LONGEST_STATUS)
    files.busy = False
    if files.closing:
        with _lock:
            files.close()
    return Sample(now, usage, io, statm, status, process_io, foreign)


def _process_io(files: _Files) -> tuple[bytes | None, tuple[int, int, int, int] | None]:
    """Return the process's I/O, and the part of it that belongs to no task if that is known."""
    foreign = foreign_io.state()
    raw = _read(files.process_io)
    return raw, foreign if foreign_io.quiet_since(foreign) else None


def close_files() -> None:
    """Close the files of all threads; if a thread executes a task, then at the task's `end`."""
    with _lock:
        for files in list(_files_of_threads):
            files.closing = True
            if not files.busy:
                files.close()
            _files_of_threads.discard(files)


def used(before: Sample, after: Sample) -> tuple[Any, ...]:
    """Return the resources that a thread used between two samples.

    Parameters
    ----------
    before, after : Sample
        Samples of the same thread.

    Returns
    -------
    tuple
        A value for each of `MEASURES`; None if one of its readings is missing.
    """
    first = _rss(before.statm)
    last = first if after.statm == before.statm else _rss(after.statm)
    peak = None if first is None or last is None else max(first, last, _new_peak(before, after))
    a, b = before.usage, after.usage
    io = _io_used(before.io, after.io)
    return (
        before.time_ns,
        after.time_ns,
        *(_NO_USAGE if a is None or b is None else map(sub, _counts(b), _counts(a))),
        *io,
        first,
        last,
        peak,
        *_other_io(before, after, io),
    )


def reading_bytes(samples: Iterable[Sample]) -> int:
    """Return the bytes that samples themselves read from files."""
    return sum(map(len, filter(None, chain.from_iterable(map(_raws, samples)))))


def thread_read_bytes() -> int:
    """Return the bytes that the calling thread has read so far; 0 if that is unknown."""
    counts = _io_counts(_read_once(_IO))
    return 0 if counts is None else counts[0]


@contextlib.contextmanager
def own_io() -> Iterator[None]:
    """Mark the block as I/O of the recorder on the calling thread, which belongs to no task."""
    with foreign_io.operation() as measure:
        first = _io_counts(_read_once(_IO))
        yield
        raw = _read_once(_IO)
        last = _io_counts(raw)
        if raw is not None and first is not None and last is not None:
            # The kernel counts the first of the two readings in the second, and that one later.
            measure(last[0] + len(raw) - first[0], last[1] - first[1])


def process_usage() -> dict[str, Any]:
    """Return the resources that this process has used so far, by column of ``process_samples``."""
    usage = None if _THREAD is None else _counts(getrusage(resource.RUSAGE_SELF))
    io = _io_counts(_read_once(_PROCESS_IO))
    return {
        "cpu_seconds": time.process_time_ns() / 1e9,
        "rss_bytes": _rss(_read_once(_STATM)),
        "threads": threading.active_count(),
        **dict(zip(_USAGE, usage or (None,) * len(_USAGE), strict=True)),
        **dict(zip(_IO_COLUMNS, io or (None,) * len(_IO_COLUMNS), strict=True)),
    }


_USAGE = ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches")
_NO_USAGE = (None,) * len(_USAGE)
_counts = attrgetter("ru_minflt", "ru_majflt", "ru_nvcsw", "ru_nivcsw")
_raws = attrgetter("io", "statm", "status", "process_io")

#: In the order of the lines of /proc/thread-self/io.
_IO_COLUMNS = (
    "read_bytes",
    "write_bytes",
    "read_calls",
    "write_calls",
    "storage_read_bytes",
    "storage_write_bytes",
)
_NO_IO = (None,) * len(_IO_COLUMNS)
_NAMES = [b"rchar:", b"wchar:", b"syscr:", b"syscw:", b"read_bytes:", b"write_bytes:"]

#: Columns of ``executions`` that `used` returns.
MEASURES = (
    "start",
    "stop",
    *_USAGE,
    *_IO_COLUMNS,
    "rss_before_bytes",
    "rss_after_bytes",
    "rss_peak_bytes",
    "other_read_bytes",
    "other_write_bytes",
)


def _io_used(before: bytes | None, after: bytes | None) -> tuple[int | None, ...]:
    first, last = _io_words(before, 8), _io_words(after, 8)
    if before is None or first is None or last is None:
        return _NO_IO
    _, read_0, _, written_0, _, reads_0, _, writes_0, storage_0 = first
    _, read, _, written, _, reads, _, writes, storage = last
    # Most tasks use no storage, and comparing two texts is faster than parsing them.
    used = (0, 0) if storage == storage_0 else map(sub, _storage(storage), _storage(storage_0))
    return (
        # Subtract the first reading of the file, which the second one counts as a read.
        int(read) - int(read_0) - len(before),
        int(written) - int(written_0),
        int(reads) - int(reads_0) - 1,
        int(writes) - int(writes_0),
        *used,
    )


def _other_io(
    before: Sample, after: Sample, own: tuple[int | None, ...]
) -> tuple[int | None, int | None]:
    """Return the bytes that other threads of the process read and wrote between two samples."""
    if before.foreign is None or after.foreign is None or None in own:
        return None, None
    first, last = _io_words(before.process_io, 4), _io_words(after.process_io, 4)
    _, unmeasured, foreign_read, foreign_written = map(sub, after.foreign, before.foreign)
    if first is None or last is None or unmeasured:
        return None, None
    # Between its two readings, the process read the first of them and both of the thread's.
    readings = len(before.process_io or b"") + len(before.io or b"") + len(after.io or b"")
    read = int(last[1]) - int(first[1]) - readings - foreign_read - (own[0] or 0)
    return max(0, read), max(0, int(last[3]) - int(first[3]) - foreign_written - (own[1] or 0))


def _io_words(raw: bytes | None, n: int) -> list[bytes] | None:
    """Return the first n names and numbers, and the rest; None if the text has another form."""
    if raw is None or not raw.startswith(_NAMES[0]):
        return None
    words = raw.split(None, n)
    return words if len(words) > n else None


def _storage(lines: bytes) -> tuple[int, int]:
    """Return the numbers of the last two columns."""
    _, read, _, written, *_ = lines.split(None, 4)
    return int(read), int(written)


def _io_counts(raw: bytes | None) -> list[int] | None:
    words = () if raw is None else raw.split()
    if words[:12:2] != _NAMES:
        return None
    return [*map(int, words[1:12:2])]


def _rss(raw: bytes | None) -> int | None:
    if raw is None or not _PAGE:
        return None
    return int(raw.split(None, 2)[1]) * _PAGE


def _new_peak(before: Sample, after: Sample) -> int:
    """Return the process's peak memory in bytes if it was reached between the samples, else 0."""
    first, last = _own_peak(before.status), _own_peak(after.status)
    if first is not None and last is not None and last > first:
        return last
    a, b = before.usage, after.usage
    if a is not None and b is not None and b.ru_maxrss > a.ru_maxrss:
        return int(b.ru_maxrss * 1024)
    return 0


def _own_peak(status: bytes | None) -> int | None:
    """Return the peak memory of a process in bytes since its last exec."""
    if status is None:
        return None
    number, _, unit = status.partition(b"VmHWM:")[2].partition(b"\n")[0].strip().partition(b" ")
    return int(number) * 1024 if unit == b"kB" else None


def _inherited_peak() -> bool:
    """Return whether the peak in ``usage`` belongs to the process that started this one.

    On Linux a child inherits it: a worker that a large notebook starts has the notebook's peak.
    """
    if _THREAD is None:
        return False
    reported = getrusage(_THREAD).ru_maxrss * 1024
    own = _own_peak(_read_once(_STATUS))
    return own is not None and reported > own


def _close(fd: int) -> None:
    """Close an accounting file, unless user code closed it and reused its number."""
    with contextlib.suppress(OSError):
        if str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("/proc/"):
            os.close(fd)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read_once(path: str) -> bytes | None:
    fd = _open(path)
    try:
        return _read(fd, _LONGEST_STATUS)
    finally:
        if fd is not None:
            os.close(fd)


def _read(fd: int | None, longest: int = _LONGEST) -> bytes | None:
    if fd is None:
        return None
    try:
        return os.pread(fd, longest, 0) or None
    except OSError:
        return None

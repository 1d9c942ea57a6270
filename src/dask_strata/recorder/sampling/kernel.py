"""What a thread of this process waits for, and its CPU time, as the kernel reports them.

The files are read without releasing the GIL: another thread would take it, and the next reading
would have to wait for it. So the stacks and the readings of one look are of the same moment.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dask_strata.recorder.sampling.system_calls import (
    BY_FD,
    FILES,
    FIRST_COUNT,
    FUTEX,
    GIL,
    LOCK,
    MEMORY,
    NETWORK,
    OTHER,
    PROCESS,
    RESTARTED,
    SECOND_COUNT,
    SLEEP,
    UNKNOWN,
    kinds_of_calls,
)

_LONGEST = 256

#: Longest target of a link to an open file that is of interest.
_LINK = 32

#: Size of the interpreter's global state if the symbol's size is unknown: less than in any version.
_LEAST_STATE = 1 << 16

#: `dladdr1` of the C library: request the entry of the symbol's table.
_SYMBOL_ENTRY = 1

#: No process has memory below this address.
_LEAST_ADDRESS = 4096

#: Bit of the operation of a futex that threads of one process share.
_PRIVATE_FUTEX = 0x80

_Pread = Callable[[int, int], bytes]


class Reading(NamedTuple):
    """Readings of one thread at one moment; None where the kernel reports nothing.

    Attributes
    ----------
    cpu_ns : int or None
        CPU time of the thread so far, in nanoseconds.
    delay_ns : int or None
        Time that the thread was ready to run and had no CPU so far, in nanoseconds.
    waiting : str or None
        What it waits for: lock, gil, sleep, files, network, process, memory (a page fault), other;
        unknown if the kernel does not report it. None if it runs or is ready to run.
    """

    cpu_ns: int | None
    delay_ns: int | None
    waiting: str | None


class ThreadFiles:
    """Open accounting files of one thread of this process, for one reading thread.

    Parameters
    ----------
    native_id : int
        The kernel's id of the thread.
    folder : str, optional
        Folder with a folder for each thread.

    Attributes
    ----------
    read_bytes : int
        Bytes that the readings have read from files.
    """

    def __init__(self, native_id: int, folder: str = "/proc/self/task") -> None:
        self._schedstat = _open(f"{folder}/{native_id}/schedstat")
        self._syscall = _open(f"{folder}/{native_id}/syscall")
        self.read_bytes = 0

    def read(self) -> Reading:
        """Return the present readings; never raises."""
        cpu, delay = self.usage()
        return Reading(cpu, delay, self._waiting())

    def usage(self) -> tuple[int | None, int | None]:
        """Return the CPU time and the delay so far; never raises."""
        words = self._words(self._schedstat)
        try:
            return int(words[0]), int(words[1])
        except (IndexError, ValueError):
            return None, None

    def _waiting(self) -> str | None:
        words = self._words(self._syscall)
        if not words:
            return UNKNOWN
        try:
            return waiting_for(words)
        except (IndexError, ValueError):  # another format
            return UNKNOWN

    def _words(self, fd: int | None) -> list[bytes]:
        if fd is None:
            return []
        raw = _pread()(fd, _LONGEST)
        self.read_bytes += len(raw)
        return raw.split()

    def close(self) -> None:
        """Close the files."""
        for fd in (self._schedstat, self._syscall):
            if fd is not None:
                _close(fd)
        self._schedstat = self._syscall = None

    def __del__(self) -> None:
        self.close()


def waiting_for(words: list[bytes]) -> str | None:
    """Return what a thread waits for.

    Parameters
    ----------
    words : list of bytes
        The words of the thread's file ``syscall``: the number of the call and its arguments.

    Examples
    --------
    >>> waiting_for([b"running"]), waiting_for([b"-1", b"0x7ffc", b"0x7f3a"])
    (None, 'memory')
    """
    if words[0] == b"running":
        return None
    number = int(words[0])
    if number < 0:  # it is blocked in the kernel without a system call
        return MEMORY
    kind = _kinds().get(number, OTHER)
    if kind == FUTEX:
        return _by_address(int(words[1], 16))
    if kind == RESTARTED:
        return _restarted(int(words[1], 16), int(words[2], 16))
    if kind == BY_FD:
        return _by_fd(int(words[1], 16))
    if kind in (FIRST_COUNT, SECOND_COUNT):
        count = int(words[1 if kind == FIRST_COUNT else 2], 16)
        return NETWORK if count else SLEEP
    return kind


def _by_address(address: int) -> str:
    first, end = state_of_interpreter()
    return GIL if first <= address < end else LOCK


def _restarted(first: int, second: int) -> str:
    """Return what a continued call waits for, which is a futex, a sleep or a poll."""
    if first < _LEAST_ADDRESS or second >= _LEAST_ADDRESS:  # a clock, or the address of a duration
        return SLEEP
    if second & _PRIVATE_FUTEX:
        return _by_address(first)
    return NETWORK if second else SLEEP


def _by_fd(fd: int) -> str:
    link = _readlink()(f"/proc/self/fd/{fd}")
    if link.startswith(b"socket:"):
        return NETWORK
    if link.startswith(b"pipe:"):
        return PROCESS
    return OTHER if link.startswith(b"anon_inode:") else FILES


@functools.cache
def _kinds() -> Mapping[int, str]:
    return kinds_of_calls()


@functools.cache
def state_of_interpreter() -> tuple[int, int]:
    """Return the first address of the interpreter's global state, and the one after its last.

    A thread that waits for the GIL waits at an address in it: the lock is a part of it, since
    Python 3.12 in the state of the main interpreter. Both are 0 if it has no such symbol.
    """
    try:
        import ctypes

        start = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        return start, start + (_size_of_symbol(start) or _LEAST_STATE)
    except Exception:  # noqa: BLE001  an interpreter without it has no known lock
        return 0, 0


def _size_of_symbol(address: int) -> int | None:
    """Return the size of an exported symbol in bytes; None if the C library cannot give it."""
    import ctypes

    class Entry(ctypes.Structure):  # Elf64_Sym
        _fields_ = (
            ("name", ctypes.c_uint32),
            ("info", ctypes.c_ubyte),
            ("other", ctypes.c_ubyte),
            ("section", ctypes.c_uint16),
            ("value", ctypes.c_uint64),
            ("size", ctypes.c_uint64),
        )

    # `dladdr1` fills a structure of four pointers.
    information, entry = (ctypes.c_void_p * 4)(), ctypes.POINTER(Entry)()
    try:
        dladdr1 = ctypes.CDLL(None).dladdr1
    except (AttributeError, TypeError, OSError):
        return None
    dladdr1.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    found = dladdr1(address, ctypes.byref(information), ctypes.byref(entry), _SYMBOL_ENTRY)
    return int(entry.contents.size) or None if found and entry else None


@functools.cache
def _pread() -> _Pread:
    """Return a function that reads the start of a file, if possible without releasing the GIL."""
    try:
        import ctypes

        pread = ctypes.PyDLL(None).pread
        create = ctypes.create_string_buffer
        pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
        pread.restype = ctypes.c_ssize_t
    except Exception:  # noqa: BLE001  without ctypes or on another system
        return _plain_pread

    def read(fd: int, n: int) -> bytes:
        buffer = create(_LONGEST)
        count = pread(fd, buffer, n, 0)
        return buffer.raw[:count] if count > 0 else b""

    return read


def _plain_pread(fd: int, n: int) -> bytes:
    try:
        return os.pread(fd, n, 0)
    except OSError:  # the thread has ended
        return b""


@functools.cache
def _readlink() -> Callable[[str], bytes]:
    """Return a function that returns the start of a link's target, likewise."""
    try:
        import ctypes

        readlink = ctypes.PyDLL(None).readlink
        create = ctypes.create_string_buffer
        readlink.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        readlink.restype = ctypes.c_ssize_t
    except Exception:  # noqa: BLE001  as above
        return _plain_readlink

    def read(path: str) -> bytes:
        buffer = create(_LINK)
        count = readlink(path.encode(), buffer, _LINK)
        return buffer.raw[:count] if count > 0 else b""

    return read


def _plain_readlink(path: str) -> bytes:
    try:
        return os.fsencode(os.readlink(path))  # noqa: PTH115  a path object takes longer
    except OSError:
        return b""


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None


def _close(fd: int) -> None:
    """Close an accounting file, unless user code closed it and reused its number."""
    with contextlib.suppress(OSError):
        if _plain_readlink(f"/proc/self/fd/{fd}").startswith(b"/proc/"):
            os.close(fd)

"""What a system call waits for, by its number: x86-64 and 64-bit ARM."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

LOCK, GIL, SLEEP, FILES = "lock", "gil", "sleep", "files"
NETWORK, PROCESS, MEMORY, OTHER = "network", "process", "memory", "other"

#: The kernel does not report the thread's system call.
UNKNOWN = "unknown"

#: Kinds of calls that need a look at their arguments: a futex by its address, an operation on an
#: open file by its first argument, and waits for several files by their number, in the first or
#: second argument.
FUTEX, BY_FD, FIRST_COUNT, SECOND_COUNT = "futex", "by fd", "first count", "second count"

#: A call with a timeout that continues after the process was stopped: its arguments are the same,
#: its number is not.
RESTARTED = "restarted"


def _table(**numbers: Iterable[int]) -> dict[int, str]:
    kinds = {
        "by_fd": BY_FD,
        "first_count": FIRST_COUNT,
        "second_count": SECOND_COUNT,
    }
    return {n: kinds.get(kind, kind) for kind, values in numbers.items() for n in values}


#: Calls with the same number on both architectures: futex_waitv, futex_wait; clone3;
#: io_uring_enter, openat2, faccessat2; epoll_pwait2.
_COMMON = _table(
    lock=(449, 455), process=(435,), files=(426, 437, 439), network=(441,)
)  # fmt: skip

_X86_64 = _table(
    # futex; semop, semtimedop, fcntl (waits for a lock of a file), flock
    futex=(202,),
    lock=(65, 220, 72, 73),
    # pause, nanosleep, clock_nanosleep
    sleep=(34, 35, 230),
    # read, write, readv, writev, preadv, pwritev, preadv2, pwritev2, sendfile, splice, close
    by_fd=(0, 1, 19, 20, 295, 296, 327, 328, 40, 275, 3),
    # open, stat, fstat, lstat, lseek, pread64, pwrite64, access, msync; fsync … creat;
    # link … chmod, statfs, sync, readahead, xattr, io_getevents, getdents64, fadvise64; *at;
    # copies and syncs
    files=(
        *(2, 4, 5, 6, 8, 17, 18, 21, 26, *range(74, 79), *range(82, 91), 137, 138, 162),
        *(187, *range(188, 200), 208, 217, 221, *range(257, 270), 277, 285, 306, 316, 326, 332),
    ),
    # connect, accept, sendto, recvfrom, sendmsg, recvmsg, shutdown, epoll_wait, epoll_pwait,
    # accept4, recvmmsg, sendmmsg
    network=(42, 43, 44, 45, 46, 47, 48, 232, 281, 288, 299, 307),
    # select, pselect6; poll, ppoll
    restarted=(219,),
    first_count=(23, 270),
    second_count=(7, 271),
    # clone, fork, vfork, wait4, waitid
    process=(56, 57, 58, 61, 247),
)

_AARCH64 = _table(
    futex=(98,),
    lock=(192, 193, 25, 32),
    sleep=(101, 115),
    by_fd=(63, 64, 65, 66, 69, 70, 286, 287, 71, 76, 57),
    files=(
        *(4, *range(5, 17), 33, 34, 35, 36, 37, 38, 43, 44, 45, 46, 47, 48, 56, 61, 62),
        *(67, 68, 78, 79, 80, 81, 82, 83, 84, 213, 223, 227, 267, 276, 285, 291),
    ),
    network=(202, 203, 206, 207, 210, 211, 212, 22, 242, 243, 269),
    restarted=(128,),
    first_count=(72,),
    second_count=(73,),
    process=(220, 260, 95),
)

_BY_MACHINE: Mapping[str, Mapping[int, str]] = {
    "x86_64": _X86_64,
    "amd64": _X86_64,
    "aarch64": _AARCH64,
    "arm64": _AARCH64,
}


def kinds_of_calls(machine: str | None = None) -> Mapping[int, str]:
    """Return the kind of each known system call by its number; empty for other architectures.

    Parameters
    ----------
    machine : str, optional
        Name of the architecture; by default this machine's.

    Examples
    --------
    >>> kinds_of_calls("x86_64")[230], kinds_of_calls("aarch64")[115], dict(kinds_of_calls("vax"))
    ('sleep', 'sleep', {})
    """
    found = _BY_MACHINE.get((machine or platform.machine()).lower())
    return {} if found is None else {**_COMMON, **found}

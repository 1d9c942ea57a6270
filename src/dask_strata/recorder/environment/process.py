"""The process: command line, user, limits, locale, and variables that affect libraries."""

from __future__ import annotations

import locale
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.recorder.environment.host_view import Fact, HostView

if TYPE_CHECKING:
    from collections.abc import Iterator

STEERING = (
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_STACKSIZE", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_ARENA_MAX", "HDF5_USE_FILE_LOCKING", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH",
    "PYTHONHASHSEED", "PYTHONMALLOC", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "LOADEDMODULES", "DARSHAN_LOGPATH", "DARSHAN_ENABLE_NONMPI", "TMPDIR", "TZ", "LANG", "LC_ALL",
    "LC_CTYPE", "LC_NUMERIC",
)  # fmt: skip
_LIMITS = ("NOFILE", "NPROC", "CORE", "MEMLOCK", "STACK", "AS", "RSS", "FSIZE", "CPU")


def identity(view: HostView) -> Iterator[Fact]:
    """Yield command lines, executable, working folder, ids and start of this process."""
    source = str(view.proc / "self" / "cmdline")
    yield Fact("process.command-line", shlex.join(view.arguments("self")), source)
    yield Fact("process.arguments", shlex.join(sys.argv), "sys.argv")
    yield Fact("process.executable", sys.executable or "", "sys.executable")
    yield Fact("process.working-directory", str(Path.cwd()), "os.getcwd")
    yield Fact("process.pid", str(os.getpid()), "os.getpid")
    parent = str(os.getppid())
    yield Fact("process.ppid", parent, "os.getppid")
    source = str(view.proc / parent / "cmdline")
    yield Fact("process.parent-command-line", shlex.join(view.arguments(parent)), source)
    started = _started()
    yield Fact("process.started", f"{started:.2f}", "psutil.Process.create_time")


def _started() -> float:
    import psutil

    return float(psutil.Process().create_time())


def user(_: HostView) -> Iterator[Fact]:
    """Yield id and name of the user of this process."""
    import pwd

    yield Fact("process.uid", str(os.getuid()), "os.getuid")
    try:
        yield Fact("process.user", pwd.getpwuid(os.getuid()).pw_name, "pwd.getpwuid")
    except KeyError:
        return  # in containers, a user id often has no name


def limits(_: HostView) -> Iterator[Fact]:
    """Yield the soft and hard limits that the operating system sets for this process."""
    import resource

    for name in _LIMITS:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        for kind, limit in zip(("soft", "hard"), resource.getrlimit(number), strict=True):
            text = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
            yield Fact(f"limit.{name.lower()}.{kind}", text, "resource.getrlimit")


def steering(view: HostView) -> Iterator[Fact]:
    """Yield the variables that control threads, memory, libraries and language."""
    for name in STEERING:
        if name in view.environ:
            yield Fact(f"environment.{name}", view.environ[name], name)


def locality(_: HostView) -> Iterator[Fact]:
    """Yield language, encodings and time zone."""
    language, encoding = locale.getlocale()
    yield Fact("locale.language", language or "C", "locale.getlocale")
    encoding = encoding or locale.getpreferredencoding(do_setlocale=False)
    yield Fact("locale.encoding", encoding, "locale.getlocale")
    yield Fact("locale.file-system-encoding", sys.getfilesystemencoding(), "sys")
    now = time.localtime()
    yield Fact("time.zone", now.tm_zone, "time.localtime")
    yield Fact("time.utc-offset-seconds", str(now.tm_gmtoff), "time.localtime")


COLLECTORS = {
    "identity": identity,
    "user": user,
    "limits": limits,
    "steering": steering,
    "locality": locality,
}

"""Darshan's runtime library: finding and testing it, and its configuration for workers."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from dask_strata.config import Settings
from dask_strata.errors import UsageError
from dask_strata.store.manifest import DARSHAN
from dask_strata.store.safe_files import create_file, share_as

LIBRARY = "libdarshan.so"

#: Variables with the path of the library or of a build's folder, and of an installation's folder.
_NAMED_BY = ("DARSHAN_PRELOAD", "DARSHAN_RUNTIME_LIB", "DARSHAN_LIB")
_INSTALLED_IN = ("DARSHAN_RUNTIME_DIR", "DARSHAN_DIR", "DARSHAN_ROOT", "DARSHAN_HOME")

_HINT = (
    "Use --darshan=/path/to/libdarshan.so. The library is part of darshan-runtime; PyDarshan "
    "(pip install darshan) contains only the library that reads logs."
)

#: Text in the library that reads logs (darshan-util), and in the one that writes them.
_READS_LOGS = b"darshan_log_open"
_WRITES_LOGS = b"DARSHAN_ENABLE_NONMPI"

_TRIAL_SECONDS = 30

#: Files of Python and the system. An exclusion replaces Darshan's own list, so these include it.
_EXCLUDED = (
    r"^/dev/",
    r"^/proc/",
    r"^/sys/",
    r"^/etc/",
    r"^/usr/",
    r"^/bin/",
    r"^/boot/",
    r"^/lib",
    r"^/opt/",
    r"^/sbin/",
    r"\.py$",
    r"\.pyc$",
    r"\.pyi$",
    r"\.pth$",
    r"\.so$",
    r"\.so\.[0-9.]+$",
    r"/site-packages/",
    r"/dist-packages/",
    r"/lib/python[0-9.]+/",
    r"\.seg$",
)

#: Longest run in days: some builds of Darshan need a folder for each day.
_DAYS = 8


def usable_library(library: str) -> Path:
    """Return the path of Darshan's runtime library, after a test that Python loads it.

    Parameters
    ----------
    library : str
        Its path, or auto to search for it.

    Returns
    -------
    Path
        Its absolute path.

    Raises
    ------
    UsageError
        The library does not exist, is another one, or cannot be loaded; or this is not Linux.
    """
    if sys.platform != "linux":
        raise UsageError("Darshan can be loaded into workers on Linux only.")
    path = _find() if library == "auto" else Path(library).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"No such library: {path}", hint=_HINT)
    content = path.read_bytes()
    if _READS_LOGS in content and _WRITES_LOGS not in content:
        raise UsageError(
            f"{path} is darshan-util, which reads logs; Darshan's runtime library writes them.",
            hint=_HINT,
        )
    problem = _trial(path)
    if problem is not None:
        raise UsageError(f"{path} cannot be loaded into Python: {problem}.", hint=_HINT)
    return path


def _find() -> Path:
    """Search the library by variables, next to darshan-config, and on the loader's paths."""
    for name in _NAMED_BY:
        if os.environ.get(name):
            named = Path(os.environ[name])
            return named / LIBRARY if named.is_dir() else named
    folders = [Path(os.environ[name]) for name in _INSTALLED_IN if os.environ.get(name)]
    config = shutil.which("darshan-config")
    if config is not None:
        folders.append(Path(config).resolve().parents[1])
    found = [
        p for f in folders for lib in ("lib", "lib64", ".") if (p := f / lib / LIBRARY).is_file()
    ]
    found += [p for f in _library_path() if (p := f / LIBRARY).is_file()]
    found += _in_loader_cache()
    if not found:
        variables = ", ".join((*_NAMED_BY, *_INSTALLED_IN))
        raise UsageError(
            f"Darshan's runtime library {LIBRARY} was not found by the variables {variables}, "
            "next to darshan-config, in LD_LIBRARY_PATH or with ldconfig.",
            hint=_HINT,
        )
    return found[0].absolute()


def _library_path() -> list[Path]:
    return [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]


def _in_loader_cache() -> list[Path]:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        done = subprocess.run(  # noqa: S603  the system's ldconfig
            [ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = re.findall(rf"^\s*{re.escape(LIBRARY)}\S* .*=> (\S+)$", done.stdout, re.MULTILINE)
    return [Path(line) for line in lines]


def _trial(library: Path) -> str | None:
    """Load a library into a new Python process; return the error, or None without one."""
    code = "import sys; sys.stdout.write(open('/proc/self/maps').read())"
    environment = {**os.environ, "LD_PRELOAD": str(library), "DARSHAN_DISABLE": "1"}
    try:
        done = subprocess.run(  # noqa: S603  the running Python
            [sys.executable, "-I", "-S", "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TRIAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"Python exited with code {done.returncode}" + (f": {lines[-1]}" if lines else "")
    if is_loaded(library, done.stdout):
        return None
    refused = [line for line in done.stderr.splitlines() if "LD_PRELOAD" in line]
    return refused[0] if refused else "the loader ignored it, without a message"


def _preload(library: Path, other: str | None) -> str:
    """Return the value of LD_PRELOAD that adds the library to its other libraries.

    >>> _preload(Path("/d/libdarshan.so"), None), _preload(Path("/d/libdarshan.so"), "/m.so")
    ('/d/libdarshan.so', '/d/libdarshan.so:/m.so')
    """
    return f"{library}:{other}" if other else str(library)


def is_loaded(library: str | Path, maps: str | None = None) -> bool:
    """Return whether a library is loaded into a process.

    Parameters
    ----------
    library : str or Path
        Path of the library.
    maps : str, optional
        The process's ``/proc/PID/maps``; by default those of this process.
    """
    if maps is None:
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
    real = os.path.realpath(library)
    return any(line.endswith((f" {real}", f" {library}")) for line in maps.splitlines())


def log_folder(settings: Settings, run_folder: Path) -> Path:
    """Return the folder of Darshan's logs.

    Parameters
    ----------
    settings : Settings
        Settings of the recording.
    run_folder : Path
        The run's folder, which contains the logs by default.
    """
    if settings.darshan_log_dir is None:
        return run_folder / DARSHAN
    return Path(settings.darshan_log_dir).expanduser().absolute()


def logs_in(folder: Path) -> list[Path]:
    """Return Darshan's logs in a folder and its subfolders, sorted.

    Parameters
    ----------
    folder : Path
        The folder.
    """
    return sorted(folder.rglob("*.darshan"))


def prepare_environment(
    settings: Settings, library: Path, logs: Path, run_folder: Path, preload: str | None = None
) -> dict[str, str]:
    """Create the folder of the logs and Darshan's configuration; return the variables for Darshan.

    The folder of the logs may be the user's and contain another configuration file. So the file
    has the run's name; it is in the run's folder or, if that cannot be written, with the logs.

    Parameters
    ----------
    settings : Settings
        Settings of the recording.
    library : Path
        Darshan's runtime library.
    logs : Path
        Folder of the logs.
    run_folder : Path
        The run's folder.
    preload : str, optional
        Value of LD_PRELOAD without Darshan.

    Returns
    -------
    dict of str to str
        Environment variables for a process, by name.

    Raises
    ------
    OSError
        The folder of the logs cannot be written.
    """
    logs.mkdir(parents=True, exist_ok=True)
    today = datetime.now(timezone.utc).astimezone()
    for day in range(_DAYS):
        date = today + timedelta(days=day)
        (logs / f"{date.year}" / f"{date.month}" / f"{date.day}").mkdir(parents=True, exist_ok=True)
    if run_folder in logs.parents:
        share_as(run_folder, *(path for path in (logs, *logs.rglob("*")) if path.is_dir()))
    name, text = f"dask-strata-{run_folder.name}.conf", configuration(settings, logs)
    try:
        config = _write(run_folder / name, text)
    except OSError:
        config = _write(logs / name, text)
    variables = {
        "LD_PRELOAD": _preload(library, preload),
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_CONFIG_PATH": str(config),
        # Each build of Darshan reads one of them.
        **dict.fromkeys(("DARSHAN_LOGPATH", "DARSHAN_LOG_DIR_PATH", "DARSHAN_LOGDIR"), str(logs)),
        "DARSHAN_MODMEM": str(settings.darshan_memory),
    }
    if settings.darshan_dxt:
        variables["DXT_ENABLE_IO_TRACE"] = "1"
    return variables


def _write(path: Path, text: str) -> Path:
    """Replace a file in one step, so that no reader finds a part of it."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(create_file(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(text.encode())
    return hidden.replace(path)


def configuration(settings: Settings, logs: Path) -> str:
    """Return the text of Darshan's configuration file.

    Parameters
    ----------
    settings : Settings
        Settings of the recording.
    logs : Path
        Folder of the logs, which Darshan must not trace.
    """
    lines = [
        f"MODMEM {settings.darshan_memory}",
        f"MAX_RECORDS {settings.darshan_records} POSIX,STDIO,MPI-IO,DXT_POSIX,DXT_MPIIO",
        *(
            f"NAME_EXCLUDE {_one_pattern(pattern)} *"
            for pattern in (*_EXCLUDED, f"^{re.escape(str(logs))}", *settings.darshan_exclude)
        ),
    ]
    if settings.darshan_dxt:
        lines.append("MOD_ENABLE DXT_POSIX,DXT_MPIIO")
    return "\n".join(lines) + "\n"


def _one_pattern(pattern: str) -> str:
    r"""Return a regular expression without white space and commas, which end Darshan's patterns.

    >>> _one_pattern(r"^/my\ data,new"), _one_pattern("[0-9]{1,3}x{2,}"), _one_pattern("(ab){,2}")
    ('^/my.data.new', '[0-9][0-9]?[0-9]?xxx*', '(ab)?(ab)?')
    """
    return re.sub(r"\\?[\s,]", ".", _INTERVAL.sub(_spelled_out, pattern))


#: A repetition with two bounds, as `[a-z]{1,3}`.
_INTERVAL = re.compile(
    r"(\\.|\[\^?\]?[^\]]*\]|\((?:\\.|[^()\\])*\)|[^\\\])}])\{(\d{0,2}),(\d{0,2})\}"
)


def _spelled_out(interval: re.Match[str]) -> str:
    atom, least, most = interval[1], int(interval[2] or 0), interval[3]
    more = f"{atom}*" if not most else f"{atom}?" * (int(most) - least)
    return atom * least + more

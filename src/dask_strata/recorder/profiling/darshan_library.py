"""Darshan in workers: its library found and tried, and what its processes are to be told."""

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

LIBRARY = "libdarshan.so"

#: Variables that name the library, the folder of a build, or the folder of an installation.
_NAMED_BY = ("DARSHAN_PRELOAD", "DARSHAN_RUNTIME_LIB", "DARSHAN_LIB")
_INSTALLED_IN = ("DARSHAN_RUNTIME_DIR", "DARSHAN_DIR", "DARSHAN_ROOT", "DARSHAN_HOME")

_HINT = (
    "Give it: --darshan=/path/to/libdarshan.so. It comes with darshan-runtime; PyDarshan "
    "(pip install darshan) has only the library that reads logs."
)

#: What only the library that reads logs has in it.
_READS_LOGS = b"darshan_log_open"
_WRITES_LOGS = b"DARSHAN_ENABLE_NONMPI"

_TRIAL_SECONDS = 30

#: Files of Python and the system. Any exclusion replaces Darshan's own list, which is among them.
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

#: Days that a run may take: some builds of Darshan want a folder for each.
_DAYS = 8


def usable_library(library: str) -> Path:
    """Return Darshan's runtime library, which has been seen to load here.

    Parameters
    ----------
    library : str
        Its path, or auto to look for it.

    Raises
    ------
    UsageError
        It is not there, is another library, or does not load.
    """
    if sys.platform != "linux":
        raise UsageError("Darshan can be loaded into workers on Linux only.")
    path = _find() if library == "auto" else Path(library).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"There is no library {path}.", hint=_HINT)
    content = path.read_bytes()
    if _READS_LOGS in content and _WRITES_LOGS not in content:
        raise UsageError(
            f"{path} is darshan-util, which reads logs; Darshan's runtime writes them.", hint=_HINT
        )
    problem = _trial(path)
    if problem is not None:
        raise UsageError(f"{path} cannot be loaded into Python: {problem}.", hint=_HINT)
    return path


def _find() -> Path:
    """Return the library from where installations of Darshan say that it is."""
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
    found += _known_to_loader()
    if not found:
        where = ", ".join((*_NAMED_BY, *_INSTALLED_IN))
        raise UsageError(
            f"Darshan's runtime library {LIBRARY} was not found: not named by {where}, not beside "
            "darshan-config, not in LD_LIBRARY_PATH, not known to ldconfig.",
            hint=_HINT,
        )
    return found[0].absolute()


def _library_path() -> list[Path]:
    return [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]


def _known_to_loader() -> list[Path]:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        done = subprocess.run(  # noqa: S603  a program of the system
            [ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = re.findall(rf"^\s*{re.escape(LIBRARY)}\S* .*=> (\S+)$", done.stdout, re.MULTILINE)
    return [Path(line) for line in lines]


def _trial(library: Path) -> str | None:
    """Return why a Python of its own does not load a library; None if it does."""
    code = "import sys; sys.stdout.write(open('/proc/self/maps').read())"
    environment = {**os.environ, "LD_PRELOAD": str(library), "DARSHAN_DISABLE": "1"}
    try:
        done = subprocess.run(  # noqa: S603  this very Python
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
        said = done.stderr.strip().splitlines()
        return f"Python ended with {done.returncode}" + (f": {said[-1]}" if said else "")
    if is_loaded(library, done.stdout):
        return None
    refused = [line for line in done.stderr.splitlines() if "LD_PRELOAD" in line]
    return refused[0] if refused else "the loader left it out, and did not say why"


def preloaded(library: Path, already: str | None = None) -> str:
    """Return what LD_PRELOAD is to be, with what was in it."""
    return f"{library}:{already}" if already else str(library)


def is_loaded(library: str | Path, maps: str | None = None) -> bool:
    """Tell whether a library is in the memory of this process, or of one with these maps."""
    if maps is None:
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
    real = os.path.realpath(library)
    return any(line.endswith((f" {real}", f" {library}")) for line in maps.splitlines())


def log_folder(settings: Settings, run_folder: Path) -> Path:
    """Return the folder that Darshan is to write its logs to."""
    if settings.darshan_log_dir is None:
        return run_folder / DARSHAN
    return Path(settings.darshan_log_dir).expanduser().absolute()


def logs_in(folder: Path) -> list[Path]:
    """Return Darshan's logs in a folder and those below."""
    return sorted(folder.rglob("*.darshan"))


def environment(
    settings: Settings, library: Path, logs: Path, run_folder: Path, already: str | None = None
) -> dict[str, str]:
    """Make the folder for logs and Darshan's configuration; return the variables for a process.

    The folder for logs may be the user's, with a configuration of his own: ours is named after
    the run, and beside the logs only where the run's folder cannot be written.

    Parameters
    ----------
    settings : Settings
        What Darshan is to do.
    library : Path
        Its runtime library.
    logs : Path
        Folder for its logs.
    run_folder : Path
        The run's folder.
    already : str, optional
        What LD_PRELOAD is without us.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    logs.mkdir(parents=True, exist_ok=True)
    today = datetime.now(timezone.utc).astimezone()
    for day in range(_DAYS):
        date = today + timedelta(days=day)
        (logs / f"{date.year}" / f"{date.month}" / f"{date.day}").mkdir(parents=True, exist_ok=True)
    name, text = f"dask-strata-{run_folder.name}.conf", configuration(settings, logs)
    try:
        config = _write(run_folder / name, text)
    except OSError:
        config = _write(logs / name, text)
    variables = {
        "LD_PRELOAD": preloaded(library, already),
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_CONFIG_PATH": str(config),
        # Which of them is obeyed is decided when Darshan is built.
        **dict.fromkeys(("DARSHAN_LOGPATH", "DARSHAN_LOG_DIR_PATH", "DARSHAN_LOGDIR"), str(logs)),
        "DARSHAN_MODMEM": str(settings.darshan_memory),
    }
    if settings.darshan_dxt:
        variables["DXT_ENABLE_IO_TRACE"] = "1"
    return variables


def _write(path: Path, text: str) -> Path:
    """Write a file so that whoever reads it meanwhile finds the whole of it."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    hidden.write_text(text, encoding="utf-8")
    return hidden.replace(path)


def configuration(settings: Settings, logs: Path) -> str:
    """Return the text of Darshan's configuration file."""
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
    r"""Return a regular expression as one word without commas: these separate Darshan's patterns.

    >>> _one_pattern(r"^/my\ data,new"), _one_pattern("[0-9]{1,3}x{2,}"), _one_pattern("(ab){,2}")
    ('^/my.data.new', '[0-9][0-9]?[0-9]?xxx*', '(ab)?(ab)?')
    """
    return re.sub(r"\\?[\s,]", ".", _INTERVAL.sub(_spelled_out, pattern))


#: What is repeated from so many to so many times, as `[a-z]{1,3}`.
_INTERVAL = re.compile(
    r"(\\.|\[\^?\]?[^\]]*\]|\((?:\\.|[^()\\])*\)|[^\\\])}])\{(\d{0,2}),(\d{0,2})\}"
)


def _spelled_out(interval: re.Match[str]) -> str:
    what, least, most = interval[1], int(interval[2] or 0), interval[3]
    more = f"{what}*" if not most else f"{what}?" * (int(most) - least)
    return what * least + more

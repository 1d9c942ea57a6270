"""Read profiles that Yappi or Python saved, pstat and callgrind files, as rows of ``functions``.

A pstat file is marshal data, which can crash the interpreter that reads it. A child process with
limits on memory and time reads it and prints JSON. A ystat file is a pickle, which can run code;
it is refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dask_strata.errors import ImportedDataError
from dask_strata.importers.profiles.callgrind import (
    LONGEST_NAME,
    MOST_FUNCTIONS,
    CallgrindError,
    read_callgrind,
)
from dask_strata.schema.owners import owner_of, waits

_FORMS = {
    ".pstat": "pstat",
    ".pstats": "pstat",
    ".prof": "pstat",
    ".cprof": "pstat",
    ".callgrind": "callgrind",
    ".ystat": "ystat",
}

#: Endings of the names of profiles. They include ystat, so that it is refused with a reason.
ENDINGS = tuple(_FORMS)

#: Bytes from which a file is recognised.
_HEAD = 4096

#: Marshal data, without flags: a dictionary whose first key is a tuple of three, or an empty one.
_MARSHALLED = (b"{)\x03", b"{0")

#: Limits of the child that reads marshal data: bytes of memory, CPU seconds, seconds in total.
_MEMORY, _CPU_SECONDS, _SECONDS = 2 * 2**30, 60, 120

#: Largest profile, and largest output of the child, in bytes. The output can be larger than the
#: file, which contains a name once even if many functions share it.
_LARGEST, _MOST_WRITTEN = 256 * 2**20, 64 * 2**20

#: Begins the child's last error line if a limit on functions or output is exceeded.
_TOO_LARGE = "OverflowError: "

_CHILD = """
import json, marshal, resource, sys
memory, seconds, longest, most, most_written = map(int, sys.argv[2:])
def limit(kind, value):
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
limit(resource.RLIMIT_AS, memory)
limit(resource.RLIMIT_CPU, seconds)
limit(resource.RLIMIT_CORE, 0)
with open(sys.argv[1], "rb") as file:
    stats = marshal.load(file)
if type(stats) is not dict:
    raise ValueError("it has no statistics")
def whole(n):
    if type(n) is not int or not 0 <= n < 2**63:
        raise ValueError("a number of calls or a line is no such number")
    return n
def real(x):
    if type(x) not in (int, float) or not abs(x) < 1e15:
        raise ValueError("a time is no number of seconds")
    return float(x)
def text(t):
    if type(t) is not str:
        raise ValueError("a name is no text")
    return t[:longest].encode("utf-8", "replace").decode()
if len(stats) > most:
    raise OverflowError(f"it has more than {most:,} functions")
written = 0
for key, value in stats.items():
    if type(key) is not tuple or len(key) != 3 or type(value) is not tuple or len(value) != 5:
        raise ValueError("it has data other than statistics of functions")
    file, line, name = key
    calls = [whole(n) for n in value[:2]]
    row = [text(file), whole(line), text(name), max(calls), min(calls), *map(real, value[2:4])]
    written += sys.stdout.write(json.dumps(row) + "\\n")
    if written > most_written:
        raise OverflowError(f"its functions take more than {most_written:,} bytes")
sys.stdout.write("end\\n")
"""


def is_profile_head(head: bytes) -> bool:
    r"""Return whether the first bytes of a file are those of a profile.

    >>> is_profile_head(b"{\xa9\x03"), is_profile_head(b"PAR1")
    (True, False)
    """
    return _form_of(head) is not None


def is_profile(path: Path) -> bool:
    """Return whether a file's name or contents are those of a saved profile."""
    return path.is_file() and _form(path) is not None


def check_size(path: Path) -> None:
    """Refuse a file whose size no profile has, before reading it.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    ImportedDataError
        The file is empty, or larger than 256 MiB.
    OSError
        Its size cannot be read.
    """
    size = path.stat().st_size
    if not size:
        raise ImportedDataError(f"{path} is empty.")
    if size > _LARGEST:
        raise ImportedDataError(f"{path} is too large for a profile: {size:,} bytes.")


def read_profile(path: Path) -> list[dict[str, Any]]:
    """Return the functions of a profile, as rows of ``functions`` without process and time.

    Parameters
    ----------
    path : Path
        A pstat or callgrind file.

    Raises
    ------
    ImportedDataError
        The file cannot be read; the text contains the reason.
    """
    try:
        form = _form(path)
        if form in ("callgrind", "pstat"):
            check_size(path)
        if form == "callgrind":
            found = list(_of_callgrind(path))
        elif form == "pstat":
            found = list(_of_pstat(path))
        elif form == "ystat":
            raise ImportedDataError(
                f"{path} is a pickle, which runs code when it is read.",
                hint="Have Yappi save it as pstat or callgrind.",
            )
        else:
            raise ImportedDataError(f"{path} is no profile that Yappi or Python saved.")
    except OSError as error:
        raise ImportedDataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except CallgrindError as error:
        raise ImportedDataError(f"{path} cannot be read: {error}.") from None
    return found


def _form(path: Path) -> str | None:
    ending = _FORMS.get(path.suffix.lower())
    if ending is not None:
        return ending
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    return "callgrind" if path.name.startswith("callgrind.out") else _form_of(head)


def _form_of(head: bytes) -> str | None:
    if b"\nevents:" in head:
        return "callgrind"
    plain = bytes(b & 0x7F if i < 2 else b for i, b in enumerate(head[:3]))  # noqa: PLR2004  the two type bytes carry flags
    return "pstat" if plain.startswith(_MARSHALLED) else None


def _of_callgrind(path: Path) -> Iterator[dict[str, Any]]:
    for function in read_callgrind(path):
        yield _row(
            path,
            function.file,
            function.line,
            function.name,
            ncall=function.calls,
            total_seconds=function.total,
            own_seconds=function.own,
        )


def _of_pstat(path: Path) -> Iterator[dict[str, Any]]:
    for line in _in_child(path):
        file, number, name, calls, actual, own, total = json.loads(line)
        yield _row(
            path,
            file,
            number,
            name,
            ncall=calls,
            nactualcall=actual,
            total_seconds=total,
            own_seconds=own,
        )


def _in_child(path: Path) -> list[str]:
    limits = (_MEMORY, _CPU_SECONDS, LONGEST_NAME, MOST_FUNCTIONS, _MOST_WRITTEN)
    try:
        done = subprocess.run(  # noqa: S603  this Python, and a program of dask-strata
            [sys.executable, "-I", "-S", "-c", _CHILD, str(path.absolute()), *map(str, limits)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ImportedDataError(f"{path} could not be read in {_SECONDS} s.") from None
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    if done.returncode == 0 and lines[-2:] == ["end", ""]:
        return lines[:-2]
    if done.returncode < 0:
        raise ImportedDataError(
            f"{path} is no pstat file: its reader was killed by signal {-done.returncode}."
        )
    errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if errors and errors[-1].startswith(_TOO_LARGE):
        raise ImportedDataError(
            f"{path} is too large for a profile: {errors[-1].removeprefix(_TOO_LARGE)}."
        )
    reason = errors[-1].partition(": ")[2] or errors[-1] if errors else "no reason was given"
    raise ImportedDataError(f"{path} is no pstat file, or is cut: {reason}.")


def _row(path: Path, module: str, line: int | None, name: str, **numbers: Any) -> dict[str, Any]:
    owner = owner_of("" if module in ("~", "") else module)
    return {
        "name": name,
        "module": module,
        "line": line,
        "waiting": waits(module, name, owner.owner, coroutine=None, clock=None),
        **numbers,
        "owner": owner.owner,
        "package": owner.package,
        "file": str(path),
    }

"""Running an unchanged script with all its clusters and clients recorded.

The script runs in its own Python process. Only its environment variables differ from those of a
plain run: Dask's preload settings name dask-strata, and the settings of dask-strata are added.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from dask_strata.config import Settings
from dask_strata.errors import UsageError
from dask_strata.recorder.environment.launched import noted_runs, worker_note
from dask_strata.recorder.environment.script_end import end_note, noted_end
from dask_strata.recorder.pipeline.anonymize import encoder_for
from dask_strata.recorder.session import joined_note
from dask_strata.recorder.upload import session_spool
from dask_strata.store.copies.place import absolute, is_url
from dask_strata.store.manifest import (
    MANIFEST,
    SEGMENTS,
    SUFFIX,
    Manifest,
    find_runs,
    new_run_id,
    process_identity,
)
from dask_strata.store.segments.frames import Batch
from dask_strata.store.sinks import FileSink

logger = logging.getLogger("dask_strata")

_PRELOAD = "dask_strata"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Joined:
    """A run that the script joined: its scheduler had started it.

    Attributes
    ----------
    place : str
        Its folder; with the host in front if it is on another machine.
    copy : Path or None
        Folder of its copy on this machine.
    folder : Path
        Its folder, without the host.
    """

    place: str
    copy: Path | None
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """The result of a recorded script.

    Attributes
    ----------
    status : int
        Exit status, as a shell reports it.
    runs : tuple of Path
        Folders of the runs that the script started, on this machine.
    joined : tuple of Joined
        The other runs that contain its clients.
    worked : tuple of Path
        Folders of the other runs that contain its workers.
    spool : Path or None
        The folder that was made for runs until they are uploaded, if their place is a URL.
    exception : dict of str to str
        Facts of the uncaught exception that ended the script; empty without one.
    """

    status: int
    runs: tuple[Path, ...]
    joined: tuple[Joined, ...]
    worked: tuple[Path, ...]
    spool: Path | None = None
    exception: dict[str, str] = field(default_factory=dict)


def launch(module: str | None, command_line: list[str], settings: Settings) -> Outcome:
    """Run a script or module with recording, and wait for its end.

    Parameters
    ----------
    module : str or None
        Module to run, as with ``python -m``; without one, the command line starts with a script.
    command_line : list of str
        Script and arguments, or arguments of the module.
    settings : Settings
        What to record and where.

    Returns
    -------
    Outcome

    Raises
    ------
    UsageError
        The command line is empty, or its script does not exist.
    """
    command = [sys.executable, *_target(module, command_line)]
    settings = replace(settings, runs=absolute(settings.runs), session=secrets.token_hex(8))
    if is_url(settings.runs):
        runs = session_spool(settings)
        settings = replace(settings, spool=str(runs))
    else:
        runs = Path(settings.runs).resolve()
        settings = replace(settings, runs=str(runs))
    session = str(settings.session)
    environment = {**os.environ, **_variables(settings)}
    status, pid = _run(command, environment)
    exception = noted_end(end_note(runs, session), pid)
    started = tuple(_runs_of(runs, session))
    joined = tuple(j for j in _joined(runs, session) if j.folder not in started)
    known = {*started, *(j.folder for j in joined)}
    worked = tuple(f for f in noted_runs(worker_note(runs, session)) if f not in known)
    spool = runs if is_url(settings.runs) else None
    return Outcome(status, started, joined, worked, spool, exception if status else {})


def note_exit_status(
    folder: Path, status: int, settings: Settings, exception: dict[str, str] | None = None
) -> None:
    """Add the script's exit status and exception to a run.

    Do nothing if the run's folder was removed. A folder that cannot be written, for example on a
    full disk, causes a warning.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    status : int
        Exit status, as a shell reports it.
    settings : Settings
        Settings of the recording.
    exception : dict of str to str, optional
        Facts of the exception that ended the script.
    """
    identity = process_identity()
    if "hosts" in settings.leave_out:  # the run's key for hashing host names is not available here
        identity = {**identity, "host": None}
    process = f"record-{new_run_id()}"
    encoder = encoder_for(settings, process, {"role": "record", **identity})
    facts = {"exit_status": str(status), **(exception or {})}
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    end = {"role": "record", "host": identity["host"], "pid": identity["pid"]}
    end |= {"start": time.time_ns(), "stop": time.time_ns(), "exit_reason": "closed"}
    batches = [Batch.of_rows("script", rows), Batch.of_rows("processes", [end])]
    try:
        sink = FileSink(folder / SEGMENTS / f"{process}{SUFFIX}", encoder.header())
        sink.write(encoder.frame(batches), len(batches))
        sink.close()
    except FileNotFoundError:  # the run's folder was removed
        return
    except OSError as error:
        logger.warning("dask-strata could not record the exit status in %s: %s", folder, error)


def _target(module: str | None, command_line: list[str]) -> list[str]:
    if module is not None:
        return ["-m", module, *command_line]
    if not command_line:
        raise UsageError(
            "There is nothing to run.", hint="Example: dask-strata record pipeline.py ARGS"
        )
    script = Path(command_line[0])
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise UsageError(f"{script} is a folder without a __main__.py.")
    if not script.exists():
        hint = (
            f"Put options of dask-strata before the script: {script}"
            if str(script).startswith("-")
            else None
        )
        raise UsageError(f"No such script: {script}", hint=hint)
    return command_line


def _variables(settings: Settings) -> dict[str, str]:
    """Return environment variables that add settings and preloads to Dask's configuration."""
    import dask

    values = settings.as_config()
    variables = {
        f"DASK_DASK_STRATA__{name.upper().replace('-', '_').replace('.', '__')}": repr(value)
        for name, value in values.items()
        if value is not None
    }
    has_preloads = False
    for role in ("scheduler", "client"):
        present = dask.config.get(f"distributed.{role}.preload", default=None) or []
        present = [present] if isinstance(present, str) else list(present)
        arguments = dask.config.get(f"distributed.{role}.preload-argv", default=None) or []
        has_preloads = has_preloads or bool(present)
        if _PRELOAD in present:
            continue
        prefix = f"DASK_DISTRIBUTED__{role.upper()}__PRELOAD"
        variables[prefix] = repr([*present, _PRELOAD])
        if arguments and not isinstance(arguments[0], str):
            variables[f"{prefix}_ARGV"] = repr([*arguments, []])
    levels = dask.config.get("logging", default=None) or {}
    if not has_preloads and "version" not in levels and "distributed.preloading" not in levels:
        # Dask logs each preload on standard error: silence that if only dask-strata is preloaded.
        variables["DASK_LOGGING"] = repr({**levels, "distributed.preloading": "warning"})
    return variables


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, int]:
    """Run a command to its end; return its exit status, as a shell reports it, and its process id.

    On a terminal the script shares the process group of `dask-strata record`, so Ctrl-C reaches it
    directly. Otherwise it gets its own group, and this process forwards each signal once. On
    Linux, the script is killed if this process dies.
    """
    terminal = any(s is not None and s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))
    with _signals(lambda: child, forward_interrupt=not terminal):
        child = (
            subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                command,
                env=environment,
                preexec_fn=_prepare(own_group=not terminal),  # noqa: PLW1509  this process has one thread
            )
            if os.name == "posix"
            else subprocess.Popen(command, env=environment)  # noqa: S603  as above
        )
        status = child.wait()
    return (128 - status if status < 0 else status), child.pid


def _prepare(*, own_group: bool) -> Callable[[], None]:
    parent = os.getpid()
    prctl = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        if own_group:
            os.setpgid(0, 0)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    return prepare


@contextlib.contextmanager
def _signals(child: Callable[[], Any], *, forward_interrupt: bool) -> Iterator[None]:
    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(NameError, ProcessLookupError):
            child().send_signal(number)

    def ignore(_: int, __: FrameType | None) -> None:
        """Ignore a signal that the script has received from the terminal itself."""

    handlers = {signal.SIGINT: forward if forward_interrupt else ignore, signal.SIGTERM: forward}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = forward
    # Leave ignored signals (nohup, a background job) ignored: the script inherits that.
    previous = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _joined(runs: Path, session: str) -> list[Joined]:
    note = joined_note(runs, session)
    try:
        lines = note.read_text(encoding="utf-8").splitlines()
        note.unlink()
    except OSError:
        return []
    found = []
    for facts in map(json.loads, dict.fromkeys(lines)):
        folder, copy = Path(facts["folder"]), facts["copy"]
        here = copy is None and (folder / MANIFEST).exists()
        elsewhere = facts["url"] or f"{facts['host'] or 'the scheduler'}:{folder}"
        place = str(folder) if here else elsewhere
        found.append(Joined(place, None if copy is None else Path(copy), folder))
    return found


def _runs_of(runs: Path, session: str) -> Iterator[Path]:
    for folder in find_runs(runs):
        with contextlib.suppress(Exception):  # an unrelated run may be damaged in any way
            if Manifest.read(folder).session == session:
                yield folder

"""Running an unchanged script so that every cluster and client it makes is recorded.

The script runs in a Python of its own, exactly as it would without us. All that differs is
its environment: Dask's preload settings name this package, and ours say where to record.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from dask_strata.config import Settings
from dask_strata.errors import UsageError
from dask_strata.recorder.pipeline.anonymize import encoder_for
from dask_strata.recorder.session import joined_note
from dask_strata.store.frames import Batch
from dask_strata.store.liveness import process_identity
from dask_strata.store.manifest import SEGMENTS, SUFFIX, Manifest, new_run_id
from dask_strata.store.reader import find_runs
from dask_strata.store.sinks import FileSink

_PRELOAD = "dask_strata"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """What became of the script: its exit status as a shell sees it, and its runs' folders.

    ``joined`` are runs of others that its clients are on record in.
    """

    status: int
    runs: tuple[Path, ...]
    joined: tuple[Path, ...]


def launch(module: str | None, command_line: list[str], settings: Settings) -> Outcome:
    """Run a script or module, and wait for it and for its records.

    Parameters
    ----------
    module : str or None
        Module to run as ``python -m`` does; else the command line begins with a script.
    command_line : list of str
        Script and arguments, or arguments of the module.
    settings : Settings
        What to record and where.

    Raises
    ------
    UsageError
        There is nothing to run.
    """
    command = [sys.executable, *_target(module, command_line)]
    session = secrets.token_hex(8)
    runs = Path(settings.runs).resolve()
    environment = {**os.environ, **_variables(settings, runs, session)}
    status = _run(command, environment)
    made = tuple(_runs_of(runs, session))
    return Outcome(status, made, tuple(f for f in _joined(runs, session) if f not in made))


def note_exit_status(folder: Path, status: int, settings: Settings) -> None:
    """Put the script's exit status on record, beside what its processes wrote; never raises."""
    here = process_identity()
    if "hosts" in settings.leave_out:  # the key of the run's names for them is not known here
        here = {**here, "host": None}
    process = f"record-{new_run_id()}"
    encoder = encoder_for(settings, process, {"role": "record", **here})
    row = {"name": "exit_status", "value": str(status)}
    end = {"role": "record", "host": here["host"], "pid": here["pid"]}
    end |= {"start": time.time_ns(), "stop": time.time_ns(), "exit_reason": "closed"}
    batches = [Batch.of_rows("script", [row]), Batch.of_rows("processes", [end])]
    with contextlib.suppress(OSError):  # the folder is gone: there is nothing to add to
        sink = FileSink(folder / SEGMENTS / f"{process}{SUFFIX}", encoder.header())
        sink.write(encoder.frame(batches), len(batches))
        sink.close()


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
            f"Options of dask-strata come before the script: {script}"
            if str(script).startswith("-")
            else None
        )
        raise UsageError(f"There is no script {script}.", hint=hint)
    return command_line


def _variables(settings: Settings, runs: Path, session: str) -> dict[str, str]:
    """Return the variables by which Dask's configuration gets our settings and preloads."""
    import dask

    ours: dict[str, Any] = {**settings.as_config(), "runs": str(runs), "session": session}
    variables = {
        f"DASK_DASK_STRATA__{name.upper().replace('-', '_').replace('.', '__')}": repr(value)
        for name, value in ours.items()
        if value is not None
    }
    already = False
    for role in ("scheduler", "client"):
        present = dask.config.get(f"distributed.{role}.preload", default=None) or []
        present = [present] if isinstance(present, str) else list(present)
        arguments = dask.config.get(f"distributed.{role}.preload-argv", default=None) or []
        already = already or bool(present)
        if _PRELOAD in present:
            continue
        prefix = f"DASK_DISTRIBUTED__{role.upper()}__PRELOAD"
        variables[prefix] = repr([*present, _PRELOAD])
        if arguments and not isinstance(arguments[0], str):
            variables[f"{prefix}_ARGV"] = repr([*arguments, []])
    levels = dask.config.get("logging", default=None) or {}
    if not already and "version" not in levels and "distributed.preloading" not in levels:
        # Dask tells of each preload on standard error; without us it would have nothing to tell.
        variables["DASK_LOGGING"] = repr({**levels, "distributed.preloading": "warning"})
    return variables


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end and return its status as a shell would.

    On a terminal the script is in our process group: Ctrl-C reaches it as it would without
    us. Elsewhere it has a group of its own, and whatever signal reaches us is handed on
    once. It does not outlive us either way, where the system can see to that.
    """
    terminal = any(s is not None and s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))
    with _signals(lambda: child, forward_interrupt=not terminal):
        child = (
            subprocess.Popen(  # noqa: S603  the user's own command, no shell
                command,
                env=environment,
                preexec_fn=_prepare(own_group=not terminal),  # noqa: PLW1509  we have one thread
            )
            if os.name == "posix"
            else subprocess.Popen(command, env=environment)  # noqa: S603  as above
        )
        status = child.wait()
    return 128 - status if status < 0 else status


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

    def leave(_: int, __: FrameType | None) -> None:
        """Let the script decide: it got the signal from the terminal itself."""

    handlers = {signal.SIGINT: forward if forward_interrupt else leave, signal.SIGTERM: forward}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = forward
    # What is ignored here (nohup, a background job) the script must find ignored, too.
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


def _joined(runs: Path, session: str) -> list[Path]:
    note = joined_note(runs, session)
    try:
        folders = note.read_text(encoding="utf-8").splitlines()
        note.unlink()
    except OSError:
        return []
    return [Path(folder) for folder in dict.fromkeys(folders)]


def _runs_of(runs: Path, session: str) -> Iterator[Path]:
    for folder in find_runs(runs):
        with contextlib.suppress(Exception):  # a run of someone else may be damaged in any way
            if Manifest.read(folder).session == session:
                yield folder

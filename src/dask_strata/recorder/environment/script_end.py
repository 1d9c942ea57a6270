"""The uncaught exception that ends a script, noted for the `dask-strata record` that runs it.

The script's cluster and client are often closed when the exception arrives at the top, and their
recording has ended. The script's process therefore writes a note, and the command adds it to the
run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from dask_strata.config import Settings
from dask_strata.recorder.pipeline.redact import redact_path, redact_text
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.sampling.frames import is_users
from dask_strata.recorder.upload import folder_of_session

#: Longest recorded message, in characters.
_LONGEST = 10_000

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def watch_end(settings: Settings) -> None:
    """Note the exception that ends this process, if `dask-strata record` started it.

    Parameters
    ----------
    settings : Settings
        Settings of the process.
    """
    folder = folder_of_session(settings)
    if settings.session is None or folder is None or "errors" in settings.leave_out:
        return
    before: _Hook = sys.excepthook
    if getattr(before, "strata_session", None) == settings.session:
        return
    note = end_note(folder, settings.session)

    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        with suppress(Exception):  # the user is to see the script's own error
            _write(note, kind, error, traceback)
        before(kind, error, traceback)

    excepthook.strata_session = settings.session  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def _write(
    note: Path, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "exception": kind.__name__,
        "exception_message": clip(redact_text(str(error)), _LONGEST),
    }
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_users(file):
            facts["exception_file"] = redact_path(file)
            facts["exception_line"] = traceback.tb_lineno
        traceback = traceback.tb_next
    with note.open("a", encoding="utf-8") as target:
        target.write(json.dumps(facts) + "\n")


def end_note(runs: Path, session: str) -> Path:
    """Return the path of the note.

    Parameters
    ----------
    runs : Path
        Folder of all runs, as the command passes it to its script.
    session : str
        Id of the command.
    """
    return runs / f".end-{session}"


def noted_end(note: Path, pid: int) -> dict[str, str]:
    """Return the facts that a process noted, and remove the note.

    Parameters
    ----------
    note : Path
        Path of the note, which need not exist.
    pid : int
        The process of the script; its own children may have written notes, too.

    Returns
    -------
    dict of str to str
        exception, exception_message, exception_file and exception_line, as far as they are known.
    """
    try:
        lines = note.read_text(encoding="utf-8").splitlines()
        note.unlink()
    except OSError:
        return {}
    for line in reversed(lines):
        with suppress(ValueError, TypeError, AttributeError):
            facts = json.loads(line)
            if facts.pop("pid", None) == pid:
                return {str(name): str(value) for name, value in facts.items()}
    return {}

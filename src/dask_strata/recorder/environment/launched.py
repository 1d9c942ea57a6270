"""The note of a worker to the `dask-strata record` command that started its process.

Under MPI and srun each rank runs the command. Those ranks whose script becomes a worker start no
run: the worker is recorded in the run of the rank with the scheduler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dask_strata.config import read_settings
from dask_strata.recorder.upload import folder_of_session


def note_worker(spec: Mapping[str, Any]) -> None:
    """Note the run of a worker whose process another command started than the scheduler's.

    Do not call it on Dask's event loop: it writes a file.

    Parameters
    ----------
    spec : mapping
        The recording, as the scheduler's recorder announced it.
    """
    own = read_settings()
    folder = folder_of_session(own)
    if own.session is None or own.session == spec["settings"].get("session") or folder is None:
        return
    note = worker_note(folder, own.session)
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.open("a", encoding="utf-8") as file:
        file.write(f"{spec['folder']}\n")


def worker_note(runs: Path, session: str) -> Path:
    """Return the path of the file that `note_worker` writes.

    Parameters
    ----------
    runs : Path
        Folder of all runs, as the command passes it to its script.
    session : str
        Id of the command.
    """
    return runs / f".worker-{session}"


def noted_runs(note: Path) -> list[Path]:
    """Return the runs that a note names, without duplicates, and remove the note.

    A folder of runs is removed, too, if it contains nothing else: on a host with its own file
    system only the note is in it.

    Parameters
    ----------
    note : Path
        Path of the note, which need not exist.
    """
    try:
        folders = note.read_text(encoding="utf-8").splitlines()
        note.unlink()
    except OSError:
        return []
    with contextlib.suppress(OSError):
        note.parent.rmdir()
    return [Path(folder) for folder in dict.fromkeys(folders)]

"""Functions that a client runs in the processes of a cluster: they read facts and change nothing.

Dask sends them by name, so each process runs those of its own version of dask-strata.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dask_strata.config import NAMESPACE, VERSION, read_settings, understood
from dask_strata.errors import StrataError
from dask_strata.recorder.plugins import plugin_name, recorded_runs

PRELOAD = "dask_strata"

#: Form of the facts: increase it when their names or types change.
FORM = 1


def scheduler_facts(run_folders: Mapping[str, str], dask_scheduler: Any = None) -> dict[str, Any]:
    """Return the facts of a scheduler's process.

    Parameters
    ----------
    run_folders : mapping
        Folders of the announced runs by run id.
    dask_scheduler : distributed.Scheduler
        The scheduler; Dask passes it.
    """
    plugins = dask_scheduler.plugins
    recorders = {run: plugins.get(plugin_name(run)) for run in run_folders}
    return {
        "form": FORM,
        "versions": versions(),
        "host": socket.gethostname(),
        "runs": [run for run, found in recorders.items() if getattr(found, "recording", False)],
        "writable": {run: can_write(folder) for run, folder in run_folders.items()},
        "preloads": [preload.name for preload in dask_scheduler.preloads],
        "configured": preloads_of("scheduler"),
        "settings": settings_facts(),
    }


def server_facts(run_folders: Mapping[str, str], dask_worker: Any = None) -> dict[str, Any]:
    """Return the facts of a worker's or nanny's process.

    Parameters
    ----------
    run_folders : mapping
        Folders of the announced runs by run id.
    dask_worker : distributed.Worker or distributed.Nanny
        The server; Dask passes it.
    """
    return {
        "form": FORM,
        "versions": versions(),
        "host": socket.gethostname(),
        "runs": recorded_runs(dask_worker),
        "writable": {run: can_write(folder) for run, folder in run_folders.items()},
    }


def versions() -> dict[str, str]:
    """Return the versions in this process, by the names of `Versions`."""
    import distributed

    return {
        "dask_strata": VERSION,
        "python": platform.python_version(),
        "dask": distributed.__version__,
    }


def can_write(folder: str) -> bool:
    """Return whether this process can write to a run's folder, which has to exist."""
    return os.access(folder, os.W_OK | os.X_OK) and (Path(folder) / "run.json").is_file()


def preloads_of(role: str) -> list[str]:
    """Return the modules that Dask's configuration preloads in a role's processes."""
    import dask

    found = dask.config.get(f"distributed.{role}.preload", default=None) or []
    return [found] if isinstance(found, str) else [str(name) for name in found]


def settings_facts() -> dict[str, Any]:
    """Return whether and into which folder this process would record, and the obstacles."""
    import dask

    given = dask.config.get(NAMESPACE, default=None) or dask.config.get(
        NAMESPACE.replace("_", "-"), default=None
    )
    try:
        known, unknown = understood(given or {})
        settings = read_settings(known)
    except (StrataError, AttributeError, TypeError, ValueError) as error:
        return {"error": str(error).partition("\n")[0], "unknown": [], "enabled": None}
    folder = os.path.abspath(settings.runs)
    return {
        "error": None,
        "unknown": list(unknown),
        "enabled": settings.enabled,
        "folder": folder,
        "creatable": _creatable(folder),
    }


def _creatable(folder: str) -> bool:
    """Return whether this process can create runs in a folder that may not exist yet."""
    path = Path(folder)
    existing = next(p for p in (path, *path.parents) if p.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def names_dask_strata(preloads: Iterable[str]) -> bool:
    """Return whether dask-strata is among preloaded modules."""
    return PRELOAD in preloads

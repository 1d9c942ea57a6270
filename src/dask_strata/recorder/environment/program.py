"""The program that this process runs: a script, a module, a notebook. Runs are named after it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from dask_strata.config import Settings
from dask_strata.recorder.environment.notebook import ipython_shell, notebook_path

#: Name of a run whose scheduler was started on its own, until a client is recorded.
UNNAMED = "cluster"

#: Commands and packages that start schedulers and workers for the programs of others.
_SERVERS = re.compile(r"(?:dask|jupyter|jupyterhub)(?:-[^.]+)?")
_SERVER_PACKAGES = {
    *("dask", "distributed", "dask_cuda", "dask_gateway", "dask_mpi"),
    *("ipykernel", "ipykernel_launcher", "jupyter_server", "jupyterlab"),
}

#: Longest name of a program, in characters.
_NAME_LIMIT = 200


class Program(NamedTuple):
    """The program of a process.

    Attributes
    ----------
    kind : str
        script, module, notebook or interactive.
    name : str or None
        Name of the script or notebook without ending, last name of the module, or the kind of
        interpreter; None for a command that only serves the programs of others.
    path : str or None
        Path of the script or notebook; None if it is unknown, or if there is none.
    module : str or None
        Name of the module, as for ``python -m``.
    """

    kind: str
    name: str | None
    path: str | None = None
    module: str | None = None


def run_name(settings: Settings) -> str:
    """Return the name of a run: as set, or by default that of the program of this process."""
    return settings.name or program().name or UNNAMED


def program() -> Program:
    """Return the program of this process."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or path.startswith("<"):
        return _interactive()
    module = getattr(getattr(main, "__spec__", None), "name", None)
    argument = sys.argv[0] if sys.argv else ""
    if _runs_for(path, argument):  # cProfile or another program that executes a script
        return Program("script", _stem(argument), argument)
    if module is None:
        return Program("script", _of_script(path), path)
    if module == "__main__":  # a folder or a zip file with a `__main__.py`
        return Program("script", _stem(argument or path), path)
    package, last = module.partition(".")[0], module.removesuffix(".__main__").rpartition(".")[2]
    name = None if package in _SERVER_PACKAGES else _plain(last)
    return Program("module", name, path, module)


def _interactive() -> Program:
    shell = ipython_shell()
    if shell is None:
        return Program("interactive", "interactive")
    if getattr(shell, "kernel", None) is None:
        return Program("interactive", "ipython")
    path = notebook_path(shell)
    return Program("notebook", (path and _stem(path)) or "notebook", path)


def _runs_for(path: str, argument: str) -> bool:
    """Return whether ``sys.argv`` starts with a script other than the main module."""
    return (
        argument.endswith(".py")
        and Path(argument).name != Path(path).name
        and Path(argument).is_file()
    )


def _of_script(path: str) -> str | None:
    """Return the name of a script; None for a command of Dask or Jupyter, which have no ending."""
    return None if _SERVERS.fullmatch(Path(path).name) else _stem(path)


def _stem(path: str) -> str | None:
    return _plain(Path(os.path.abspath(path)).stem)


def _plain(name: str) -> str | None:
    """Return a name as valid Unicode; bytes of a file's name that are none become escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")[:_NAME_LIMIT] or None

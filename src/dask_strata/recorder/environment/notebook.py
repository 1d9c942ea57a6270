"""The notebook that a kernel runs: its path, and the cells that IPython has executed.

IPython is looked up among the loaded modules and never imported: without it there is no notebook.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

#: Variables of the user's namespace with the notebook's path: VS Code's and papermill's.
_VARIABLES = ("__vsc_ipynb_file__", "PAPERMILL_INPUT_PATH")

#: Environment variable of Jupyter's server. For consoles it contains no file's name. Some front
#: ends append an id: ``work.ipynb-jvsc-3f2a.ipynb``.
_SESSION = "JPY_SESSION_NAME"
_SESSION_PATH = re.compile(r"(?s)(.+?\.ipynb)(?:-.*)?|(.+\.(?:py|md|qmd|Rmd))")

#: Commands that execute the notebook among their arguments. Their kernels are child processes.
_EXECUTORS = {"jupyter-execute", "jupyter-nbconvert", "nbclient", "nbconvert", "papermill"}

_CELL_NUMBER = re.compile(r"In\[(\d+)\]")


class Cell(NamedTuple):
    """A cell that IPython has executed: its execution count, and its text as the user wrote it."""

    number: int | None
    text: str


def ipython_shell() -> Any:
    """Return IPython's shell in this process, or None."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if callable(get_ipython) else None


def notebook_path(shell: Any) -> str | None:
    """Return the path of the notebook that a kernel runs, or None if it is unknown.

    Parameters
    ----------
    shell : InteractiveShell
        The kernel's shell.
    """
    for name in _VARIABLES:
        path = shell.user_ns.get(name)
        if isinstance(path, str) and path:
            return _located(path, Path.cwd())
    session = _SESSION_PATH.fullmatch(os.environ.get(_SESSION, ""))
    if session is not None:
        return _located(session[1] or session[2], Path.cwd())
    return _executed_by_parent()


def _located(path: str, folder: Path) -> str:
    """Return an absolute path of a file where it exists, or the same path.

    Jupyter's path may be relative to the folder of its server, and the kernel starts in the
    notebook's own folder.
    """
    places = (folder / path, folder / Path(path).name)
    return next((str(place) for place in places if place.is_file()), path)


def _executed_by_parent() -> str | None:
    """Return the notebook that the parent process executes, according to its command line."""
    import psutil

    try:
        parent = psutil.Process(os.getppid())
        command, folder = parent.cmdline(), Path(parent.cwd())
    except psutil.Error:
        return None
    program = {Path(part).name for part in command[:3]} & _EXECUTORS
    notebooks = [part for part in command if part.endswith(".ipynb") and part[:1] != "-"]
    # papermill's second notebook is its output. Of several notebooks of the others, one is meant.
    if not program or not notebooks or ("papermill" not in program and len(notebooks) > 1):
        return None
    return _located(notebooks[0], folder)


def is_cell(shell: Any, file: str) -> bool:
    """Return whether a file name is that of the code of a cell.

    Parameters
    ----------
    shell : InteractiveShell
        IPython's shell.
    file : str
        The file name of a code object.
    """
    try:
        return shell.compile.format_code_name(file) is not None
    except Exception:  # noqa: BLE001  shells other than IPython's may not have it
        return False


def cell_of(file: str) -> Cell | None:
    """Return the cell whose code has this file name; None if it is the code of no cell.

    Parameters
    ----------
    file : str
        The file name of a code object.
    """
    shell = ipython_shell()
    if shell is None:
        return None
    try:
        name = shell.compile.format_code_name(file)
        if name is None:
            return None
        code = "".join(linecache.getlines(file))
        found = _CELL_NUMBER.search(name[1])
        number = None if found is None else int(found[1])
        return Cell(number, _written(shell.history_manager, number, code))
    except Exception:  # noqa: BLE001  shells other than IPython's may have none of these
        return None


def _written(history: Any, number: int | None, code: str) -> str:
    """Return a cell with its magics as the user wrote it, if that is the cell in the history."""
    parsed = history.input_hist_parsed
    known = number is not None and number < len(parsed)
    if known and parsed[number].rstrip("\n") == code.rstrip("\n"):
        return str(history.input_hist_raw[number])
    return code

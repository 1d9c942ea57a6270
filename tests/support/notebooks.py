"""Notebooks that a test runs in a real kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from nbclient import NotebookClient

_COLOR = re.compile(r"\x1b\[[0-9;]*m")

#: A first cell, after which the kernel's process cannot import ipywidgets.
WITHOUT_WIDGETS = "import sys\nsys.modules['ipywidgets'] = None"


def notebook_of(*cells: str) -> Any:
    """Return a notebook with these code cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def outputs_of(folder: Path, *cells: str, **environment: str) -> list[list[Any]]:
    """Run cells in a kernel that starts in a folder; return the outputs of each cell."""
    notebook = notebook_of(*cells)
    resources = {"metadata": {"path": str(folder)}}
    with mock.patch.dict(os.environ, environment):
        NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources=resources, allow_errors=True
        ).execute()
    return [cell.outputs for cell in notebook.cells]


def printed(outputs: list[Any]) -> str:
    """Return the printed texts of a cell, with its errors."""
    return "".join(
        _COLOR.sub("", "\n".join(o.traceback)) if o.output_type == "error" else o.get("text", "")
        for o in outputs
    )


def shown(outputs: list[Any], form: str = "text/plain") -> list[str]:
    """Return what a cell displays, in one of the forms of its displays."""
    return [o.data[form] for o in outputs if "data" in o and form in o.data]

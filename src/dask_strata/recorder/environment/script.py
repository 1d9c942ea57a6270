"""The client's script, module or notebook: text, git commit, command line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dask_strata.recorder.environment.program import program
from dask_strata.recorder.pipeline.redact import redact_arguments, redact_path, redact_text
from dask_strata.recorder.pipeline.text import json_text

_GIT_SECONDS = 5
_TEXT_LIMIT = 2_000_000


def script_facts(*, code: bool) -> Iterator[tuple[str, str]]:
    """Yield facts about the script, module or notebook that this process runs.

    Parameters
    ----------
    code : bool
        Whether its text is included.

    Yields
    ------
    tuple of str and str
        Name and value of a fact.
    """
    yield "argv", json_text(redact_arguments(sys.argv))
    yield "command", json_text(redact_arguments(getattr(sys, "orig_argv", sys.argv)))
    yield "cwd", redact_path(str(Path.cwd()))
    yield "executable", redact_path(sys.executable)
    running = program()
    yield "kind", running.kind
    if running.name is not None:
        yield "name", redact_text(running.name)
    if running.module is not None:
        yield "module", running.module
    if running.path is None:
        return
    # A notebook's path may be relative to a folder that is not known here.
    exists = Path(running.path).exists()
    path = os.path.abspath(running.path) if exists else running.path
    yield "path", redact_path(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        yield "error", redact_text(f"the {running.kind} cannot be read: {error}")
    else:
        yield "sha256", hashlib.sha256(raw).hexdigest()
        if code:
            yield "text", redact_text(_text(raw, path)[:_TEXT_LIMIT])
    yield from _git(Path(path).resolve().parent)


def _text(raw: bytes, path: str) -> str:
    """Return the text of a script, or that of a notebook's code cells: not of its outputs."""
    text = raw.decode("utf-8", "replace")
    if not path.endswith(".ipynb"):
        return text
    try:
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, TypeError, LookupError, RecursionError):  # a damaged notebook
        return ""
    return "\n\n".join(f"# %%\n{source}" for source in code)


def _git(folder: Path) -> Iterator[tuple[str, str]]:
    commit = _run_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return
    yield "git_commit", commit
    status = _run_git(folder, "status", "--porcelain", "--untracked-files=no")
    if status is not None:
        yield "git_dirty", "true" if status else "false"
    for name, arguments in (
        ("git_branch", ("rev-parse", "--abbrev-ref", "HEAD")),
        ("git_remote", ("config", "--get", "remote.origin.url")),
        ("git_describe", ("describe", "--always", "--tags", "--dirty")),
    ):
        value = _run_git(folder, *arguments)
        if value:
            yield name, redact_text(value)


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  a fixed command, no shell
            ["git", "-C", str(folder), *arguments],  # noqa: S607  the user's own git
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "replace").strip()

"""The client's script: its text, its git commit, its command line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dask_strata.recorder.pipeline.redact import redact_arguments, redact_path, redact_text
from dask_strata.recorder.pipeline.text import json_text

_GIT_SECONDS = 5
_TEXT_LIMIT = 2_000_000


def script_facts(*, code: bool) -> Iterator[tuple[str, str]]:
    """Yield facts about the script that this process runs.

    Parameters
    ----------
    code : bool
        Whether the text of the script is included.

    Yields
    ------
    tuple of str and str
        Name and value of a fact.
    """
    yield "argv", json_text(redact_arguments(sys.argv))
    yield "command", json_text(redact_arguments(getattr(sys, "orig_argv", sys.argv)))
    yield "cwd", redact_path(str(Path.cwd()))
    yield "executable", redact_path(sys.executable)
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        yield "module", spec.name
    path = getattr(main, "__file__", None)
    if not path:
        yield "kind", "interactive"
        return
    yield "kind", "module" if spec is not None else "script"
    yield "path", redact_path(os.path.abspath(path))
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        yield "error", redact_text(f"the script cannot be read: {error}")
    else:
        yield "sha256", hashlib.sha256(raw).hexdigest()
        if code:
            yield "text", redact_text(raw[:_TEXT_LIMIT].decode("utf-8", "replace"))
    yield from _git(Path(path).resolve().parent)


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

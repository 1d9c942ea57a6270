"""RUN on the command line: a path, a URL, or a short name of a run in the folder of runs.

Short names are ``latest``, a number of `dask-strata list` (1 is the newest), the begin of an id,
and a part of the name that only one run has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from dask_strata.errors import NotARunError, UsageError, suggestion
from dask_strata.store.copies.place import is_url, local_path
from dask_strata.store.manifest import BUNDLE_SUFFIX, find_runs

#: The newest run of a folder.
LATEST = "latest"

#: Most runs that a message lists.
_SOME = 10

_F = TypeVar("_F", bound=Callable[..., Any])


class RunName(click.ParamType[str] if TYPE_CHECKING else click.ParamType):  # type: ignore[misc]
    """A run; a short name is converted to the path of its run."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or URL of a run; see `click.ParamType.convert`."""
        del param
        is_completed = ctx is not None and ctx.resilient_parsing
        return str(value) if is_completed else find_run(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names of runs, or a marker for files; see `ParamType.shell_complete`."""
        del ctx, param
        names = [LATEST, *(path.name for path in newest_first(default_runs()))]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def run_argument(command: _F) -> _F:
    """Add the argument RUN to a command."""
    return click.argument("run", type=RunName())(command)


def runs_argument(command: _F) -> _F:
    """Add the argument RUNS to a command: a folder or URL of runs."""
    return click.argument("runs", default=runs_place)(command)


def default_runs() -> Path:
    """Return the folder of runs of the settings, in which short names are looked up."""
    place = runs_place()
    return Path("runs") if is_url(place) else local_path(place)


def runs_place() -> str:
    """Return the folder or URL of runs of the settings."""
    from dask_strata.config import read_settings  # Dask's configuration takes a while to import

    return read_settings().runs


def newest_first(runs: Path) -> list[Path]:
    """Return the runs of a folder, the newest first."""
    return list(find_runs(runs))[::-1]


def find_run(name: str) -> str:
    """Return the path of a run of a short name; any other name unchanged.

    Parameters
    ----------
    name : str
        A path, a URL, or a short name, which may have a folder of runs before it.

    Raises
    ------
    UsageError
        Several runs have the name.
    NotARunError
        No run has the name, although the folder has runs.

    Examples
    --------
    >>> find_run("s3://bucket/runs/2026-pipeline")
    's3://bucket/runs/2026-pipeline'
    """
    if is_url(name) or os.path.lexists(local_path(name)):
        return name
    folder, _, short = name.rpartition(os.sep)
    runs = Path(folder) if folder else default_runs()
    paths = newest_first(runs)
    if not paths or not short:
        return name
    found = _named(short, paths)
    if len(found) == 1:
        return str(found[0])
    if found:
        some = ", ".join(path.name for path in found[:_SOME])
        raise UsageError(
            f"{len(found)} runs in {runs} have {short} in their names.",
            hint=f"Which one? {some}{', …' if len(found) > _SOME else ''}",
        )
    similar = suggestion(short, [LATEST, *(path.name for path in paths)])
    raise NotARunError(
        f"No run {short} in {runs}.", hint=f"{similar}List runs with: dask-strata list"
    )


def _named(short: str, paths: Sequence[Path]) -> list[Path]:
    """Return the runs that a short name may mean."""
    if short == LATEST:
        return [paths[0]]
    is_number = short.isascii() and short.isdigit()
    if is_number and 1 <= int(short) <= len(paths):
        return [paths[int(short) - 1]]
    names = {path: path.name.removesuffix(BUNDLE_SUFFIX) for path in paths}
    by_id = [path for path, name in names.items() if name.rpartition("-")[2].startswith(short)]
    return by_id or [path for path, name in names.items() if short in name and not is_number]

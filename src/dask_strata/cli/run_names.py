"""RUN on the command line: a path, a URL, or a short name of a run in the folder of runs.

Short names are ``latest``, a number of `dask-strata list` (1 is the newest), the start of an id,
and a part of the name that only one run has. They are looked up in the folder or URL of runs of the
settings, or in the folder before them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from dask_strata.errors import NotARunError, UsageError, suggestion
from dask_strata.store.copies.place import is_url, local_path, shown, split_run
from dask_strata.store.manifest import BUNDLE_SUFFIX, find_runs

#: The newest run of a folder.
LATEST = "latest"

#: Most runs that a message lists.
_SOME = 10

#: Digits from which a number that the list has not is also the start of an id or a part of a name.
_LONG_NUMBER = 4

#: Folder of a run: its start, its name and its id.
_RUN_NAME = re.compile(r"[0-9T-]{19}-(?P<name>.+)-[0-9a-f]+")

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
        place = runs_place()
        names = [] if is_url(place) else newest_first(place)
        found = [name for name in (LATEST, *names) if name.startswith(incomplete)]
        found = found or [part for part in _parts(names) if part.startswith(incomplete)]
        return [*map(CompletionItem, found)] or [CompletionItem(incomplete, type="file")]


def run_argument(command: _F) -> _F:
    """Add the argument RUN to a command."""
    return click.argument("run", type=RunName())(command)


def runs_argument(command: _F) -> _F:
    """Add the argument RUNS to a command: a folder or URL of runs."""
    return click.argument("runs", default=runs_place)(command)


def runs_place() -> str:
    """Return the folder or URL of runs of the settings."""
    from dask_strata.config import read_settings  # Dask's configuration takes a while to import

    return read_settings().runs


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
        No run has the name, or the folder has no runs.

    Examples
    --------
    >>> find_run("s3://bucket/runs/2026-pipeline")
    's3://bucket/runs/2026-pipeline'
    """
    if is_url(name) or os.path.lexists(local_path(name)):
        return name
    folder, _, short = name.rpartition(os.sep)
    place = folder or runs_place()
    names = newest_first(place) if short else []
    if not names and (folder or not (short == LATEST or short.isdecimal())):
        return name
    if not names:
        raise NotARunError(
            f"No run {short}: there is no run in {shown(place)}.",
            hint="Record a run: dask-strata demo",
        )
    found = _named(short, names)
    if len(found) == 1:
        return _path_of(found[0], place)
    if found:
        some = ", ".join(found[:_SOME])
        raise UsageError(
            f"{len(found)} runs in {shown(place)} have {short} in their names.",
            hint=f"Which one? {some}{', …' if len(found) > _SOME else ''}",
        )
    similar = suggestion(short, [LATEST, *_parts(names)])
    runs = f" {shlex.quote(shown(place))}" if folder else ""
    raise NotARunError(
        f"No run {short} in {shown(place)}.",
        hint=f"{similar}List runs with: dask-strata list{runs}",
    )


def newest_first(place: str) -> list[str]:
    """Return the names of the runs in a folder or at a URL in the order of `dask-strata list`."""
    if not is_url(place):
        return [path.name for path in find_runs(local_path(place))][::-1]
    from dask_strata.analysis.list import list_rows

    return [row["run"] for row in list_rows(place)][::-1]


def _path_of(name: str, place: str) -> str:
    """Return the path or URL of a run in a place, which may be the run itself."""
    if is_url(place):
        return place if split_run(place)[1] == name else f"{place.rstrip('/')}/{name}"
    folder = local_path(place)
    return str(next(path for path in find_runs(folder) if path.name == name))


def _named(short: str, names: Sequence[str]) -> list[str]:
    """Return the names of the runs that a short name may mean, of the newest run first."""
    if short == LATEST:
        return [names[0]]
    if short.isascii() and short.isdigit():
        if 1 <= int(short) <= len(names):
            return [names[int(short) - 1]]
        if len(short) < _LONG_NUMBER:
            return []
    stems = {name: name.removesuffix(BUNDLE_SUFFIX) for name in names}
    by_id = [name for name, stem in stems.items() if stem.rpartition("-")[2].startswith(short)]
    return by_id or [name for name, stem in stems.items() if short in stem]


def _parts(names: Iterable[str]) -> list[str]:
    """Return the names of runs, and the parts that people type: without time and id.

    >>> _parts(["2026-11-26T10-00-00-load-1111aaaa"])
    ['2026-11-26T10-00-00-load-1111aaaa', 'load']
    """
    parts: list[str] = []
    for name in names:
        found = _RUN_NAME.fullmatch(name.removesuffix(BUNDLE_SUFFIX))
        parts += [name, *([found["name"]] if found else [])]
    return list(dict.fromkeys(parts))

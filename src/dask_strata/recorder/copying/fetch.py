"""Fetching runs from a scheduler, without a client: it appears in no record."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_strata.config import read_settings
from dask_strata.errors import RecordingError, StrataError, UsageError
from dask_strata.recorder.copying.address import scheduler_address
from dask_strata.recorder.copying.receiver import (
    Bringing,
    Connection,
    bring,
    copy_name,
    create_copy,
    is_run_id,
)
from dask_strata.recorder.plugins import METADATA
from dask_strata.store.copies.origin import Origin
from dask_strata.store.manifest import Manifest


@dataclass(frozen=True)
class Fetched:
    """The copy of one run.

    Attributes
    ----------
    folder : Path
        Folder of the copy.
    run : str
        Id of the run.
    complete : bool
        Whether the run has ended and the copy has all of it.
    n_bytes : int
        Bytes that were received now.
    was_there : bool
        Whether the folder was the run itself or a whole copy, so that nothing was requested.
    """

    folder: Path
    run: str
    complete: bool
    n_bytes: int
    was_there: bool = False


def fetch(
    target: str,
    runs: Path,
    *,
    only: str | None = None,
    received: Callable[[str, int], None] = lambda _, __: None,
) -> list[Fetched]:
    """Copy runs from a scheduler to this machine, or continue copies of them.

    Parameters
    ----------
    target : str
        Address of a scheduler, or id of a run of which ``runs`` has an incomplete copy.
    runs : Path
        Folder of runs.
    only : str, optional
        Id of the run to copy, if the scheduler has several.
    received : callable, optional
        Called with the id of a run and the number of its bytes received so far.

    Returns
    -------
    list of Fetched

    Raises
    ------
    UsageError
        The target is neither an address nor an id.
    RecordingError
        No scheduler answers, or it has no such run, or the copy cannot be written.
    """
    if ":" in target:
        return asyncio.run(_fetch(scheduler_address(target), runs, only, received))
    if not is_run_id(target):
        raise UsageError(
            f"{target} is neither a scheduler's address nor the id of a run.",
            hint="Example: dask-strata fetch tcp://scheduler:8786 -o runs",
        )
    origin = _incomplete(runs, target)
    if isinstance(origin, Path):
        return [Fetched(origin, target, complete=True, n_bytes=0, was_there=True)]
    return asyncio.run(_fetch(origin.address, runs, target, received, origin))


def _incomplete(runs: Path, run_id: str) -> Origin | Path:
    """Return the origin of an incomplete copy, or the folder of the run if it is complete."""
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        origin = Origin.read(folder)
        if origin is not None and origin.run == run_id:
            return origin
        with contextlib.suppress(StrataError):
            if origin is None and Manifest.read(folder).run_id == run_id:
                return folder
    raise RecordingError(
        f"There is no copy of run {run_id} in {runs}.",
        hint="Give the address of the scheduler that recorded it.",
    )


async def _fetch(
    address: str,
    runs: Path,
    only: str | None,
    received: Callable[[str, int], None],
    origin: Origin | None = None,
) -> list[Fetched]:
    from distributed.security import Security

    connection = Connection(address, Security().get_connection_args("client"))
    async with contextlib.aclosing(connection):
        try:
            found = await connection.runs()
            announced = found or await connection.announced(METADATA)
        except (OSError, asyncio.TimeoutError, ValueError, TypeError, RuntimeError) as error:
            hint = None
            if origin is not None:
                hint = f"The rest of the run was in {origin.host}:{origin.folder}."
            raise RecordingError(
                f"No scheduler answers at {address}: {_reason(error)}.", hint=hint
            ) from error
        if only is not None:
            found = {run: facts for run, facts in found.items() if run == only}
        if not found:
            raise RecordingError(_nothing(address, only, bool(announced)))
        copies = list[Fetched]()
        problems = dict[str, RecordingError]()
        for run, facts in found.items():
            copy = _already_there(runs, run, facts)
            try:
                if copy is None:
                    origin = Origin(run, address, *_place(facts))
                    copy = await _fetch_run(connection, runs, origin, received)
                copies.append(copy)
            except RecordingError as error:
                problems[run] = error
        if problems:
            raise _failed(problems, copies)
        return copies


def _failed(problems: dict[str, RecordingError], copies: list[Fetched]) -> RecordingError:
    """Return the first problem, with the names of the scheduler's other runs in its hint."""
    first, *others = problems
    hints = [problems[first].hint or ""]
    if others:
        hints.append(f"Also not copied in full: {', '.join(others)}.")
    if copies:
        hints.append(f"The scheduler's other runs are here: {', '.join(c.run for c in copies)}.")
    return RecordingError(problems[first].message, hint=" ".join(filter(None, hints)))


def _reason(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text.rstrip(".")


def _nothing(address: str, only: str | None, recorded: bool) -> str:  # noqa: FBT001
    if only is not None:
        return f"The scheduler at {address} has no run {only}."
    if recorded:
        return f"The scheduler at {address} has an earlier dask-strata, which cannot send runs."
    return f"The scheduler at {address} has no run to fetch: it is not recorded."


def _place(facts: dict[str, Any]) -> tuple[str, str]:
    return str(facts.get("host")), str(facts.get("folder"))


def _already_there(runs: Path, run: str, facts: dict[str, Any]) -> Fetched | None:
    """Return a run that is recorded into this folder of runs, which needs no copy."""
    original = Path(str(facts.get("folder")))
    folder = runs / copy_name(original.name)
    with contextlib.suppress(StrataError, OSError):
        # Another machine may have a copy at the same path.
        here = Origin.read(folder) is None and folder.samefile(original)
        if here and Manifest.read(folder).run_id == run:
            return Fetched(folder, run, bool(facts.get("ended")), 0, was_there=True)
    return None


async def _fetch_run(
    connection: Connection, runs: Path, origin: Origin, received: Callable[[str, int], None]
) -> Fetched:
    folder = runs / copy_name(Path(origin.folder).name)
    create_copy(folder, origin, read_settings().access)
    total = 0

    def count(n_bytes: int) -> None:
        nonlocal total
        total += n_bytes
        received(origin.run, total)

    try:
        ended = await bring(connection, Bringing(origin.run, folder, received=count))
    except (OSError, asyncio.TimeoutError) as error:
        raise RecordingError(
            f"The copy of run {origin.run} in {folder} is incomplete: {_reason(error)}.",
            hint="The same command continues it.",
        ) from error
    return Fetched(folder, origin.run, ended, total)

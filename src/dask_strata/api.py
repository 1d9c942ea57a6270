"""Recording from Python: the recorder and the reader in one object."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dask_strata.config import Settings, read_settings
from dask_strata.errors import UsageError
from dask_strata.recorder.darshan import log_folder, logs_in, usable_library
from dask_strata.recorder.session import Session
from dask_strata.run import Run, open_run

if TYPE_CHECKING:
    from rich.console import Console

#: Workers end a moment after the script that started them; this is how long we wait for them.
_GRACE_SECONDS = 10.0


class record:  # noqa: N801  reads as a verb: `with record(...)`
    """Record a running cluster for as long as a block lasts.

    Parameters
    ----------
    runs : str or Path, optional
        Folder that the run's folder is made in; as configured by default.
    client : distributed.Client, optional
        A client of the cluster; the current one by default.
    name : str, optional
        Name of the run; the script's by default.
    **settings
        Any setting of dask-strata, with ``_`` for ``-``, for example ``code=False``.

    Raises
    ------
    SettingError
        A setting is unknown, or its value cannot be used.
    RecordingError
        The cluster cannot be recorded.
    UsageError
        There is no client, or it is asynchronous and the block is not ``async with``.

    Examples
    --------
    >>> with record("runs/", client=client) as run:      # doctest: +SKIP
    ...     client.submit(sum, [1, 2]).result()
    >>> run.tasks.to_pandas()                            # doctest: +SKIP

    With an asynchronous client: ``async with record("runs/", client=client) as run:``.
    """

    def __init__(
        self,
        runs: str | Path | None = None,
        *,
        client: Any = None,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        chosen = read_settings(**settings, runs=None if runs is None else str(runs))
        self._session = Session(_client(client), chosen, name)
        self._run: Run | None = None

    def __enter__(self) -> Run:
        client = self._session.client
        if client.asynchronous:
            raise UsageError(
                "This client is asynchronous: a plain `with` would have to block its event loop.",
                hint="Write: async with dask_strata.record(...) as run:",
            )
        client.sync(self._session.begin)
        self._run = open_run(self._session.folder)
        return self._run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._session.client.status == "closed":  # its event loop may have ended with it
            self._session.leave()
        else:
            self._session.client.sync(self._session.end)
        self._settle()

    async def __aenter__(self) -> Run:
        await self._session.begin()
        self._run = open_run(self._session.folder)
        return self._run

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._session.end()
        self._settle()

    def _settle(self) -> None:
        if self._run is not None:
            self._run.refresh()


def _client(client: Any) -> Any:
    from distributed import get_client

    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise UsageError(
            "There is no Dask client to record.",
            hint="Give one: dask_strata.record(client=client).",
        ) from None


def record_command(
    module: str | None,
    command_line: list[str],
    *,
    quiet: bool = False,
    report: bool = False,
    **settings: Any,
) -> int:
    """Do what ``dask-strata record`` does; return the script's exit status.

    Raises
    ------
    UsageError
        There is nothing to run, a setting is wrong, or what it needs is not there.
    """
    from dask_strata.recorder.launch import launch, note_exit_status
    from dask_strata.recorder.profiling import needs
    from dask_strata.report.tables import console

    chosen = read_settings(**settings)
    needs(chosen)
    if chosen.darshan_library is not None:
        chosen = replace(chosen, darshan_library=str(usable_library(chosen.darshan_library)))
    outcome = launch(module, command_line, chosen)
    err = console(stderr=True)
    for folder in outcome.joined:
        err.print(
            f"dask-strata: the script's client is on record in {folder}, a run that its "
            "scheduler had begun.",
            soft_wrap=True,
        )
    if not outcome.runs and not outcome.joined:
        err.print(
            "dask-strata: nothing was recorded: the script started no Dask cluster and connected "
            "to none that could be recorded here.",
            soft_wrap=True,
        )
    for folder in outcome.runs:
        note_exit_status(folder, outcome.status, chosen)
        _conclude(folder, chosen, err, quiet=quiet)
        if chosen.darshan_library is not None:
            after_record(folder, log_folder(chosen, folder), err)
        if report:
            _report(folder, err)
    return outcome.status


def _report(folder: Path, err: Console) -> None:
    """Write the page of a run beside its folder, and say where it is."""
    from dask_strata.report.page import write_page

    target = folder.with_name(f"{folder.name}.html")
    try:
        write_page(open_run(folder), target)
    except Exception as error:  # noqa: BLE001  the script's own outcome counts
        err.print(f"dask-strata: no page could be made: {error}", soft_wrap=True)
        return
    err.print(f"page     {_shortest(target)}: open it in a browser", soft_wrap=True)


def after_record(run_folder: Path, log_dir: Path, err: Console) -> None:
    """Add the logs that Darshan has left to the run, and say what came of it.

    Parameters
    ----------
    run_folder : Path
        Folder of the run.
    log_dir : Path
        Folder that Darshan was to write its logs to.
    err : Console
        Where to say it.
    """
    from dask_strata.importers.additions import add_files
    from dask_strata.report.words import visible

    try:
        found = logs_in(log_dir)
        if not found:
            shown = _shortest(log_dir)
            err.print(f"dask-strata: Darshan has left no log in {shown}", soft_wrap=True)
            return
        added = add_files(run_folder, found)
    except Exception as error:  # noqa: BLE001  the exit status is the script's, whatever we meet
        why = visible(str(error) or type(error).__name__)
        err.print(
            f"dask-strata: Darshan's logs are not in the run: {why}", soft_wrap=True, markup=False
        )
        return
    said = ", ".join([f"{added.rows:,} rows of {added.files:,} of Darshan's logs", *added.said])
    err.print(f"dask-strata: {said}; they are in {_shortest(log_dir)}", soft_wrap=True)
    for trouble in added.troubles:
        err.print(f"dask-strata: {visible(trouble)}", soft_wrap=True)


def _conclude(folder: Path, settings: Settings, err: Console, *, quiet: bool) -> None:
    """Wait for the last records, compact them, and say what was recorded."""
    from dask_strata.analysis.summary import summarize
    from dask_strata.report.terminal import print_summary
    from dask_strata.store.compact import compact
    from dask_strata.store.segments import segment_state

    shown = _shortest(folder)
    try:
        deadline = time.monotonic() + _GRACE_SECONDS
        while any(segment_state(s) == "recording" for s in open_run(folder).segments):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if settings.compact:
            compact(folder)
        if quiet:
            err.print(f"dask-strata: {shown}", soft_wrap=True)
        else:
            err.print()
            print_summary(summarize(open_run(shown)), err)
    except Exception as error:  # noqa: BLE001  the exit status is the script's, whatever we meet
        err.print(f"dask-strata: recorded {shown}, but: {error}", soft_wrap=True, markup=False)


def _shortest(folder: Path) -> Path:
    try:
        return folder.relative_to(Path.cwd())
    except ValueError:
        return folder

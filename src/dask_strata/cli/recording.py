"""The common part of `record` and `demo`: run a script, finish its runs, print summaries."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_strata.brokers.registry import check_address
from dask_strata.cli.sending import print_sending
from dask_strata.cli.uploading import finish_upload, wait_for_last_rows
from dask_strata.config import Settings, read_settings
from dask_strata.errors import InterruptedQueryError
from dask_strata.recorder.profiling.darshan_library import log_folder, logs_in, usable_library
from dask_strata.run import Run, open_run
from dask_strata.store.copies.place import RemotePlace, absolute, is_url, shown, split_run
from dask_strata.store.copies.upload import note_destination, require_writable
from dask_strata.store.safe_files import share_as

if TYPE_CHECKING:
    from rich.console import Console

    from dask_strata.recorder.launch import Joined

#: Longest wait for workers, which end a moment after the script that started them.
_GRACE_SECONDS = 10.0


def record_command(
    module: str | None,
    command_line: list[str],
    *,
    quiet: bool = False,
    report: bool = False,
    **settings: Any,
) -> int:
    """Run a script, record the Dask clusters that it uses, and finish the runs.

    Parameters
    ----------
    module : str or None
        Name of a module to run, or None for a script.
    command_line : list of str
        The script, unless there is a module, and its arguments.
    quiet : bool, optional
        Print only the folders of the runs.
    report : bool, optional
        Write the page of each run.
    **settings
        Settings that differ from the configuration.

    Returns
    -------
    int
        The script's exit status.

    Raises
    ------
    UsageError
        There is no script, a setting is invalid, or a program that it needs is missing.
    """
    from dask_strata.recorder.launch import launch, note_exit_status
    from dask_strata.report.terminal.table import console

    chosen = _usable(read_settings(**settings))
    outcome = launch(module, command_line, chosen)
    err = console(stderr=True)
    for joined in outcome.joined:
        _print_joined(joined, err)
        if joined.copy is not None and is_url(chosen.runs):
            _upload_copy(joined.copy, f"{absolute(chosen.runs)}/{joined.copy.name}", err)
    # A rank of MPI or srun that is a worker prints one line, as there may be thousands of them.
    for folder in outcome.worked:
        err.print(f"dask-strata: the script's worker is recorded in {folder}.", soft_wrap=True)
    if not (outcome.runs or outcome.joined or outcome.worked):
        err.print(
            "dask-strata: nothing was recorded: the script neither started a Dask cluster nor "
            "connected to one that can be recorded, or a recording could not start, as printed "
            "above.",
            soft_wrap=True,
        )
        if not quiet:
            err.print(
                "Dask without a client runs in the script's own threads or processes. Start a "
                'cluster in the script, below if __name__ == "__main__": so that its workers do '
                "not run the script again: from distributed import Client; client = Client()",
                soft_wrap=True,
            )
    for folder in outcome.runs:
        url = f"{absolute(chosen.runs)}/{folder.name}" if is_url(chosen.runs) else None
        with _kept_if_interrupted(None if url is None else folder, err):
            note_exit_status(folder, outcome.status, chosen, outcome.exception)
            _finish(folder, chosen, err, url, quiet=quiet, report=report)
    if outcome.spool is not None:
        with suppress(OSError):  # not empty: an upload was interrupted
            outcome.spool.rmdir()
    return outcome.status


def _usable(chosen: Settings) -> Settings:
    """Return the settings after checking what they need.

    Raises
    ------
    StrataError
        A program, a package or a place is missing.
    """
    from dask_strata.recorder.profiling.source import require_yappi

    require_yappi(chosen)
    if chosen.darshan_library is not None:
        chosen = replace(chosen, darshan_library=str(usable_library(chosen.darshan_library)))
    if chosen.stream is not None:
        check_address(chosen.stream)
    if is_url(chosen.runs):
        require_writable(RemotePlace(chosen.runs))
    return chosen


def _finish(  # noqa: PLR0913
    folder: Path, settings: Settings, err: Console, url: str | None, *, quiet: bool, report: bool
) -> None:
    """Finish a run whose script has ended: compact it, print its summary, copy and upload it."""
    _conclude(folder, settings, err, url, quiet=quiet)
    if settings.darshan_library is not None:
        after_record(folder, log_folder(settings, folder), err)
    if report:
        _report(folder, err, url)
    if settings.stream is not None:
        print_sending(folder, settings.stream, err)
    if url is not None:
        _upload(folder, url, err)


def _print_joined(joined: Joined, err: Console) -> None:
    from dask_strata.report.words import visible

    text = (
        f"the script's client is recorded in {joined.place}, a run that its scheduler had started"
    )
    if joined.copy is not None:
        text += f"; a copy, as far as it is recorded, is in {_shortest(joined.copy)}"
    err.print(f"dask-strata: {visible(text)}.", soft_wrap=True, markup=False)


def _report(folder: Path, err: Console, url: str | None) -> None:
    """Write the page of a run beside its folder or URL, and print its place."""
    from dask_strata.report.page.page import write_page

    target = folder.with_name(f"{folder.name}.html")
    with _failure_printed("the page could not be written", err):
        target.touch(mode=0o600)
        try:
            write_page(_opened(folder, url), target)
            share_as(folder, target)
            if url is None:
                err.print(f"page     {_shortest(target)}: open it in a browser", soft_wrap=True)
                return
            RemotePlace(split_run(url)[0]).upload(target.name, target)
            err.print(f"page     {shown(url)}.html", soft_wrap=True)
        finally:
            if url is not None:  # `dask-strata report` writes it again
                target.unlink()


def _upload_copy(copy: Path, url: str, err: Console) -> None:
    """Upload the copy of a run that may go on elsewhere, and remove the copy."""
    note_destination(copy, url)
    with _kept_if_interrupted(copy, err):
        _upload(copy, url, err, None)


def _upload(folder: Path, url: str, err: Console, seconds: float | None = 0) -> None:
    """Upload a run that is finished, and remove its spool."""
    from dask_strata.report.words import count, size, visible

    try:
        done = finish_upload(folder, url, seconds)
    except InterruptedQueryError:
        raise
    except Exception as error:  # noqa: BLE001  the exit status is the script's
        reason = getattr(error, "message", None) or str(error) or type(error).__name__
        _print_kept(folder, reason, err)
        return
    files = f"{count(done.files, 'file')}, {size(done.size_bytes)}"
    err.print(f"dask-strata: uploaded to {visible(shown(url))} ({files})", soft_wrap=True)


@contextmanager
def _kept_if_interrupted(spooled: Path | None, err: Console) -> Iterator[None]:
    """Print where a spooled run is if Ctrl-C ends the command before the run is uploaded."""
    try:
        yield
    except (KeyboardInterrupt, InterruptedQueryError):
        if spooled is not None and spooled.is_dir():
            _print_kept(spooled, "it was interrupted.", err)
        raise


def _print_kept(folder: Path, reason: str, err: Console) -> None:
    from dask_strata.report.words import visible

    text = f"the run is not completely uploaded: {reason} It is kept; continue with"
    command = f"dask-strata upload {shlex.quote(str(folder))}"
    err.print(f"dask-strata: {visible(f'{text}: {command}')}", soft_wrap=True, markup=False)


def _opened(folder: Path, url: str | None) -> Run:
    """Return a run that is shown at the URL to which it is going to be uploaded."""
    run = open_run(folder)
    if url is not None:
        run.location = shown(url)
    return run


def after_record(run_folder: Path, log_dir: Path, err: Console) -> None:
    """Add the logs that Darshan wrote to the run, and print the result.

    Parameters
    ----------
    run_folder : Path
        Folder of the run.
    log_dir : Path
        Folder for Darshan's logs.
    err : Console
        Console for messages.
    """
    from dask_strata.importers.registry import add_files
    from dask_strata.report.words import count, visible

    with _failure_printed("Darshan's logs were not added to the run", err):
        found = logs_in(log_dir)
        if not found:
            shown = _shortest(log_dir)
            err.print(f"dask-strata: Darshan wrote no log into {shown}", soft_wrap=True)
            return
        added = add_files(run_folder, found)
        logs = count(added.files, "Darshan log")
        text = ", ".join([f"{count(added.rows, 'row')} of {logs} added", *added.notes])
        err.print(f"dask-strata: {text}; logs are in {_shortest(log_dir)}", soft_wrap=True)
        for problem in added.problems:
            err.print(f"dask-strata: {visible(problem)}", soft_wrap=True)


def _conclude(
    folder: Path, settings: Settings, err: Console, url: str | None, *, quiet: bool
) -> None:
    """Wait for the last events of a run, compact it, and print its summary."""
    from dask_strata.analysis.overview.stored import store_summary, summary_of
    from dask_strata.report.summary import print_summary
    from dask_strata.run.finalise import finalise

    shortest = _shortest(folder)
    with _failure_printed(f"{shortest} was recorded but could not be finished", err):
        wait_for_last_rows(folder, _GRACE_SECONDS)
        if settings.compact:
            finalise(folder)
            store_summary(folder)
        if not quiet:
            err.print()
            print_summary(summary_of(_opened(shortest, url)), err)
        elif url is None:
            err.print(f"dask-strata: {shortest}", soft_wrap=True)


@contextmanager
def _failure_printed(what: str, err: Console) -> Iterator[None]:
    """Print a failure after the script has ended, so that the exit status stays the script's."""
    from dask_strata.report.words import visible

    try:
        yield
    except InterruptedQueryError:  # Ctrl-C ends the command
        raise
    except Exception as error:  # noqa: BLE001  the exit status is the script's
        reason = visible(str(error) or type(error).__name__)
        err.print(f"dask-strata: {what}: {reason}", soft_wrap=True, markup=False)


def _shortest(folder: Path) -> Path:
    try:
        return folder.relative_to(Path.cwd())
    except ValueError:
        return folder

"""``dask-strata import``: runs from files of other tools, and additions to a recorded run."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.core import ParameterSource

from dask_strata.analysis.overview.stored import store_summary
from dask_strata.brokers.address import parse_address
from dask_strata.cli.local import require_folder
from dask_strata.cli.run_names import RunName
from dask_strata.errors import InterruptedQueryError, StrataError, UsageError
from dask_strata.importers.mofka.importer import ImportedRun, find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.importers.streams.importer import StreamImport, import_stream
from dask_strata.report.progress import reading, rows_of, working
from dask_strata.report.words import count, visible
from dask_strata.run.finalise import finalise

#: Lines about missing rows of a run that are printed, at most.
_SHOWN = 20


@click.command("import")
@click.argument("places", metavar="PATH|URL...", nargs=-1, required=True)
@click.option(
    "--into",
    type=RunName(),
    metavar="RUN",
    help="Add Darshan logs or profiles (files or folders) to this run.",
)
@click.option(
    "--others",
    is_flag=True,
    help="With --into: also keep logs that match neither the run's processes nor its time.",
)
@click.option(
    "-o",
    "--runs",
    default="runs",
    show_default=True,
    help="Folder to create runs in.",
)
@click.option("--name", help="Name of the run.  [default: name of the folder]")
@click.option("--strict", is_flag=True, help="Create no run if a row cannot be understood.")
@click.option(
    "--salvage/--no-salvage",
    default=True,
    show_default=True,
    help="Repair damaged events of consumer.o that lack only their last digits.",
)
@click.option("--follow", is_flag=True, help="Of a stream: wait until each run in it has ended.")
@click.option(
    "--idle",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="With --follow: end also when no message has arrived for so long.",
)
@click.pass_context
def command(  # noqa: PLR0913, PLR0917
    ctx: click.Context,
    places: tuple[str, ...],
    into: str | None,
    others: bool,  # noqa: FBT001
    runs: str,
    name: str | None,
    strict: bool,  # noqa: FBT001
    salvage: bool,  # noqa: FBT001
    follow: bool,  # noqa: FBT001
    idle: float | None,
) -> None:
    """Create runs from a stream or from CSV files of the Mofka-Dask coupler, or add to a run.

    A stream has a URL: redis://HOST:6379, kafka://HOST:9092/TOPIC, mofka:GROUPFILE or file:PATH.
    Each run that `dask-strata stream` sent there becomes a run here, with the same rows. Events
    of the Mofka-Dask coupler become one run.

    With --into RUN: add Darshan logs (*.darshan) and profiles of Yappi or Python (pstat,
    callgrind) to a run.

    Without --into, a folder can have scheduler_transition.csv, worker_transition.csv,
    worker_transfer.csv, worker.csv (or workers.csv), client.csv, graph.csv and consumer.o, with
    columns in any order. The run is then finalised, as `dask-strata compact` does.

    Exit status 0: all rows are in the run. 1: some rows are missing, or could not be understood;
    these are counted and kept in the run's folder `aside`.

    \b
    Example:
      dask-strata import D2024-04-19_19:01:00_R1_W8
      dask-strata import -o runs/ ImageProcessing/*
      dask-strata import --into runs/2026-… darshan-logs/
      dask-strata import -o runs/ --follow redis://localhost:6379
    """
    streams = [place for place in places if _is_stream(place)]
    paths = tuple(Path(place) for place in places if place not in streams)
    if streams and (into is not None or others):
        raise UsageError("--into and --others are for files.", hint="Omit them.")
    if (follow or idle is not None) and (paths or not streams):
        raise UsageError("--follow and --idle are for streams.", hint="Give the URL of a stream.")
    if idle is not None and not follow:
        raise UsageError("--idle needs --follow.")
    if into is not None:
        if ctx.get_parameter_source("runs") == ParameterSource.COMMANDLINE or name or strict:
            raise UsageError(
                "--into adds to an existing run: -o, --name and --strict are for new runs.",
                hint="Omit them.",
            )
        ctx.exit(_add(require_folder(into, "add files to a run"), paths, others=others))
    if others:
        raise UsageError("--others needs --into RUN.")
    folder = require_folder(runs, "import runs")
    complete = True
    for path, files in [(path, find_files(path)) for path in paths]:
        with reading(path.name) as progress:
            done = import_files(
                files,
                folder,
                name=name or path.absolute().name,
                strict=strict,
                salvage=salvage,
                progress=progress,
            )
        _print_import(str(path), done)
        _finalise(done.path)
        complete = complete and not done.set_aside and not done.unreadable
    for url in streams:
        with rows_of(str(parse_address(url))) as seen:
            found = import_stream(
                url,
                folder,
                name=name,
                follow=follow,
                idle_seconds=idle,
                strict=strict,
                progress=seen,
            )
        _print_stream(str(parse_address(url)), found, folder)
        complete = complete and found.is_complete
    ctx.exit(0 if complete else 1)


def _is_stream(place: str) -> bool:
    """Return whether an argument is the URL of a stream, even if there is a path of this name."""
    return re.match(r"(redis|rediss|kafka|mofka|file):", place, re.IGNORECASE) is not None


def _print_stream(address: str, found: StreamImport, folder: Path) -> None:
    """Print the runs that were made of a stream, and finalise them."""
    for run in found.runs:
        processes = "process" if run.processes == 1 else "processes"
        parts = [f"{count(run.rows, 'row')} of {run.processes:,} {processes}"]
        if run.duplicates:
            parts.append(f"{count(run.duplicates, 'duplicate row')} dropped")
        click.echo(f"{run.path}  {', '.join(parts)}")
        for text in run.missing[:_SHOWN]:
            click.echo(f"{run.path.name}: missing: {visible(text)}", err=True)
        if len(run.missing) > _SHOWN:
            more = count(len(run.missing) - _SHOWN, "more line")
            click.echo(f"{more}; all of them: dask-strata check {run.path}", err=True)
        if run.set_aside:
            click.echo(
                f"{count(run.set_aside, 'message')} could not be parsed: {run.path / 'aside'}",
                err=True,
            )
        _finalise(run.path)
    if found.coupler is not None:
        _print_import(address, found.coupler)
        _finalise(found.coupler.path)
    for run_id in found.present:
        click.echo(f"Run {run_id} is in {folder} already, and was left as it is.", err=True)
    if found.set_aside and not any(run.set_aside for run in found.runs):
        click.echo(
            f"{count(found.set_aside, 'message')} of {address} could not be parsed. The runs "
            "have all of their rows nevertheless.",
            err=True,
        )


def _print_import(origin: str, done: ImportedRun) -> None:
    """Print the run that was made from a folder or a stream, and the rows that are missing."""
    parts = [count(done.rows, "row")]
    if done.resent:
        parts.append(f"{count(done.resent, 'duplicate transfer')} counted once")
    if done.salvaged:
        parts.append(f"{count(done.salvaged, 'row')} salvaged")
    if done.lost:
        parts.append(f"{count(done.lost, 'event')} lost before the import")
    click.echo(f"{done.path}  {', '.join(parts)}")
    if done.set_aside:
        click.echo(
            f"{count(done.set_aside, 'row')} could not be understood and "
            f"{'was' if done.set_aside == 1 else 'were'} set aside in {done.path / 'aside'}; "
            f"for reasons: dask-strata query {done.path} 'from set_aside'",
            err=True,
        )
    for problem in done.unreadable:
        click.echo(f"{origin}: {problem}; the run has no rows of it.", err=True)


def _finalise(run: Path) -> None:
    """Finalise an imported run. It is complete without, so that a failure is only printed."""
    try:
        with working("finalise") as progress:
            problem = finalise(run, progress).problem
            store_summary(run)
    except InterruptedQueryError:
        raise
    except StrataError as error:
        problem = error.message
    if problem is not None:
        click.echo(
            f"{run} was imported, but each command computes the derived tables that it needs: "
            f"{visible(problem)}",
            err=True,
        )


def _add(run: Path, paths: tuple[Path, ...], *, others: bool) -> int:
    """Add files to a run, print the result, and return the exit status."""
    with reading(run.name) as progress:
        added = add_files(run, paths, progress, others=others)
    of = f" of {count(added.files, 'file')}" if added.files else ""
    parts = [f"{count(added.rows, 'row')}{of} added", *added.notes]
    if added.already_imported:
        parts.append(f"{count(added.already_imported, 'file')} already in the run")
    click.echo(f"{run}  {', '.join(parts)}")
    for name in added.unrecognised:
        click.echo(f"{visible(name)}: not a file that can be added to a run.", err=True)
    for folder, n in added.skipped.items():
        was = "was" if n == 1 else "were"
        click.echo(f"{count(n, 'other file')} in {visible(folder)} {was} skipped.", err=True)
    for problem in added.problems:
        click.echo(visible(problem), err=True)
    usable = added.files or added.already_imported or added.notes
    return 0 if usable and not added.problems else 1

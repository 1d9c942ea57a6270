"""``dask-strata import``: runs of records that others made, and what they add to a run."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from dask_strata.errors import UsageError
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.report.progress import reading
from dask_strata.report.words import count, visible


@click.command("import")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Add Darshan's logs, or profiles (files or folders), to this run.",
)
@click.option(
    "--others",
    is_flag=True,
    help="With --into: keep logs, too, that are of no process of the run, nor of its time.",
)
@click.option(
    "-o",
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder for the run.",
)
@click.option("--name", help="Name of the run.  [default: name of the folder]")
@click.option("--strict", is_flag=True, help="Make no run if a row cannot be understood.")
@click.option(
    "--salvage/--no-salvage",
    default=True,
    show_default=True,
    help="Put damaged events of consumer.o together where only last digits are missing.",
)
@click.pass_context
def command(  # noqa: PLR0913, PLR0917
    ctx: click.Context,
    paths: tuple[Path, ...],
    into: Path | None,
    others: bool,  # noqa: FBT001
    runs: Path,
    name: str | None,
    strict: bool,  # noqa: FBT001
    salvage: bool,  # noqa: FBT001
) -> None:
    """Make a run of each folder with CSV files of the Mofka-Dask coupler, or add to a run.

    With --into RUN, logs that Darshan wrote (*.darshan), and profiles that Yappi or Python saved
    (pstat, callgrind), are added to a run that is on record.

    Else any of scheduler_transition.csv, worker_transition.csv, worker_transfer.csv, worker.csv (or
    workers.csv), client.csv, graph.csv and consumer.o, their columns in any order.

    Exit status 0: all rows are in the run. 1: some could not be understood; they are counted,
    and kept in the run's folder `aside`.

    \b
    Example:
      dask-strata import D2024-04-19_19:01:00_R1_W8
      dask-strata import -o runs/ ImageProcessing/*
      dask-strata import --into runs/2026-… darshan-logs/
    """
    if into is not None:
        if ctx.get_parameter_source("runs") == ParameterSource.COMMANDLINE or name or strict:
            raise UsageError(
                "--into adds to a run that is there: -o, --name and --strict make a new one.",
                hint="Leave them out.",
            )
        ctx.exit(_add(into, paths, others=others))
    if others:
        raise UsageError("--others is about files that are added with --into RUN.")
    whole = True
    for path, files in [(path, find_files(path)) for path in paths]:
        with reading(path.name) as progress:
            done = import_files(
                files,
                runs,
                name=name or path.absolute().name,
                strict=strict,
                salvage=salvage,
                progress=progress,
            )
        said = [count(done.rows, "row")]
        if done.resent:
            said.append(f"{count(done.resent, 'transfer')} resent and counted once")
        if done.salvaged:
            said.append(f"{count(done.salvaged, 'row')} salvaged")
        if done.lost:
            said.append(f"{count(done.lost, 'event')} lost before it came here")
        click.echo(f"{done.path}  {', '.join(said)}")
        if done.set_aside:
            click.echo(
                f"{count(done.set_aside, 'row')} could not be understood and "
                f"{'was' if done.set_aside == 1 else 'were'} set aside in {done.path / 'aside'}; "
                f"why: dask-strata query {done.path} 'from set_aside'",
                err=True,
            )
        for trouble in done.unreadable:
            click.echo(f"{path}: {trouble}; nothing of it is in the run.", err=True)
        whole = whole and not done.set_aside and not done.unreadable
    ctx.exit(0 if whole else 1)


def _add(run: Path, paths: tuple[Path, ...], *, others: bool) -> int:
    """Add files to a run, say what came of it, and return the exit status."""
    with reading(run.name) as progress:
        added = add_files(run, paths, progress, others=others)
    of = f" of {count(added.files, 'file')}" if added.files else ""
    said = [f"{count(added.rows, 'row')}{of} added", *added.said]
    if added.again:
        said.append(f"{count(added.again, 'file')} in the run already")
    click.echo(f"{run}  {', '.join(said)}")
    for name in added.unknown:
        click.echo(f"{visible(name)}: not a file that can be added to a run.", err=True)
    for folder, n in added.passed.items():
        was = "was" if n == 1 else "were"
        click.echo(f"{count(n, 'other file')} in {visible(folder)} {was} not looked at.", err=True)
    for trouble in added.troubles:
        click.echo(visible(trouble), err=True)
    usable = added.files or added.again or added.said
    return 0 if usable and not added.troubles else 1

"""``dask-strata import``: runs of records that others made."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.importers.mofka_csv import find_files, import_files
from dask_strata.report.progress import reading
from dask_strata.report.words import count


@click.command("import")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
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
    runs: Path,
    name: str | None,
    strict: bool,  # noqa: FBT001
    salvage: bool,  # noqa: FBT001
) -> None:
    """Make a run of each folder with CSV files of the Mofka-Dask coupler.

    Any of scheduler_transition.csv, worker_transition.csv, worker_transfer.csv, worker.csv (or
    workers.csv), client.csv, graph.csv and consumer.o, their columns in any order.

    Exit status 0: all rows are in the run. 1: some could not be understood; they are counted,
    and kept in the run's folder `aside`.

    \b
    Example:
      dask-strata import D2024-04-19_19:01:00_R1_W8
      dask-strata import -o runs/ ImageProcessing/*
    """
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

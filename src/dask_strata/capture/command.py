"""``dask-capture``: the coupler's CSV files as one object a task, as the older tool had it."""

from __future__ import annotations

import difflib
import os
import shutil
import zoneinfo
from collections.abc import Callable
from datetime import timezone, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from dask_strata.capture.handler import TaskHandler
from dask_strata.capture.writers import FORMATS
from dask_strata.cli.errors import report_errors, run_command
from dask_strata.errors import StrataError, UsageError
from dask_strata.importers.mofka.importer import Imported, find_files, import_files
from dask_strata.report.formats import Format, format_of, write
from dask_strata.report.progress import reading
from dask_strata.report.rows import write_rows
from dask_strata.report.words import count, visible
from dask_strata.run import Run, open_run
from dask_strata.store.manifest import ASIDE, MANIFEST

_F = TypeVar("_F", bound=Callable[..., Any])

#: Names of each file where none is given.
_DEFAULTS = {
    "scheduler_transition": ("scheduler_transition.csv",),
    "worker": ("workers.csv", "worker.csv"),
    "worker_transition": ("worker_transition.csv",),
    "worker_transfer": ("worker_transfer.csv",),
}

#: Name of the output without its suffix, where no output is given.
_OUTPUT = "compiled_tasks"


class _Form(click.Choice[str]):
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "pickle":
            self.fail(
                "pickle is not written: reading one can run any code. "
                "Use json, csv, parquet or df_csv, or dask_strata.capture in Python.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class _Command(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        with report_errors(ctx, "dask-capture --debug"):
            return super().invoke(ctx)


def _file_option(short: str, long: str, role: str, what: str) -> Callable[[_F], _F]:
    return click.option(
        short,
        long,
        role,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"{what}.  [default: {' or '.join(_DEFAULTS[role])}]",
    )


@click.command(
    "dask-capture", cls=_Command, context_settings={"help_option_names": ["-h", "--help"]}
)
@_file_option("-s", "--sched_file", "scheduler_transition", "Changes of state on the scheduler")
@_file_option("-w", "--worker_file", "worker", "Workers")
@_file_option("-t", "--worker_trans_file", "worker_transition", "Changes of state on workers")
@_file_option("-x", "--worker_xfer_file", "worker_transfer", "Transfers")
@click.option(
    "-o",
    "--output_file",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write; a folder for df_csv.  [default: compiled_tasks.txt, or as the format]",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=_Form(FORMATS),
    default="txt",
    show_default=True,
    help="txt and json: a block a task. csv and parquet: a row an event. "
    "df_csv: a CSV file of each kind of event.",
)
@click.option("--tz", "zone", metavar="ZONE", default="UTC", help="Zone of times.  [default: UTC]")
@click.option("--strict", is_flag=True, help="Write nothing if a row cannot be understood.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
@click.version_option(package_name="dask-strata", prog_name="dask-capture")
@click.pass_context
def command(  # noqa: PLR0913
    ctx: click.Context,
    /,
    *,
    output: Path | None,
    form: str,
    zone: str,
    strict: bool,
    debug: bool,  # noqa: ARG001  read by `report_errors`
    folder: Path | None,
    **named: Path | None,
) -> None:
    """Consolidate the CSV files of the Mofka-Dask coupler into one object a task.

    With DIR, the files in it are taken, or the run that it is. Exit status 1 if rows could
    not be understood: they are then in a folder beside the output.

    \b
    Examples:
      dask-capture
      dask-capture -s scheduler_transition.csv -w workers.csv -o compiled_tasks.txt
      dask-capture -f df_csv -o OUT DIR
      dask-capture -f parquet -o events.parquet --tz Europe/Paris runs/2026-…
    """
    tz = _zone(zone)
    output_format = format_of(TaskHandler, form)
    target = output or Path(f"{_OUTPUT}{output_format.suffix}")
    _refuse_wrong_kind(target, folder=output_format.is_folder)
    if folder is not None and any(named.values()):
        raise UsageError(
            "A folder and files were given.", hint="Give either DIR or -s, -w, -t, -x."
        )
    if folder is not None and (folder / MANIFEST).is_file():
        _write(open_run(folder, align=False), tz, output_format, target)
        return
    files = _files(named) if folder is None else find_files(folder)
    if target.resolve() in {file.resolve() for file in files.values()}:
        raise UsageError(f"{target} is one of the files to read.", hint="Give another: -o FILE")
    with TemporaryDirectory(prefix="dask-capture-") as scratch:
        with reading("the files") as progress:
            done = import_files(
                files, Path(scratch), name="dask-capture", strict=strict, progress=progress
            )
        run = open_run(done.path, align=False)
        _write(run, tz, output_format, target)
        whole = _tell(done, run, target)
    ctx.exit(0 if whole else 1)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        like = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=3)
        hint = f"Did you mean {' or '.join(like)}?" if like else "Example: --tz Europe/Paris"
        raise UsageError(f"There is no time zone {name}.", hint=hint) from None


def _refuse_wrong_kind(target: Path, *, folder: bool) -> None:
    """Say at once, not after minutes of reading, that the output cannot have that name."""
    if target.exists() and not (target.is_dir() if folder else target.is_file()):
        raise UsageError(f"{target} is {'no folder' if folder else 'not a file'}.")
    if not folder and not target.parent.is_dir():
        raise UsageError(f"{target} cannot be written: there is no folder {target.parent}.")


def _files(named: dict[str, Path | None]) -> dict[str, Path]:
    """Return the files that were named, and those of the default names that there are."""
    files, absent = {}, []
    for role, names in _DEFAULTS.items():
        path = named.get(role)
        if path is not None:
            if not path.is_file():
                raise UsageError(f"There is no file {path}.")
            files[role] = path
        elif present := [Path(name) for name in names if Path(name).is_file()]:
            files[role] = present[0]
        else:
            absent.append(" or ".join(names))
    if not files:
        raise StrataError(
            f"There is none of the coupler's files here: {', '.join(absent)}.",
            hint="Name them (see dask-capture --help), or give the folder that has them.",
        )
    for missing in absent:
        _say(f"There is no {missing}: left out.")
    return files


def _write(run: Run, zone: tzinfo, output_format: Format, target: Path) -> None:
    """Write a run's events; the target is there when it is whole, or as it was before."""
    handler = TaskHandler(run, tz=zone)
    place = Path(os.path.realpath(target))
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    folder = output_format.is_folder
    try:
        write(handler, output_format.name, part)
        if folder:
            place.mkdir(parents=True, exist_ok=True)
            for file in sorted(part.iterdir()):
                file.replace(place / file.name)
        else:
            part.replace(place)
    except OSError as error:
        raise StrataError(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True) if folder else part.unlink(missing_ok=True)
    odd = handler.unknown_states()
    if odd:
        states = ", ".join(f"{state} ({n:,})" for state, n in sorted(odd.items()))
        _say(f"States that Dask is not known to have were kept as they are: {states}")
    _say(f"{target}: {count(len(handler.tasks), 'task')}, {count(handler.n_events, 'event')}")


def _tell(done: Imported, run: Run, target: Path) -> bool:
    """Say what is not in the output, keep rows that are no use; return whether there are none."""
    if done.resent:
        _say(f"{count(done.resent, 'resent transfer')} left out, told of before")
    if done.salvaged:
        _say(f"{count(done.salvaged, 'damaged event')} put together again")
    if done.lost:
        _say(f"{count(done.lost, 'event')} lost before it came here: see dask-strata import")
    if done.set_aside:
        beside = target.with_name(f"{target.name}.aside")
        try:
            shutil.copytree(done.path / ASIDE, beside, dirs_exist_ok=True)
        except OSError as error:
            raise StrataError(f"{beside} cannot be written: {error}.") from error
        write_rows(run["set_aside"].to_arrow(), "csv", beside / "reasons.csv")
        _say(
            f"Not whole: {count(done.set_aside, 'row')} could not be understood; "
            f"they are in {beside}, with reasons in reasons.csv"
        )
    return not done.set_aside


def _say(text: str) -> None:
    click.echo(visible(text), err=True)


def main() -> None:
    """Run the command."""
    run_command(command, "dask-capture")

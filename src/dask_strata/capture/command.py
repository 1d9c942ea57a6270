"""``dask-capture``: write the coupler's CSV files, or a run, as one block per task."""

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
from dask_strata.importers.mofka.importer import ImportedRun, find_files, import_files
from dask_strata.report.formats import Format, format_of, write
from dask_strata.report.progress import reading
from dask_strata.report.rows import write_rows
from dask_strata.report.words import count, visible
from dask_strata.run import Run, open_run
from dask_strata.store.manifest import ASIDE, MANIFEST
from dask_strata.store.zipped.copy import is_bundle

_F = TypeVar("_F", bound=Callable[..., Any])

#: Default names of each file, by role.
_DEFAULTS = {
    "scheduler_transition": ("scheduler_transition.csv",),
    "worker": ("workers.csv", "worker.csv"),
    "worker_transition": ("worker_transition.csv",),
    "worker_transfer": ("worker_transfer.csv",),
}

#: Default name of the output, without its suffix.
_OUTPUT = "compiled_tasks"


class _FormatChoice(click.Choice[str]):
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


def _file_option(short: str, long: str, role: str, content: str) -> Callable[[_F], _F]:
    return click.option(
        short,
        long,
        role,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"{content}.  [default: {' or '.join(_DEFAULTS[role])}]",
    )


@click.command(
    "dask-capture", cls=_Command, context_settings={"help_option_names": ["-h", "--help"]}
)
@_file_option("-s", "--sched_file", "scheduler_transition", "Transitions on the scheduler")
@_file_option("-w", "--worker_file", "worker", "Workers that joined and left")
@_file_option("-t", "--worker_trans_file", "worker_transition", "Transitions on workers")
@_file_option("-x", "--worker_xfer_file", "worker_transfer", "Transfers")
@click.option(
    "-o",
    "--output_file",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file; a folder for df_csv.  [default: compiled_tasks with the format's suffix]",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=_FormatChoice(FORMATS),
    default="txt",
    show_default=True,
    help="txt and json: a block per task. csv and parquet: a row per event. "
    "df_csv: a CSV file for each kind of event.",
)
@click.option(
    "--tz", "zone", metavar="ZONE", default="UTC", help="Time zone of the output.  [default: UTC]"
)
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

    DIR is a folder with these files, or a run. Without DIR, files in the current folder are read.

    Exit status 1: some rows could not be understood. They are in a folder next to the output.

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
    if folder is not None and ((folder / MANIFEST).is_file() or is_bundle(folder)):
        _write(open_run(folder, align=False), tz, output_format, target)
        return
    files = _files(named) if folder is None else find_files(folder)
    if target.resolve() in {file.resolve() for file in files.values()}:
        raise UsageError(f"{target} is one of the input files.", hint="Give another: -o FILE")
    with TemporaryDirectory(prefix="dask-capture-") as scratch:
        with reading("the files") as progress:
            done = import_files(
                files, Path(scratch), name="dask-capture", strict=strict, progress=progress
            )
        run = open_run(done.path, align=False)
        _write(run, tz, output_format, target)
        complete = _report(done, run, target)
    ctx.exit(0 if complete else 1)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        like = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=3)
        hint = f"Did you mean {' or '.join(like)}?" if like else "Example: --tz Europe/Paris"
        raise UsageError(f"No such time zone: {name}.", hint=hint) from None


def _refuse_wrong_kind(target: Path, *, folder: bool) -> None:
    """Raise UsageError now if the output cannot have that name: reading may take minutes."""
    if target.exists() and not (target.is_dir() if folder else target.is_file()):
        raise UsageError(f"{target} is {'not a folder' if folder else 'not a file'}.")
    if not folder and not target.parent.is_dir():
        raise UsageError(f"{target} cannot be written: no such folder: {target.parent}.")


def _files(named: dict[str, Path | None]) -> dict[str, Path]:
    """Return the files given by options, else the files with default names that exist."""
    files, absent = {}, []
    for role, names in _DEFAULTS.items():
        path = named.get(role)
        if path is not None:
            if not path.is_file():
                raise UsageError(f"No such file: {path}.")
            files[role] = path
        elif present := [Path(name) for name in names if Path(name).is_file()]:
            files[role] = present[0]
        else:
            absent.append(" or ".join(names))
    if not files:
        raise StrataError(
            f"The current folder has none of the coupler's files: {', '.join(absent)}.",
            hint="Give the files (see dask-capture --help), or the folder with them.",
        )
    for missing in absent:
        _echo(f"No such file: {missing}. Its events are left out.")
    return files


def _write(run: Run, zone: tzinfo, output_format: Format, target: Path) -> None:
    """Write a run's events. The target appears when it is complete; until then it is unchanged."""
    handler = TaskHandler(run, tz=zone)
    final = Path(os.path.realpath(target))
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    folder = output_format.is_folder
    try:
        write(handler, output_format.name, part)
        if folder:
            final.mkdir(parents=True, exist_ok=True)
            for file in sorted(part.iterdir()):
                file.replace(final / file.name)
        else:
            part.replace(final)
    except OSError as error:
        raise StrataError(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True) if folder else part.unlink(missing_ok=True)
    unknown = handler.unknown_states()
    if unknown:
        states = ", ".join(f"{state} ({n:,})" for state, n in sorted(unknown.items()))
        _echo(f"Unknown states were kept as text: {states}")
    _echo(f"{target}: {count(len(handler.tasks), 'task')}, {count(handler.n_events, 'event')}")


def _report(done: ImportedRun, run: Run, target: Path) -> bool:
    """Report the rows that are not in the output, keep those set aside; return whether none are."""
    if done.resent:
        _echo(f"{count(done.resent, 'resent transfer')} left out: duplicates")
    if done.salvaged:
        _echo(f"{count(done.salvaged, 'damaged event')} restored")
    if done.lost:
        _echo(f"{count(done.lost, 'event')} lost before the import: see dask-strata import")
    if done.set_aside:
        beside = target.with_name(f"{target.name}.aside")
        try:
            shutil.copytree(done.path / ASIDE, beside, dirs_exist_ok=True)
        except OSError as error:
            raise StrataError(f"{beside} cannot be written: {error}.") from error
        write_rows(run["set_aside"].to_arrow(), "csv", beside / "reasons.csv")
        _echo(
            f"Incomplete: {count(done.set_aside, 'row')} could not be understood; "
            f"see {beside}, with the reasons in reasons.csv"
        )
    return not done.set_aside


def _echo(text: str) -> None:
    click.echo(visible(text), err=True)


def main() -> None:
    """Run the command."""
    run_command(command, "dask-capture")

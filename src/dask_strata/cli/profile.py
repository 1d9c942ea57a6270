"""``dask-strata profile``: time in functions, by Yappi's profile or Dask's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dask_strata.analysis.profile import KINDS, profile_source, select_profile
from dask_strata.analysis.stacks import STACK_KINDS, StackFilter, select_functions, stacks
from dask_strata.cli.completion import complete_prefix, complete_worker
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.config import VERSION
from dask_strata.errors import UsageError
from dask_strata.report.flame.files import STACK_FORMATS, write_stacks
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.run import open_run

#: Options of one source only, by their names.
_OF_YAPPI, _OF_DASK = ("process", "waiting"), ("prefix", "worker", "begin", "end", "event_loops")

_OPTION = {"begin": "--from", "end": "--to", "event_loops": "--event-loops"}


#: The most important columns after the first, in either profile.
_IMPORTANT = (
    "own_seconds",
    "own_share",
    "total_seconds",
    "total_share",
    "n_calls",
    "module",
    "owner",
)


@click.command("profile")
@run_argument
@click.option(
    "--source",
    type=click.Choice(["yappi", "dask"]),
    help="Yappi's profile, or Dask's own.  [default: Yappi's if it is on record]",
)
@click.option(
    "--by",
    type=click.Choice(list(dict.fromkeys((*KINDS, *STACK_KINDS)))),
    default="function",
    show_default=True,
    help="Kind of rows. thread: of Yappi only; prefix, worker, time: of Dask only.",
)
@click.option(
    "--prefix", shell_complete=complete_prefix, help="Dask: only of tasks of this prefix."
)
@click.option(
    "--worker",
    shell_complete=complete_worker,
    help="Dask: only of this worker, by address or name.",
)
@click.option("--from", "begin", type=float, help="Dask: from this second of the recording on.")
@click.option("--to", "end", type=float, help="Dask: up to this second of the recording.")
@click.option("--event-loops", is_flag=True, help="Dask: of event loops instead of tasks.")
@click.option("--process", help="Yappi: only of this process: its id, address or name in Dask.")
@click.option("--waiting", is_flag=True, help="Yappi: include functions whose own time is waiting.")
@click.option(
    "--sort", metavar="COL", help="Sort by this column, largest first; -COL for smallest first."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show; 0 for all.  [default: 30 in a table, else 0]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, *STACK_FORMATS]),
    default="table",
    show_default=True,
    help="collapsed (for flamegraph.pl and others) and speedscope: Dask's stacks, all of them.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@table_options()
def command(
    run: str,
    source: str | None,
    form: str,
    output: Path | None,
    view: TableView,
    **options: Any,
) -> None:
    """Show a profile: time in functions and coroutines, and the owners of their code.

    Dask's own statistical profile of tasks is always on record: Dask looks every 10 ms which
    functions run. Yappi's profile measures each call and also event loops; it is recorded only with
    dask-strata record --yappi wall, or cpu. The folder profiles of the run then has files for other
    tools. Own time is that of a function without those that it called; the time of compiled code
    counts for the Python function that called it.

    \b
    Examples:
      dask-strata profile RUN
      dask-strata profile RUN --source dask --prefix load --from 60 --to 120
      dask-strata profile RUN --by prefix
      dask-strata profile RUN --format speedscope -o profile.speedscope.json
      dask-strata profile RUN --source yappi --by owner --format csv
    """
    opened = open_run(run)
    if source is None and (form in STACK_FORMATS or _given(_OF_DASK, options)):
        source = "dask"
    elif source is None and _given(_OF_YAPPI, options):
        source = "yappi"
    source = _source(source or profile_source(opened, options["by"]), options)
    which = StackFilter(**{name: options.pop(name) for name in _OF_DASK})
    if form in STACK_FORMATS:
        if source != "dask":
            raise UsageError(f"The format {form} is for Dask's profile.", hint="--source dask")
        found = stacks(opened, which)
        write_stacks(STACK_FORMATS[form](found, opened.name, VERSION), output)
        return
    if options["limit"] is None:
        options["limit"] = 30 if form == "table" and output is None else 0
    if source == "dask":
        for name in _OF_YAPPI:
            del options[name]
        shown = select_functions(opened, which, **options)
    else:
        shown = select_profile(opened, **options)
    left = shown.total - len(shown.rows)
    note = f"{left:,} more; --limit 0 shows all" if left else f"{shown.total:,} rows"
    if source == "dask":
        note += "; Dask's samples: shares are exact, seconds are an estimate"
    by_sort = () if (named := options["sort"]) is None else (named.removeprefix("-"),)
    first = shown.rows.column_names[0]
    view = replace(view, important=(first, *by_sort, *_IMPORTANT))
    write_rows(shown.rows, form, output, note, view)


def _source(source: str, options: dict[str, Any]) -> str:
    """Check that the options are those of the source, and return it."""
    for name in _given(_OF_YAPPI if source == "dask" else _OF_DASK, options):
        option, other = _OPTION.get(name, f"--{name}"), "yappi" if source == "dask" else "dask"
        raise UsageError(
            f"{option} is no option of the source {source}.", hint=f"Give --source {other}"
        )
    return source


def _given(names: tuple[str, ...], options: dict[str, Any]) -> list[str]:
    """Return which of these options were given; 0 is a value."""
    return [name for name in names if options[name] is not None and options[name] is not False]

"""``%%strata``: record one cell of a notebook and show its run.

IPython keeps its magics and its last traceback until the interpreter ends. DuckDB prints a list of
leaked objects then, if anything refers to it. So neither this module nor a frame that calls the
cell keeps a run.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dask_strata.errors import StrataError

if TYPE_CHECKING:
    from dask_strata.api import Run


@click.command("%%strata", add_help_option=False)
@click.option("--name", help="Name of the run.  [default: the notebook's]")
@click.option(
    "--run", "variable", metavar="VARIABLE", help="Assign the run to this variable, to query it."
)
@click.option("--no-code", is_flag=True, help="Leave out source lines and text of cells.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the summary.")
@click.argument("runs", required=False)
def _options(**options: Any) -> dict[str, Any]:
    r"""Record one cell with the current Dask client, and show the summary of its run.

    RUNS is the folder to create the run in; by default the setting `runs`.

    \b
    Examples:
      %%strata
      %%strata --run run my-runs/
    """
    return options


def load(shell: Any) -> None:
    """Define the cell magic ``%%strata`` in a shell of IPython.

    Parameters
    ----------
    shell : InteractiveShell
        The shell.
    """

    def strata(line: str, cell: str) -> None:
        record_cell(shell, line, cell)

    with click.Context(_options, info_name="%%strata") as context:
        strata.__doc__ = _options.get_help(context)
    shell.register_magic_function(strata, magic_kind="cell", magic_name="strata")


def record_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell and record it; it runs as well if it cannot be recorded.

    Parameters
    ----------
    shell : InteractiveShell
        The shell.
    line : str
        Options of the magic.
    cell : str
        The code of the cell.

    Raises
    ------
    BaseException
        The exception that the cell raised, or an error in its syntax.
    """
    options = _parse(line)
    if _awaits(shell, cell):
        _usage_error(
            "%%strata cannot run a cell with a top-level `await`. "
            "Write: async with dask_strata.record(client=client) as run:"
        )
    had_client = _has_client()
    with _recording(options) as recorded:
        error = _run(shell, cell)
    _conclude(shell, options, recorded.pop(), had_client=had_client)
    if error is not None:
        raise error


def _parse(line: str) -> dict[str, Any]:
    try:
        options: dict[str, Any] = _options.main(shlex.split(line), standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        words = error.format_message() if isinstance(error, click.ClickException) else error
        _usage_error(f"%%strata: {words} `%%strata?` lists the options.")
    variable = options["variable"]
    if variable is not None and not variable.isidentifier():
        _usage_error(f"%%strata: {variable!r} is not the name of a variable.")
    return options


def _usage_error(message: str) -> None:
    """Raise IPython's own error for wrong use, which it shows without a traceback."""
    from IPython.core.error import UsageError as MagicUsageError

    raise MagicUsageError(message)


def _awaits(shell: Any, cell: str) -> bool:
    """Return whether a cell has a top-level `await`. Raises SyntaxError."""
    code = shell.transform_cell(cell)
    shell.compile.ast_parse(code)
    return bool(shell.should_run_async(cell, transformed_cell=code))


def _has_client() -> bool:
    from distributed import get_client

    try:
        get_client()
    except ValueError:
        return False
    return True


@contextmanager
def _recording(options: dict[str, Any]) -> Iterator[list[Run | Exception]]:
    """Record a block; the list has the run, or the error due to which nothing was recorded."""
    from dask_strata.api import record

    settings = {"code": False} if options["no_code"] else {}
    recorded: list[Run | Exception] = []
    try:
        recording = record(options["runs"], name=options["name"], **settings)
        recorded.append(recording.__enter__())
    except Exception as error:  # noqa: BLE001  the cell runs, recorded or not
        recorded.append(error)
        yield recorded
        return
    try:
        yield recorded
    finally:
        try:
            recording.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  it must not hide the cell's own exception
            _print(f"the recording did not end properly: {error}")


def _run(shell: Any, cell: str) -> BaseException | None:
    """Run a cell as IPython does; return its exception, which is not shown yet.

    IPython would show the exception here, and again where the magic raises it. So only the place
    that raises it shows it, with the traceback that belongs to the cell alone.
    """
    shown: list[tuple[Any, Any, Any]] = []
    show = shell._showtraceback  # noqa: SLF001  subclasses of the shell override this method

    def keep(kind: Any, error: Any, traceback: Any) -> None:
        if shown:  # of an earlier exception, which the cell has caught
            show(*shown.pop())
        shown.append((kind, error, traceback))

    shell._showtraceback = keep  # noqa: SLF001  as above
    try:
        result = shell.run_cell(cell)
    finally:
        shell._showtraceback = show  # noqa: SLF001  as above
    raised: BaseException | None = result.error_before_exec or result.error_in_exec
    for kind, error, traceback in shown:
        if error is raised and hasattr(error, "__dict__"):
            vars(error)["_render_traceback_"] = partial(list, traceback)  # IPython shows this
        else:
            show(kind, error, traceback)
    return raised


def _conclude(
    shell: Any, options: dict[str, Any], recorded: Run | Exception, *, had_client: bool
) -> None:
    """Show the run and assign it to its variable, or print why nothing was recorded.

    A run that could not start is assigned, too: the variable must not keep an earlier cell's run.
    """
    if not isinstance(recorded, Exception):
        if options["variable"]:
            shell.push({options["variable"]: recorded})
        if recorded and not options["quiet"]:  # without a run, `record` has logged the reason
            _show(shell, recorded)
    elif not had_client:
        _print(
            "the cell was not recorded: it started without a Dask client. %%strata records the "
            "current client: create it in an earlier cell."
        )
    else:
        _print(f"the cell was not recorded: {recorded}")


def _show(shell: Any, run: Run) -> None:
    from dask_strata.analysis.summary import summarize
    from dask_strata.report.summary import print_summary
    from dask_strata.report.terminal.table import console

    try:
        if getattr(shell, "kernel", None) is None:
            print_summary(summarize(run), console())
        else:
            from IPython.display import display

            display(run)
    except StrataError as error:
        _print(f"the run in {run.path} cannot be shown: {error}")


def _print(message: str) -> None:
    print(f"dask-strata: {message}", file=sys.stderr)  # noqa: T201  the output of a notebook's cell

"""The command line: one file a verb, no logic. Errors become exit statuses here."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dask_strata.errors import StrataError

_VERBS = {
    "record": "run a script, and record every Dask cluster it uses",
    "demo": "record an image-processing example: the first thing to try",
    "list": "runs in a folder",
    "show": "what ran, how long, where the time went, what stands out",
    "report": "one page to look at, offline: verdict, timeline, tables",
    "map": "the metadata map, with its counts",
    "tasks": "one row a task",
    "chunks": "which worker processed which part of which file, and how fast",
    "io": "what tasks read and wrote, as Darshan traced it",
    "profile": "time in functions and coroutines, and whose code it is, if it was profiled",
    "story": "everything about one task, in time order",
    "query": "SQL over all tables",
    "tables": "the tables that every run has, and their columns",
    "serve": "the runs of a folder in the browser",
    "check": "is the record whole?",
    "compact": "turn the record into Parquet",
    "import": "make a run of the Mofka-Dask coupler's CSV files, or add Darshan's logs to a run",
}


#: What DuckDB makes of Ctrl-C.
_INTERRUPTED = "Query interrupted"


class _Told(click.ClickException):
    """One of our errors, on its way to the terminal."""

    def __init__(self, error: StrataError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        from dask_strata.report.words import visible

        click.echo(f"Error: {visible(self.message, keep_lines=True)}", file=file, err=True)


class _Verbs(click.Group):
    """Loads a verb when it is asked for, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}_").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with told(ctx, "dask-strata --debug COMMAND"):
            return super().invoke(ctx)


@contextmanager
def told(ctx: click.Context, debug: str) -> Iterator[None]:
    """Turn what goes wrong inside into an exit status and a sentence.

    Parameters
    ----------
    ctx : click.Context
        Context of the command; its parameter ``debug`` lets errors through as they are.
    debug : str
        The command that shows a traceback.
    """
    try:
        yield
    except StrataError as error:
        if ctx.params.get("debug"):
            raise
        raise _Told(error) from error
    except BrokenPipeError:
        # Whoever reads us has seen enough. Python would complain once more on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(0)
    except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
        raise
    except Exception as error:  # a user is never shown a traceback unasked
        if _INTERRUPTED in str(error):
            raise KeyboardInterrupt from error
        if ctx.params.get("debug"):
            raise
        raise _Told(
            StrataError(
                f"{type(error).__name__}: {error}",
                hint=f"A mistake in dask-strata: `{debug}` shows where.",
            )
        ) from error


@click.group(cls=_Verbs, name="strata", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(package_name="dask-strata", prog_name="dask-strata")
def cli(debug: bool) -> None:  # noqa: FBT001
    """Record Dask.distributed: every layer of a run, in one folder, and answers from it.

    \b
    Example:
      dask-strata record pipeline.py
      dask-strata show runs/2026-…
    """


def main() -> None:
    """Run the command line."""
    run_command(cli, "dask-strata")


def run_command(command: click.Command, name: str) -> None:
    """Run a command; Ctrl-C ends it with status 130, as shells expect."""
    try:
        status = command.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)

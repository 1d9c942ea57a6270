"""Errors of commands as one or two lines on standard error and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from dask_strata.errors import InterruptedQueryError, StrataError


class ReportedError(click.ClickException):
    """An error of dask-strata that click prints on the terminal.

    Parameters
    ----------
    error : StrataError
        The error.
    """

    def __init__(self, error: StrataError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """Print the error, with control characters as escapes.

        Parameters
        ----------
        file : file object, optional
            Where to print it; standard error by default.
        """
        from dask_strata.report.words import visible

        click.echo(f"Error: {visible(self.message, keep_lines=True)}", file=file, err=True)


@contextmanager
def report_errors(ctx: click.Context, debug: str) -> Iterator[None]:
    """Convert exceptions of a command to a sentence and an exit status.

    Parameters
    ----------
    ctx : click.Context
        Context of the command; if its parameter ``debug`` is true, errors pass unchanged.
    debug : str
        Command that shows a traceback, for the message.
    """
    try:
        yield
    except InterruptedQueryError as error:  # `interruptible` raises it for Ctrl-C
        raise KeyboardInterrupt from error
    except StrataError as error:
        if ctx.params.get("debug"):
            raise
        raise ReportedError(error) from error
    except BrokenPipeError:
        # The reader has closed the pipe: without this, Python prints another error on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(0)
    except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
        raise
    except Exception as error:  # users see a traceback only with --debug
        if ctx.params.get("debug"):
            raise
        raise ReportedError(
            StrataError(
                f"{type(error).__name__}: {error}",
                hint=f"This is a bug in dask-strata: `{debug}` shows the traceback.",
            )
        ) from error


def run_command(command: click.Command, name: str) -> None:
    """Run a command and exit with its status; 130 after Ctrl-C, as shells expect.

    Parameters
    ----------
    command : click.Command
        The command.
    name : str
        Name of the program, for messages.
    """
    try:
        status = command.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)

"""The command line: one module per command, which parses options and prints an answer."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from dask_strata.cli.commands import VERBS
from dask_strata.cli.errors import report_errors, run_command
from dask_strata.cli.without_pandas import avoid_pandas
from dask_strata.errors import UsageError, suggestion
from dask_strata.report.progress import working
from dask_strata.store.finalise.progress import show_with


class _Verbs(click.Group):
    """A group that imports a command only when it runs, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        verb = VERBS.get(cmd_name)
        return None if verb is None else verb.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UsageError(
                f"No such command: {args[0]}",
                hint=f"{suggestion(args[0], VERBS)}List commands with: dask-strata --help",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        with report_errors(ctx, "dask-strata --debug COMMAND"):
            return super().invoke(ctx)


@click.group(cls=_Verbs, name="strata", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(package_name="dask-strata", prog_name="dask-strata")
def cli(debug: bool) -> None:  # noqa: FBT001
    """Record runs of Dask.distributed, from the batch job to the thread, and analyse them.

    \b
    Example:
      dask-strata record pipeline.py
      dask-strata show latest

    RUN is a path, a URL, latest, a number of `dask-strata list`, the start of an id, or a part of
    a name. Completion in bash (zsh and fish likewise), for ~/.bashrc:

    \b
      eval "$(_DASK_STRATA_COMPLETE=bash_source dask-strata)"
    """


def main() -> None:
    """Run the command line."""
    avoid_pandas(sys.argv[1:])
    show_with(working)
    if "_DASK_STRATA_COMPLETE" in os.environ:
        from dask_strata.cli.bash import register

        register()
    run_command(cli, "dask-strata")

"""``dask-strata record``: run a script and record every Dask cluster that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from dask_strata.cli.recording import record_command
from dask_strata.config import LEAVE_OUT, read_settings


class _Record(click.Command):
    """Accepts ``--darshan`` without a value, for which Click would use the next argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*self._with_values(args)])

    def _with_values(self, args: list[str]) -> Iterator[str]:
        flags = {name: p for p in self.params if isinstance(p, click.Option) for name in p.opts}
        before_script, value = True, False
        for argument in args:
            before_script = before_script and (
                value or (argument.startswith("-") and argument != "--")
            )
            option = None if value else flags.get(argument)
            yield "--darshan=auto" if before_script and argument == "--darshan" else argument
            value = option is not None and not option.is_flag and argument != "--darshan"


@click.command(
    "record",
    cls=_Record,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    "runs",
    metavar="RUNS",
    help="Folder to create the run in.  [default: runs]",
)
@click.option(
    "-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as with python -m."
)
@click.option("--name", help="Name of the run.  [default: the script's]")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Mark the run, for `dask-strata compare --by`: a word, or NAME=VALUE.",
)
@click.option("--no-code", is_flag=True, help="Leave out script text and source lines.")
@click.option("--no-paths", is_flag=True, help="Leave out names of files and folders.")
@click.option("--no-hosts", is_flag=True, help="Leave out names and addresses of hosts.")
@click.option(
    "--leave-out",
    metavar="NAMES",
    help="Leave out these classes of facts, separated by commas: " + ", ".join(LEAVE_OUT) + ".",
)
@click.option("--no-compact", is_flag=True, help="Do not write Parquet at the end.")
@click.option(
    "--flush-interval",
    metavar="TIME",
    help="Longest time until an event is written to a file.  [default: 80ms]",
)
@click.option(
    "--sample-interval",
    metavar="TIME",
    help="Time between two samples of load and memory.  [default: 500ms]",
)
@click.option(
    "--log-level",
    metavar="LEVEL",
    help="Least level of log records that are recorded.  [default: INFO]",
)
@click.option(
    "--yappi",
    "yappi_clock",
    type=click.Choice(["wall", "cpu"]),
    help="Profile functions and coroutines of the workers by this clock. With trivial tasks, this "
    "takes 3 times the CPU time by the wall clock, 6 times by the cpu clock.",
)
@click.option(
    "--darshan",
    "darshan_library",
    metavar="[=LIB]",
    help="Load Darshan into the workers: the library LIB, or one that is found.",
)
@click.option(
    "--stream",
    metavar="URL",
    help="Send all rows to a broker while they are recorded: kafka://HOST/TOPIC, redis://HOST, "
    "mofka:GROUPFILE or file:PATH.",
)
@click.option("--report", is_flag=True, help="Also write the run's page, beside its folder.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the run's folder.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
@click.pass_context
def command(  # noqa: PLR0913
    ctx: click.Context,
    /,
    command_line: tuple[str, ...],
    *,
    module: bool,
    no_code: bool,
    no_paths: bool,
    no_hosts: bool,
    leave_out: str | None,
    no_compact: bool,
    quiet: bool,
    report: bool,
    tags: tuple[str, ...],
    **settings: Any,
) -> None:
    """Run an unchanged script, and record every Dask cluster and client that it uses.

    The exit status is the script's. dask-strata's own messages go to standard error.

    \b
    Examples:
      dask-strata record pipeline.py --input data/
      dask-strata record -o runs/ -m mypackage.pipeline --fast
      dask-strata record --tag before --tag size=big pipeline.py
      dask-strata record --yappi cpu pipeline.py
      dask-strata record --stream file:rows.jsonl pipeline.py
      dask-strata record --darshan=/opt/darshan/lib/libdarshan.so pipeline.py
    """
    named = (("code", no_code), ("paths", no_paths), ("hosts", no_hosts))
    names = [name for name, is_out in named if is_out]
    if names or leave_out:
        # The flags add to the configuration's classes; --leave-out replaces these.
        others = read_settings().leave_out if leave_out is None else (leave_out,)
        settings["leave_out"] = ",".join([*names, *others])
    if tags:
        settings["tags"] = tags
    if no_compact:
        settings["compact"] = False
    # Arguments behind SCRIPT or MODULE belong to it. The option -m is therefore a flag: with a
    # value, click would read the options behind the module as options of `record`.
    name, arguments = (command_line[0], command_line[1:]) if command_line else (None, ())
    target = (name, list(arguments)) if module else (None, list(command_line))
    ctx.exit(record_command(*target, quiet=quiet, report=report, **settings))

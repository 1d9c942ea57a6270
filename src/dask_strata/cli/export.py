"""``dask-strata export``: a run in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dask_strata.cli.run_names import run_argument
from dask_strata.errors import UsageError, suggestion
from dask_strata.export.export import Exported, export
from dask_strata.export.registry import exporter, exporters, names
from dask_strata.report.progress import rows_of
from dask_strata.report.words import count, size, visible
from dask_strata.run import open_run

#: Longest note on the screen; the output has the whole one.
_NOTE = 300


class _Formats(click.Command):
    """A command whose help lists the formats and their options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the formats below the options."""
        found = exporters()
        formats = [(name, each.summary) for name, each in found.items()]
        options = [
            (f"{name} --with {option.name}", option.help)
            for name, each in found.items()
            for option in each.options
        ]
        for title, lines in (("Formats", formats), ("Options of formats", options)):
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
        super().format_epilog(ctx, formatter)


@click.command("export", cls=_Formats)
@run_argument
@click.option(
    "--to",
    metavar="FORMAT",
    required=True,
    help="The format, see below.",
    shell_complete=lambda *given: [name for name in names() if name.startswith(given[-1])],
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="File or folder to write.  [default: name of the run, in the current folder]",
)
@click.option(
    "--with",
    "options",
    metavar="OPTION",
    multiple=True,
    help="An option of the format, see below; can be repeated.",
)
@click.option("--license", "license_", metavar="URL", help="ro-crate: the license of the crate.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="otlp: a header of requests to a URL; can be repeated.",
)
@click.option("--no-code", is_flag=True, help="Leave out source code.")
@click.option("--no-paths", is_flag=True, help="Replace paths by hashes.")
@click.option("--no-hosts", is_flag=True, help="Replace host names and addresses by hashes.")
@click.option("--client", metavar="CLIENT", help="Only the tasks of this client.")
@click.option("--no-align", is_flag=True, help="Leave times on the clocks of their processes.")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    to: str,
    output: str | None,
    options: tuple[str, ...],
    license_: str | None,
    headers: tuple[str, ...],
    no_code: bool,  # noqa: FBT001
    no_paths: bool,  # noqa: FBT001
    no_hosts: bool,  # noqa: FBT001
    client: str | None,
    no_align: bool,  # noqa: FBT001
) -> None:
    """Write a run in the format of another tool.

    The output appears when it is complete. What it lacks, leaves out or aggregates is printed, and
    is in the output, too. The run is not changed.

    \b
    Examples:
      dask-strata export RUN --to perfetto -o run.pftrace
      dask-strata export RUN --to parquet -o tables/
      dask-strata export RUN --to ro-crate -o crate/ --no-hosts
    """
    if to not in names():
        raise UsageError(
            f"There is no format {to!r}.",
            hint=f"{suggestion(to, names())}Choose one of: {', '.join(names())}",
        )
    opened = open_run(run, align=not no_align, client=client)
    name = opened.path.resolve().name
    target = output or f"{name}{exporter(to).output(options)[0] or f'-{to}'}"
    values: dict[str, Any] = {} if license_ is None else {"license": license_}
    if headers:
        values["headers"] = "\n".join(headers)
    left_out = {"code": no_code, "paths": no_paths, "hosts": no_hosts}
    with rows_of(f"{to}: {Path(target).name}") as progress:
        done = export(
            opened,
            to,
            target,
            options=options,
            values=values,
            leave_out=[each for each, chosen in left_out.items() if chosen],
            progress=progress,
        )
    _print(done)


def _print(done: Exported) -> None:
    parts = [] if done.size_bytes is None else [size(done.size_bytes)]
    parts += [f"{n:,} {_singular(what) if n == 1 else what}" for what, n in done.counts.items()]
    click.echo(f"{visible(done.path)}  {', '.join(parts) or count(0, 'row')}")
    for note in done.notes:
        text = note if len(note) <= _NOTE else f"{note[: _NOTE - 1]}…"
        click.echo(f"note: {visible(text)}", err=True)


def _singular(things: str) -> str:
    """Return the singular of a noun that a format counts.

    >>> [_singular(each) for each in ("activities", "prefixes", "tasks", "series")]
    ['activity', 'prefix', 'task', 'series']
    """
    if things.endswith("series") or " of " in things:
        return things
    for end, one in (("ies", "y"), ("xes", "x"), ("s", "")):
        if things.endswith(end):
            return things.removesuffix(end) + one
    return things

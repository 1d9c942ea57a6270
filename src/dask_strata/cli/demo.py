"""``dask-strata demo``: record the image-processing example."""

from __future__ import annotations

import click

from dask_strata.cli.recording import record_command

_EXAMPLE = "dask_strata.examples.image_processing"


@click.command("demo", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o",
    "--output",
    "runs",
    metavar="RUNS",
    help="Folder to create the run in.  [default: runs]",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, runs: str | None, options: tuple[str, ...]) -> None:
    """Record an image-processing pipeline on a small local cluster, and write its page.

    The example creates its own images. Other options are passed on to it: see
    `dask-strata demo -- --help`.

    \b
    Example:
      dask-strata demo
    """
    ctx.exit(record_command(_EXAMPLE, list(options), report=True, runs=runs, name="demo"))

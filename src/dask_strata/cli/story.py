"""``dask-strata story``: everything about one task."""

from __future__ import annotations

import click

from dask_strata.analysis.story import as_json, story
from dask_strata.report.rows import console
from dask_strata.report.story import print_story
from dask_strata.run import open_run


@click.command("story")
@click.argument("run")
@click.argument("key")
@click.option(
    "--key-type", help="Type of the key (str, tuple, int, …), where two keys have the same text."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(run: str, key: str, key_type: str | None, form: str) -> None:
    """Tell everything about one task, in time order, from all layers.

    \b
    Example:
      dask-strata story RUN "('sum-aggregate-0f3c', 0)"
    """
    told = story(open_run(run).task(key, key_type))
    if form == "json":
        click.echo(as_json(told))
    else:
        print_story(told, console())

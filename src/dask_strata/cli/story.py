"""``dask-strata story``: all events of one task."""

from __future__ import annotations

import click

from dask_strata.analysis.story import story as story_of
from dask_strata.cli.completion import complete_key
from dask_strata.cli.run_names import run_argument
from dask_strata.report.rows import print_json
from dask_strata.report.story import print_story, story_json
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("story")
@run_argument
@click.argument("key", shell_complete=complete_key)
@click.option(
    "--key-type", help="Type of the key (str, tuple, int, …), where two keys have the same text."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(run: str, key: str, key_type: str | None, form: str) -> None:
    """Show all events of one task in time order, from the client to its worker thread.

    \b
    Example:
      dask-strata story RUN "('sum-aggregate-0f3c', 0)"
    """
    story = story_of(open_run(run).task(key, key_type))
    if form == "json":
        print_json(story_json(story))
    else:
        print_story(story, console())

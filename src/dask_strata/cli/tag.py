"""``dask-strata tag``: tags and a note of a run, kept beside its record."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dask_strata.analysis.list import list_run
from dask_strata.cli.local import require_folder
from dask_strata.cli.run_names import run_argument
from dask_strata.report.words import visible
from dask_strata.store.manifest import Manifest
from dask_strata.store.summaries.notes import change_notes


@click.command("tag")
@run_argument
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove a tag; can be repeated.")
@click.option("--note", help="Set the note of the run; an empty text removes it.")
def command(run: str, tags: tuple[str, ...], remove: tuple[str, ...], note: str | None) -> None:
    """Add tags to a run, remove them, set its note; without any of these, show them.

    A tag is a word, or a pair such as size=big. Tags and the note are in notes.json in the run's
    folder, beside the record, which stays as it is. `list`, `serve` and `compare --by tag` count
    them together with the tags of `record --tag`, which cannot be removed.

    \b
    Examples:
      dask-strata tag latest baseline size=big
      dask-strata tag runs/2026-… --remove baseline --note "node 7 was slow"
    """
    # The current folder has a name, too.
    folder = Path(os.path.abspath(require_folder(run, "tag a run")))
    Manifest.read(folder)
    notes = change_notes(folder, add=tags, remove=remove, note=note)
    row = list_run(folder)
    click.echo(f"tags  {visible(', '.join(row.get('tags') or notes.tags) or 'none')}")
    if notes.note:
        lines = visible(notes.note, keep_lines=True).splitlines()
        click.echo("note  " + "\n      ".join(lines))

"""``dask-strata open``: the page of a run in a browser."""

from __future__ import annotations

import os
import webbrowser

import click

from dask_strata.cli.run_names import LATEST, RunName
from dask_strata.report.page.page import write_page
from dask_strata.report.words import visible
from dask_strata.run import open_run
from dask_strata.store.copies.mirror import cache_folder

#: Folder for pages beside that of copies of runs; a page is only for its user.
_PAGES = "pages"


@click.command("open")
@click.argument("run", type=RunName(), default=LATEST)
@click.option("--print", "only_print", is_flag=True, help="Only print the page's file.")
def command(run: str, only_print: bool) -> None:  # noqa: FBT001
    """Open the page of a run in the browser; without RUN that of the newest one.

    The page is written to the cache folder of the user. The variable BROWSER selects a browser.

    \b
    Examples:
      dask-strata open
      dask-strata open 2
    """
    opened = open_run(run)
    folder = cache_folder().with_name(_PAGES)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    page = folder / f"{opened.path.resolve().name}.html"
    write_page(opened, page)
    click.echo(visible(os.fspath(page)))
    if not only_print and not webbrowser.open(page.as_uri()):
        click.echo(
            "No browser can be opened here. Open the file, or use an SSH tunnel: "
            "dask-strata serve --help",
            err=True,
        )

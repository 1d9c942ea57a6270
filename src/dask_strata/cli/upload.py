"""``dask-strata upload``: upload a run to a URL, or finish an interrupted upload."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dask_strata.cli.local import require_folder
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.uploading import finish_upload
from dask_strata.errors import NotARunError, UsageError
from dask_strata.report.words import count, size, visible
from dask_strata.store.copies.place import is_url, shown
from dask_strata.store.copies.upload import noted_destination

#: Longest wait for processes that still write. On another host, one that wrote nothing for 60 s
#: counts as ended.
_WAIT_SECONDS = 75


@click.command("upload")
@run_argument
@click.argument("runs", metavar="[URL]", required=False)
def command(run: str, runs: str | None) -> None:
    """Upload a run's folder to a URL of runs, such as s3://bucket/runs.

    Without a URL, finish the upload of a run that was recorded to one, and remove the local folder
    in which it was kept. The command can be interrupted and repeated: it uploads only missing
    files, and compares the sizes of all files at its end.

    \b
    Examples:
      dask-strata upload runs/2026-11-21T12-00-00-pipeline-0a1b2c3d s3://bucket/runs
      dask-strata upload /tmp/dask-strata-x1y2/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    path = Path(os.path.abspath(run))  # the current folder has a name, too
    require_folder(str(path), "upload a run")
    if not path.is_dir():
        raise NotARunError(f"No such folder: {path}", hint="List runs with: dask-strata list")
    noted = noted_destination(path)
    if runs is None and noted is None:
        raise UsageError(
            f"{path} was not recorded to a URL.",
            hint=f"Name one: dask-strata upload {path} s3://bucket/runs",
        )
    if runs is not None and not is_url(runs):
        raise UsageError(
            f"{runs} is not a URL.", hint="Example: s3://bucket/runs. Copy a folder with: cp -r"
        )
    url = str(noted) if runs is None else f"{runs.rstrip('/')}/{path.name}"
    done = finish_upload(path, url, _WAIT_SECONDS)
    files = f"{count(done.files, 'file')}, {size(done.size_bytes)}"
    click.echo(f"{visible(shown(url))}: {files}, {done.uploaded:,} of them uploaded now")

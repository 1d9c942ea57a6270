"""``dask-strata show``: the summary of a run."""

from __future__ import annotations

import click

from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.cli.run_names import run_argument
from dask_strata.errors import UsageError
from dask_strata.report.follow import follow as follow_run
from dask_strata.report.rows import print_json
from dask_strata.report.summary import print_summary, summary_json
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("show")
@run_argument
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--client", help="Only tasks of this client: its id, the start of its id, or its script."
)
@click.option("--follow", is_flag=True, help="Update until the recording ends.")
def command(run: str, form: str, as_json: bool, client: str | None, follow: bool) -> None:  # noqa: FBT001
    """Show how a run ended, why it took so long, and what to do.

    Of a run that is being recorded, also show stuck tasks and workers: tasks that run far longer
    than others of their prefix, tasks that wait for a result that nobody computes, and workers
    that do not answer.

    \b
    Examples:
      dask-strata show runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
      dask-strata show --client pipeline.py runs/2026-11-21T12-00-00-scheduler-0a1b2c3d
      dask-strata show --json runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
      dask-strata show --follow runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    as_json = as_json or form == "json"
    if follow and as_json:
        raise UsageError("--follow needs --format text.", hint="Omit --follow, --format or --json.")
    opened = open_run(run, client=client)
    if follow:
        follow_run(opened, console())
        return
    summary = summary_of(opened)
    stuck = stuck_of(opened, summary.outcome)
    if as_json:
        print_json(summary_json(summary, stuck))
    else:
        print_summary(summary, console(), stuck)

"""``dask-strata compact``: convert the record to Parquet."""

from __future__ import annotations

import click

from dask_strata.cli.local import require_folder
from dask_strata.report.words import count, size, visible
from dask_strata.store.compact import compact


@click.command("compact")
@click.argument("run")
def command(run: str) -> None:
    """Write the recorded tables as Parquet files, then delete the segments that they contain.

    The command can be interrupted and repeated. It deletes a segment only after it has read the
    Parquet file back and compared it.

    \b
    Example:
      dask-strata compact runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    done = compact(require_folder(run, "compact a run"))
    merged = [size(done.segment_bytes) + " of segments"] if done.segment_bytes else []
    if done.additions:
        merged.append(count(done.additions, "addition"))
    folder = visible(run)
    parquet = f"{size(done.parquet_bytes)} of Parquet in {folder}/parquet"
    if merged:
        click.echo(f"{count(done.rows, 'row')}: {' and '.join(merged)}, now {parquet}")
    else:
        click.echo(f"Already compact: {parquet}")
    if done.segments_kept:
        click.echo(f"{count(done.segments_kept, 'segment')} kept, as processes still write them.")
    if done.additions_kept:
        kept = count(done.additions_kept, "addition")
        click.echo(f"{kept} damaged, kept in {folder}/additions: see dask-strata check {folder}")

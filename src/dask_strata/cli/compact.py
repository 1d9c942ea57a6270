"""``dask-strata compact``: convert the record to Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.analysis.overview.stored import store_summary
from dask_strata.cli.local import require_folder
from dask_strata.cli.run_names import run_argument
from dask_strata.report.progress import working
from dask_strata.report.words import count, size, visible
from dask_strata.run.finalise import finalise
from dask_strata.store.compact import Compaction
from dask_strata.store.finalise.spool import KEYS_PER_BUCKET


@click.command("compact")
@run_argument
@click.option(
    "--scheduler",
    "address",
    metavar="ADDRESS",
    help="Compute derived tables on a Dask cluster: address of its scheduler or scheduler file.",
)
@click.option(
    "--keys-per-bucket",
    type=click.IntRange(1),
    default=KEYS_PER_BUCKET,
    show_default=True,
    help="Keys whose rows are computed at a time; fewer need less memory, and are more tasks.",
)
def command(run: str, address: str | None, keys_per_bucket: int) -> None:
    """Write all tables as Parquet files, then delete the segments that these contain.

    Files that were added with `dask-strata import --into` are merged. The command can be
    interrupted and repeated. It deletes a segment only after it has read the
    Parquet file back and compared it.

    With --scheduler, workers of a Dask cluster compute the derived tables: those of one bucket of
    keys are a task. The workers need this version of dask-strata, and see the folder at the same
    path. The result is the same; if it fails, the run is unchanged.

    \b
    Examples:
      dask-strata compact runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
      dask-strata compact RUN --scheduler tcp://10.0.0.1:8786
    """
    path = require_folder(run, "compact a run")
    done = _compact(path, address, keys_per_bucket)
    store_summary(path)
    merged = [size(done.segment_bytes) + " of segments"] if done.segment_bytes else []
    if done.imported_bytes:
        merged.append(size(done.imported_bytes) + " of imported Parquet")
    if done.additions:
        merged.append(count(done.additions, "addition"))
    folder = visible(run.rstrip("/") or run)
    parquet = f"{size(done.parquet_bytes)} of Parquet in {folder}/parquet"
    if merged:
        click.echo(f"{count(done.rows, 'row')}: {' and '.join(merged)}, now {parquet}")
    else:
        click.echo(f"Already compact: {parquet}")
    if done.segments_kept:
        click.echo(f"{count(done.segments_kept, 'segment')} kept, as processes still write them.")
    if done.problem:
        click.echo(f"Without derived tables: {visible(done.problem)}")
    if done.additions_kept:
        kept = count(done.additions_kept, "addition")
        click.echo(f"{kept} damaged, kept in {folder}/additions: see dask-strata check {folder}")


def _compact(folder: Path, address: str | None, keys_per_bucket: int) -> Compaction:
    with working("compact") as progress:
        if address is None:
            return finalise(folder, progress, keys_per_bucket)
        from dask_strata.cluster.connect import connected
        from dask_strata.cluster.finalise import finalise_on

        with connected(address) as client:
            return finalise_on(client, folder, progress, keys_per_bucket)

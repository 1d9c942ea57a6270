"""``dask-strata serve``: the server for the runs of a folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dask_strata.errors import NotARunError, UsageError
from dask_strata.report.words import count
from dask_strata.store.reader import find_runs

_VARIABLE = "DASK_STRATA_TOKEN"


@click.command("serve")
@click.argument("runs", default="runs", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=8788, show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 for all interfaces.",
)
@click.option(
    "--token",
    envvar=_VARIABLE,
    show_envvar=True,
    help="Secret that a browser must send. Required if other machines can reach the server.",
)
def command(runs: Path, port: int, host: str, token: str | None) -> None:
    """Show the runs in a folder (by default: runs) in a browser, also while they are recorded.

    The server is read-only. By default only this machine can reach it. Port 0 selects a free port.
    Ctrl-C stops the server.

    \b
    Examples:
      dask-strata serve runs/
      DASK_STRATA_TOKEN=$(openssl rand -hex 16) dask-strata serve runs/ --host 0.0.0.0
    """
    from dask_strata.server.app import is_loopback, serve
    from dask_strata.server.run_cache import RunCache

    if not runs.is_dir():
        raise NotARunError(f"No such folder: {runs}", hint="Record a run: dask-strata demo")
    if not is_loopback(host) and not token:
        raise UsageError(
            f"Other machines can reach a server at {host}: it needs a token.",
            hint=f"Set {_VARIABLE} to a secret, or omit --host and use an SSH tunnel.",
        )

    def started(bound_port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        secret = f"?token={token}" if token else ""
        n = count(sum(1 for _ in find_runs(runs)), "run")
        click.echo(f"{n} at http://{shown}:{bound_port}/{secret}", err=False)
        click.echo("Ctrl-C stops the server.", err=True)

    try:
        serve(RunCache(runs), host, port, token, started)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}.",
            hint="Use another port; --port 0 selects a free one.",
        ) from error

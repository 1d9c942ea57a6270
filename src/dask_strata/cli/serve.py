"""``dask-strata serve``: the history server."""

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
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 for all."
)
@click.option(
    "--token",
    envvar=_VARIABLE,
    show_envvar=True,
    help="What a browser must know. Needed where others can reach the server.",
)
def command(runs: Path, port: int, host: str, token: str | None) -> None:
    """Show the runs in a folder (by default: runs) in the browser, those being recorded too.

    Nothing can be changed through it. Only this machine can reach it unless told otherwise;
    port 0 takes any that is free. Ctrl-C ends it.

    \b
    Examples:
      dask-strata serve runs/
      DASK_STRATA_TOKEN=$(openssl rand -hex 16) dask-strata serve runs/ --host 0.0.0.0
    """
    from dask_strata.server.app import is_loopback, serve
    from dask_strata.server.run_cache import RunCache

    if not runs.is_dir():
        raise NotARunError(f"{runs} is no folder.", hint="Record something: dask-strata demo")
    if not is_loopback(host) and not token:
        raise UsageError(
            f"Others can reach a server at {host}: it needs a token.",
            hint=f"Set {_VARIABLE} to a secret, or leave --host out and use an SSH tunnel.",
        )

    def started(taken: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        secret = f"?token={token}" if token else ""
        n = count(sum(1 for _ in find_runs(runs)), "run")
        click.echo(f"{n} at http://{shown}:{taken}/{secret}", err=False)
        click.echo("Ctrl-C ends it.", err=True)

    try:
        serve(RunCache(runs), host, port, token, started)
    except OSError as error:
        raise UsageError(
            f"{host} port {port} cannot be listened at: {os.strerror(error.errno or 0)}.",
            hint="Another one: --port 0 takes any that is free.",
        ) from error

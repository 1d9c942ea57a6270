"""``dask-strata serve``: the server for the runs of a folder."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import click
from click.core import ParameterSource

from dask_strata.cli.run_names import runs_argument
from dask_strata.errors import NotARunError, UsageError
from dask_strata.report.words import count
from dask_strata.store.copies.place import is_url, local_path
from dask_strata.store.zipped.copy import is_bundle

_VARIABLE = "DASK_STRATA_TOKEN"

#: Length of a random token, in bytes.
_TOKEN_BYTES = 24


@click.command("serve")
@runs_argument
@click.option("--port", type=click.IntRange(0, 65535), default=8788, show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 for all interfaces.",
)
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    help="Listen on a Unix socket instead, which only you can connect to; by default it needs no "
    "token.",
)
@click.option(
    "--token",
    envvar=_VARIABLE,
    show_envvar=True,
    help="Secret that a browser must send; by default a random one, in the printed address.",
)
@click.option("--no-token", is_flag=True, help="Let every user of this machine read the runs.")
@click.option(
    "--sql-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30,
    show_default=True,
    help="Time limit of a query in SQL.",
)
@click.option(
    "--open-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300,
    show_default=True,
    help="Time limit for opening a run, and the tables that a query names, before the query.",
)
@click.pass_context
def command(  # noqa: PLR0913
    context: click.Context,
    /,
    runs: str,
    *,
    port: int,
    host: str,
    path: Path | None,
    token: str | None,
    no_token: bool,
    sql_seconds: float,
    open_seconds: float,
) -> None:
    """Show the runs in a folder in a browser, also while they are recorded.

    RUNS can be a URL; by default it is the setting `runs`, or the folder runs.

    The server is read-only. By default only this machine can reach it, and only a browser that
    opens the printed address, or a script that sends the header `Authorization: token TOKEN`, can
    read the runs. Port 0 selects a free port. Ctrl-C stops the server.

    \b
    Examples:
      dask-strata serve runs/
      dask-strata serve s3://bucket/runs
      dask-strata serve runs/ --socket ~/.dask-strata/serve.sock
      DASK_STRATA_TOKEN=$(openssl rand -hex 16) dask-strata serve runs/ --host 0.0.0.0
    """
    from dask_strata.server.app import Access, is_loopback, serve
    from dask_strata.server.listen import listen, listen_on_path
    from dask_strata.server.run_cache import RunCache

    place = local_path(runs)
    if not is_url(runs) and not (place.is_dir() or is_bundle(place)):
        raise NotARunError(f"No such folder: {runs}", hint="Record a run: dask-strata demo")
    if path is not None and (_is_given(context, "host") or _is_given(context, "port")):
        raise UsageError("--socket excludes --host and --port.")
    if no_token and path is None and not is_loopback(host):
        raise UsageError(
            f"Other machines can reach a server at {host}: it needs a token.",
            hint="Omit --no-token, or omit --host and use an SSH tunnel.",
        )
    token = _token(context, token, no_token=no_token, needed=path is None)
    sockets = listen(host, port) if path is None else [listen_on_path(path)]
    secret = f"?token={quote(token, safe='')}" if token else ""

    cache = RunCache(runs)
    n = count(cache.count(), "run")

    def started() -> None:
        if path is None:
            shown = f"[{host}]" if ":" in host else host
            click.echo(f"{n} at http://{shown}:{sockets[0].getsockname()[1]}/{secret}")
        else:
            click.echo(f"{n} at the socket {path}")
            click.echo(
                f"From your own machine: ssh -L 8788:{path.absolute()} HOST, then open "
                f"http://localhost:8788/{secret}",
                err=True,
            )
        click.echo("Ctrl-C stops the server.", err=True)

    try:
        serve(
            cache,
            sockets,
            Access(host if path is None else None, token, sql_seconds, open_seconds),
            started,
        )
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink()


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _token(
    context: click.Context, token: str | None, *, no_token: bool, needed: bool
) -> str | None:
    """Return the token, a random one if one is needed; warn if others can read it or the runs."""
    if no_token and _is_given(context, "token"):
        raise UsageError("--no-token excludes --token.")
    if _is_given(context, "token"):
        click.echo(
            "Other users of this machine can read --token in the list of processes: "
            f"set {_VARIABLE} instead.",
            err=True,
        )
    if no_token and needed:
        click.echo("Every user of this machine can read these runs.", err=True)
    if no_token or not (token or needed):
        return None
    try:
        (token or "").encode()
    except UnicodeEncodeError:
        raise UsageError(
            "The token is not UTF-8: no browser can send it.", hint="Use ASCII characters."
        ) from None
    return token or secrets.token_urlsafe(_TOKEN_BYTES)

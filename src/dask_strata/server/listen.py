"""The sockets that the server listens on."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from tornado.netutil import bind_sockets

from dask_strata.errors import UsageError

#: Permissions of the socket, and of its folder if it is made.
_SOCKET_MODE = 0o600
_FOLDER_MODE = 0o700


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on a port.

    Parameters
    ----------
    host : str
        Name or address of the interface.
    port : int
        Port; 0 for a free one.

    Raises
    ------
    UsageError
        The port is in use or may not be used, or the host has no valid name.
    """
    try:
        return list(bind_sockets(port, host))
    except UnicodeError:
        raise UsageError(f"{host} is no name of a host.") from None
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}.",
            hint="Use another port; --port 0 selects a free one.",
        ) from error


def listen_on_path(path: Path) -> socket.socket:
    """Return a Unix socket that listens, and that only this user can connect to.

    A missing folder is made, for this user only. A socket that no process listens on is replaced.

    Parameters
    ----------
    path : Path
        Path of the socket.

    Raises
    ------
    UsageError
        The path is too long or in use, or others could replace the socket.
    """
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        folder = path.parent.stat()
        others_write = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if folder.st_uid not in (os.getuid(), 0) or (
            others_write and not folder.st_mode & stat.S_ISVTX
        ):
            raise UsageError(
                f"Other users could replace a socket in {path.parent}.",
                hint="Use a folder that only you can write to, for example in your home folder.",
            )
        if path.is_symlink() or path.exists():
            _remove_unused(path)
        # The permissions hold from the start: there is no moment at which others can connect.
        umask = os.umask(0o777 & ~_SOCKET_MODE)
        try:
            made = socket.socket(socket.AF_UNIX)
            made.bind(str(path))
        finally:
            os.umask(umask)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(
            f"Cannot listen on {path}: {reason}.", hint="Use another path, of at most 100 bytes."
        ) from error
    made.settimeout(0)
    made.listen(128)
    return made


def _remove_unused(path: Path) -> None:
    """Remove a socket that no process listens on. Raises UsageError for any other file."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise UsageError(f"{path} exists, and is not a socket.", hint="Use another path.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise UsageError(f"Another server listens on {path}.", hint="Use another path.")

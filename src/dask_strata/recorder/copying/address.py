"""Addresses of schedulers, as a user names them."""

from __future__ import annotations

import json
from pathlib import Path

from dask_strata.errors import UsageError

ADDRESS_HINT = "ADDRESS is that of the scheduler, as tcp://HOST:8786, or its scheduler file."


def scheduler_address(text: str) -> str:
    """Return the address of a scheduler, which may be in a scheduler file.

    Raises
    ------
    UsageError
        The text is neither.
    """
    from distributed.comm.addressing import parse_address
    from distributed.comm.registry import get_backend

    path = Path(text)
    if path.is_file():
        try:
            text = str(json.loads(path.read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a scheduler file.", hint=ADDRESS_HINT) from error
    try:
        scheme, location = parse_address(text)
        get_backend(scheme)
        known = ":" in location or scheme == "inproc"
    except (ValueError, TypeError):
        known = False
    if not known:
        raise UsageError(f"No such scheduler file, and not an address: {text}", hint=ADDRESS_HINT)
    return text

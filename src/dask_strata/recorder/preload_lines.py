"""Dask's log lines on the preload of dask-strata: at the level DEBUG instead of INFO.

Dask logs four lines for each preload of a server or client, by default on standard error. So a
client that closes quietly without dask-strata would not be quiet with it. Lines on other preloads
and errors are left alone. Dask logs one line before it imports this package; in a process's first
preload that line stays.
"""

from __future__ import annotations

import logging

_PRELOAD = "dask_strata"


def demote() -> None:
    """Demote the lines from now on in this process."""
    logging.getLogger("distributed.preloading").addFilter(_demote)


def _demote(record: logging.LogRecord) -> bool:
    if record.args == (_PRELOAD,) and record.levelno == logging.INFO:
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    return True

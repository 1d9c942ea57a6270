"""A flight recorder for Dask.distributed.

`record` records, `open_run` reads, `live` looks at a running cluster. The module is also a
Dask preload: see `dask_setup`. Importing it is cheap, because it is imported in every worker;
what is heavy is imported where it is used.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.api import record
    from dask_strata.errors import StrataError
    from dask_strata.flushing import flush
    from dask_strata.metrics import count, section, track_metrics
    from dask_strata.run import Run, Task, open_run
    from dask_strata.snapshot import Snapshot, live

__all__ = [
    "Run",
    "Snapshot",
    "StrataError",
    "Task",
    "count",
    "dask_setup",
    "dask_teardown",
    "flush",
    "live",
    "open_run",
    "record",
    "section",
    "track_metrics",
]

try:
    __version__ = version("dask-strata")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

_HOMES = {
    "Run": "run",
    "Task": "run",
    "open_run": "run",
    "record": "api",
    "Snapshot": "snapshot",
    "live": "snapshot",
    "StrataError": "errors",
    "flush": "flushing",
    "count": "metrics",
    "section": "metrics",
    "track_metrics": "metrics",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


async def dask_setup(server: Any) -> None:
    """Record the scheduler or client that Dask preloads this module into.

    Called by Dask for ``--preload dask_strata`` and the ``preload`` settings of its
    configuration. Workers and nannies need no preload: the scheduler sends them a plugin.
    """
    from dask_strata.recorder.session import setup

    await setup(server)


async def dask_teardown(server: Any) -> None:
    """Stop recording a client that closes; called by Dask."""
    from dask_strata.recorder.session import teardown

    await teardown(server)

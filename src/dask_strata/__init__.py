"""A flight recorder for Dask.distributed.

`record` records a cluster, `open_run` opens a recorded run, `compare` compares runs, `live` returns
the state of a running cluster. This module is also a Dask preload, see `dask_setup`, and an
extension of IPython, see `load_ipython_extension`. Heavy modules are imported on first use, because
every worker imports this one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if "distributed.preloading" in sys.modules:  # Dask may be about to preload this module
    from dask_strata.recorder import preload_lines

    preload_lines.demote()

if TYPE_CHECKING:
    from dask_strata import capture
    from dask_strata.api import Run, Task, compact, compare, doctor, open_run, record
    from dask_strata.errors import StrataError
    from dask_strata.flushing import flush
    from dask_strata.metrics import count, section, track_metrics
    from dask_strata.snapshot import Snapshot, live
    from dask_strata.stream.follow import follow

    __version__: str

__all__ = [
    "Run",
    "Snapshot",
    "StrataError",
    "Task",
    "__version__",
    "capture",
    "compact",
    "compare",
    "count",
    "dask_setup",
    "dask_teardown",
    "doctor",
    "flush",
    "follow",
    "live",
    "load_ipython_extension",
    "open_run",
    "record",
    "section",
    "track_metrics",
]


def __getattr__(name: str) -> Any:
    if name == "capture":
        import dask_strata.capture

        return dask_strata.capture
    if name == "__version__":
        from dask_strata.config import VERSION

        return VERSION
    if name in ("Run", "Task", "compact", "compare", "doctor", "open_run", "record"):
        from dask_strata import api

        return getattr(api, name)
    if name == "StrataError":
        from dask_strata.errors import StrataError

        return StrataError
    if name == "flush":
        from dask_strata.flushing import flush

        return flush
    if name in ("count", "section", "track_metrics"):
        from dask_strata import metrics

        return getattr(metrics, name)
    if name in ("Snapshot", "live"):
        from dask_strata import snapshot

        return getattr(snapshot, name)
    if name == "follow":
        from dask_strata.stream.follow import follow

        return follow
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Define ``%%strata``, which records one cell: for ``%load_ext dask_strata`` in IPython."""
    from dask_strata.cli.magic import load

    load(shell)


async def dask_setup(server: Any) -> None:
    """Record the scheduler or client that Dask preloads this module into.

    Dask calls this for ``--preload dask_strata`` and for the ``preload`` settings of its
    configuration. Workers and nannies need no preload: the scheduler sends them a plugin.
    """
    from dask_strata.recorder.session import setup

    await setup(server)


async def dask_teardown(server: Any) -> None:
    """Stop recording a client that closes; Dask calls this."""
    from dask_strata.recorder.session import teardown

    await teardown(server)

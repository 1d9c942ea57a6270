"""What interrupts the threads of a process: the garbage collector, and waits for the GIL."""

from __future__ import annotations

from typing import Any

from dask_strata.config import Settings
from dask_strata.recorder.interruptions.gc_pauses import GcPauses
from dask_strata.recorder.interruptions.gil_contention import GilContention


def interruption_sources(
    settings: Settings, run_id: str, server: Any = None, worker: str | None = None
) -> list[GcPauses | GilContention]:
    """Return the sources that the setting `interruptions` requests; they have started.

    Parameters
    ----------
    settings : Settings
        The settings of the recording.
    run_id : str
        Id of the run.
    server : distributed.Scheduler or distributed.Worker, optional
        The server, whose system monitor measures waits for the GIL; None for a client.
    worker : str, optional
        Address of the server, if it is a worker.
    """
    if not settings.interruptions:
        return []
    pauses = GcPauses(run_id, worker)
    return [pauses] if server is None else [pauses, GilContention(server, worker)]

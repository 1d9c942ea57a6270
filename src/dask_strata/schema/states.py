"""States of a task in Dask, on the scheduler and on workers."""

from __future__ import annotations

SCHEDULER_STATES = (
    "released",
    "waiting",
    "no-worker",
    "queued",
    "processing",
    "memory",
    "erred",
    "forgotten",
)

WORKER_STATES = (
    "released",
    "waiting",
    "constrained",
    "ready",
    "fetch",
    "flight",
    "missing",
    "executing",
    "long-running",
    "memory",
    "error",
    "cancelled",
    "resumed",
    "rescheduled",
    "forgotten",
)

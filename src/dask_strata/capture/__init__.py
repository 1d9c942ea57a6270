"""The objects of "DASK Metadata Capture", over any run: recorded, or imported from CSV.

They are views: a handler costs nothing until it is looked at, then one sort of all events
(ten bytes an event), and after that only what is looked at. Times are `datetime` with a
zone, in microseconds.

Examples
--------
>>> handler = TaskHandler(open_run("runs/2026-…"))           # doctest: +SKIP
>>> for task in handler.tasks:                               # doctest: +SKIP
...     print(task)
"""

from __future__ import annotations

from dask_strata.capture.events import (
    Event,
    EventSource,
    SchedulerEvent,
    WorkerEvent,
    WXferEvent,
)
from dask_strata.capture.handler import TaskHandler, Tasks
from dask_strata.capture.states import EventTypeEnum, TaskState, TransferTypeEnum
from dask_strata.capture.task import Task

__all__ = [
    "Event",
    "EventSource",
    "EventTypeEnum",
    "SchedulerEvent",
    "Task",
    "TaskHandler",
    "TaskState",
    "Tasks",
    "TransferTypeEnum",
    "WXferEvent",
    "WorkerEvent",
]

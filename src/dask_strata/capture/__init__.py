"""The objects of the older tool "DASK Metadata Capture", for recorded and for imported runs.

The objects are views. A handler costs nothing until its first use, which sorts all events once
(ten bytes per event). Events and tasks are then created when they are accessed. Times are
`datetime` objects with a zone, in microseconds.

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
from dask_strata.capture.states import EventTypeEnum, StimulusType, TaskState, TransferTypeEnum
from dask_strata.capture.task import Task

__all__ = [
    "Event",
    "EventSource",
    "EventTypeEnum",
    "SchedulerEvent",
    "StimulusType",
    "Task",
    "TaskHandler",
    "TaskState",
    "Tasks",
    "TransferTypeEnum",
    "WXferEvent",
    "WorkerEvent",
]

"""Names and columns of the files of the Mofka-Dask coupler."""

from __future__ import annotations

from dask_strata.importers.mofka.cells import Field

#: Accepted names of each file by role, the usual name first.
NAMES: dict[str, tuple[str, ...]] = {
    "worker_transfer": ("worker_transfer.csv",),
    "scheduler_transition": ("scheduler_transition.csv",),
    "worker_transition": ("worker_transition.csv",),
    "worker": ("worker.csv", "workers.csv"),
    "client": ("client.csv",),
    "graph": ("graph.csv",),
    "consumer": ("consumer.o",),
}

#: Files of a complete record; a missing file is a loss.
EXPECTED = (
    "scheduler_transition",
    "worker_transition",
    "worker_transfer",
    "worker",
    "client",
    "graph",
)

#: Names of the two ends of a transfer in the file, and in ``transfer_ends``.
TRANSFER_ENDS = {"incoming_transfer": "incoming", "outgoing_transfer": "outgoing"}

#: Columns of each file by role.
FIELDS: dict[str, tuple[Field, ...]] = {
    "scheduler_transition": (
        Field("key", "key", required=True),
        Field("thread", "int"),
        Field("worker", "text"),
        Field("prefix", "text"),
        Field("group", "text"),
        Field("start", "text", required=True),
        Field("finish", "text", required=True),
        Field("stimulus_id", "text"),
        Field("called_from", "text"),
        Field("begins", "time"),
        Field("ends", "time"),
        Field("duration", "number"),
        Field("size", "int"),
        Field("time", "time", required=True),
        Field("action", "text"),
    ),
    "worker_transition": (
        Field("key", "key", required=True),
        Field("start", "text", required=True),
        Field("finish", "text", required=True),
        Field("called_from", "text"),
        Field("time", "time", required=True),
        Field("action", "text"),
    ),
    "worker_transfer": (
        Field("start", "time", required=True),
        Field("stop", "time", required=True),
        Field("middle", "time"),
        Field("duration", "number"),
        Field("keys", "long", required=True),
        Field("total", "int"),
        Field("bandwidth", "number"),
        Field("compressed", "int"),
        Field("who", "text"),
        Field("type", "text", required=True),
        Field("called_from", "text"),
        Field("time", "time", required=True),
        Field("action", "text"),
    ),
    "worker": (
        Field("worker", "text"),
        Field("action", "text"),
        Field("stimulus_id", "text"),
        Field("time", "time", required=True),
    ),
    "client": (
        Field("client", "text"),
        Field("action", "text"),
        Field("time", "time", required=True),
    ),
    "graph": (
        Field("client", "text"),
        Field("keys", "long"),
        Field("dependencies", "long", required=True),
        Field("time", "time", required=True),
        Field("action", "text"),
    ),
}

"""Tables of what interrupted the threads of a process: the garbage collector, waits for the GIL."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, START, STOP, Table, col

INTERRUPTIONS = (
    Table(
        "gc_pauses",
        "collection of Python's garbage collector that took 10 ms or more, in a scheduler, worker "
        "or client",
        5,
        "system",
        "process",
        (
            START,
            STOP,
            col("worker", "text", "address of the worker; null in other processes"),
            col("generation", "int", "oldest generation that it collected; 2 is a full collection"),
            col("collected", "int", "objects that it freed"),
            col("uncollectable", "int", "objects that it found and could not free"),
            col("seconds", "seconds", "duration, with finalizers of the freed objects"),
            col("thread", "int", "identity of the thread that ran it; others waited for the GIL"),
            KEY,
            col("run_id", "int", "Dask's number of the attempt whose thread ran it"),
        ),
        prov="activity",
    ),
    Table(
        "gil_contention",
        "interval between two samples of Dask's system monitor, in a scheduler or worker that has "
        "the package gilknocker",
        5,
        "system",
        "process",
        (
            START,
            STOP,
            col("worker", "text", "address of the worker; null for the scheduler"),
            col(
                "contention",
                "float",
                "share of its samples in which gilknocker's thread waited for the GIL, 0 to 1",
            ),
            col(
                "seconds",
                "seconds",
                "contention × length of the interval; too high if one call held the GIL for more "
                "than 10 ms, as gilknocker samples a tenth of the time",
            ),
        ),
        prov="activity",
    ),
)

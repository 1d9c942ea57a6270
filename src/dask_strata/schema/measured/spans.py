"""Tables of spans, adaptive scaling, limits of workers' memory, and GPUs, and their summaries."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, TIME, WORKER, Table, col

#: Column of tables whose rows belong to tasks.
SPAN_NAME = col(
    "span",
    "text",
    "name of the span that it belongs to, see `spans`; null without one, in Dask's default span",
)

#: Sizes of a worker's memory from which Dask's memory management acts.
_LIMITS = (
    col("limit_bytes", "bytes", "memory limit of the worker; null without one"),
    col(
        "target_bytes",
        "bytes",
        "results in memory from which the worker spills; null where that is off",
    ),
    col(
        "spill_bytes",
        "bytes",
        "memory of the process from which the worker spills; null where that is off",
    ),
    col(
        "pause_bytes",
        "bytes",
        "memory of the process from which the worker starts no tasks; null where that is off",
    ),
    col(
        "terminate_bytes",
        "bytes",
        "memory of the process from which its nanny kills it; null without a nanny, or where that "
        "is off",
    ),
)

#: State of the cluster when Dask computed how many workers it needs.
_LOAD = (
    col("target_seconds", "seconds", "duration that Dask aims at, `target_duration`"),
    col(
        "occupancy_seconds",
        "seconds",
        "work that Dask expected all workers to have; null if its sum was not readable",
    ),
    col("processing", "int", "tasks assigned to workers"),
    col("queued", "int", "tasks queued on the scheduler"),
    col("no_worker", "int", "tasks that no worker could run"),
    col("n_workers", "int", "workers connected"),
    col("n_threads", "int", "their executor threads"),
    col("results_bytes", "bytes", "results that workers held"),
    col("memory_limit_bytes", "bytes", "sum of the workers' memory limits"),
)

_DECISION = (
    TIME,
    col("cluster", "text", "name of the cluster object", sensitivity="text"),
    col("status", "text", "up or down"),
    col("target", "int", "workers that the cluster should have, within minimum and maximum"),
    col("n_plan", "int", "workers that the cluster had planned before"),
    col("n_requested", "int", "workers that it had requested"),
    col("n_observed", "int", "workers that had connected"),
    col("minimum", "int", "least number of workers"),
    col("maximum", "int", "largest number of workers; null without one"),
    col("workers", "long", "names of the workers to close, as JSON", sensitivity="host"),
)

SPANS = (
    Table(
        "spans",
        "span that the user named with Dask's `span`, and that tasks or other spans belong to",
        2,
        "workflow system",
        "task graph",
        (
            TIME,
            col("span", "text", "Dask's id of the span"),
            col("name", "text", "its name: all tags, with ` / ` in between", sensitivity="text"),
            col("tags", "text", "all tags, from the outermost span, as JSON", sensitivity="text"),
            col("parent", "text", "id of the span around it; null without one"),
            col("enqueued", "time", "when it first appeared on the scheduler"),
        ),
        prov="activity",
    ),
    Table(
        "adaptive_log",
        "decision of adaptive scaling, as the cluster object made it",
        3,
        "workflow system",
        "scheduler",
        _DECISION,
        prov="activity",
    ),
    Table(
        "adaptive_targets",
        "number of workers that Dask computed for adaptive scaling: each change of it, and each "
        "that differs from the number connected",
        3,
        "workflow system",
        "scheduler",
        (
            TIME,
            col("target", "int", "workers needed, without regard to minimum and maximum"),
            col(
                "reason",
                "text",
                "memory (results fill over 60 % of the limits), work (that Dask expects, by "
                "target_seconds), idle (workers have nothing to do); null if as many are connected",
            ),
            *_LOAD,
        ),
        prov="activity",
    ),
    Table(
        "memory_limits",
        "worker: sizes of its memory from which Dask spills, pauses and kills it",
        4,
        "workflow system",
        "worker",
        (TIME, WORKER, *_LIMITS),
        prov="agent",
    ),
    Table(
        "gpu_samples",
        "sample of the GPU of a worker, by NVML: no rows without it",
        5,
        "system",
        "process",
        (
            TIME,
            WORKER,
            col("name", "text", "model of the GPU"),
            col("utilization", "float", "share of time in which a kernel ran on it", "percent"),
            col("used_bytes", "bytes", "its memory in use, by all processes"),
            col("total_bytes", "bytes", "its memory"),
        ),
    ),
)

SPANS_DERIVED = (
    Table(
        "adaptive_decisions",
        "decision of adaptive scaling, and why",
        3,
        "workflow system",
        "scheduler",
        (
            *_DECISION,
            col(
                "reason",
                "text",
                "minimum or maximum (that decided), or as in `adaptive_targets`; null if no target "
                "is on record",
            ),
            col("wanted", "int", "workers needed, without regard to minimum and maximum"),
            *_LOAD,
        ),
        prov="activity",
        derived=True,
    ),
    Table(
        "worker_memory",
        "process of a worker: its memory, against the limits of Dask's memory management",
        4,
        "workflow system",
        "worker",
        (
            WORKER,
            col("name", "text", "name of the worker"),
            col("process", "text", "its process, see `processes`"),
            *_LIMITS,
            col("peak_bytes", "bytes", "largest memory of the process in samples"),
            col("results_peak_bytes", "bytes", "largest size of results in memory in samples"),
            col("seconds", "seconds", "time from its first sample to its last"),
            col("above_target_seconds", "seconds", "time of results above target_bytes"),
            col("above_spill_seconds", "seconds", "time of the process above spill_bytes"),
            col("above_pause_seconds", "seconds", "time of the process above pause_bytes"),
            col("above_terminate_seconds", "seconds", "time of the process above terminate_bytes"),
        ),
        prov="agent",
        derived=True,
    ),
    Table(
        "gpu_attempts",
        "attempt on a worker with a GPU that NVML knows: the GPU meanwhile, by all tasks",
        5,
        "system",
        "process",
        (
            col("attempt", "int", "the attempt"),
            WORKER,
            START,
            STOP,
            col("n_samples", "int", "samples within the attempt"),
            col(
                "utilization",
                "float",
                "mean share of time in which a kernel ran on the GPU; null without a sample",
                "percent",
            ),
            col("peak_bytes", "bytes", "largest memory in use of the GPU; null without a sample"),
        ),
        prov="activity",
        derived=True,
    ),
)

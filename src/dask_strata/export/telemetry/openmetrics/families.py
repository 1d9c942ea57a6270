"""The metrics: which rows each of them counts or sums, and by which labels."""

from __future__ import annotations

from dataclasses import dataclass

#: Labels of prefixes and workers beyond the bounds.
OTHER_PREFIXES = "(other prefixes)"
OTHER_WORKERS = "(other workers)"

#: Longest value of a label, in characters.
_LONGEST = 120

_PREFIX = f"""
    case when {{0}} is null then '(unknown)'
         when left({{0}}, {_LONGEST}) in (select unnest($1::varchar[])) then left({{0}}, {_LONGEST})
         else '{OTHER_PREFIXES}' end
"""

_WORKER = f"""
    case when {{0}} is null then '{{1}}'
         when {{0}} in (select unnest($2::varchar[])) then {{0}} else '{OTHER_WORKERS}' end
"""

#: The most frequent prefixes, and workers in the order of their arrival.
PREFIXES = f"""
    select left(prefix, {_LONGEST}) as name, count(*) as n from attempts
    where prefix is not null group by 1 order by n desc, name
"""  # noqa: S608  no value of the record
WORKERS = """
    select worker as name, min(epoch_ns(start)) as start from (
        select worker, start from workers union all select worker, min(start) from attempts
        group by worker
    ) where worker is not null group by 1 order by start nulls last, name
"""


def _prefix(column: str = "prefix") -> str:
    return _PREFIX.format(column)


def _worker(column: str = "worker", unknown: str = "(unknown)") -> str:
    return _WORKER.format(column, unknown)


@dataclass(frozen=True)
class Part:
    """Some series of a metric: the rows of a table, by labels.

    Attributes
    ----------
    source : str
        SQL for the table.
    time : str
        SQL for the time of a row.
    value : str
        SQL for its value; rows without one are left out.
    labels : dict
        SQL for the value of each label.
    """

    source: str
    time: str
    value: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Family:
    """A metric.

    Attributes
    ----------
    name : str
        Its name without a suffix.
    kind : str
        counter or gauge.
    unit : str
        The end of its name, if it has a unit.
    help : str
        One sentence for users.
    parts : tuple of Part
        Its series.
    sums : bool
        Whether values are added up; otherwise the last one of each step counts.
    """

    name: str
    kind: str
    unit: str
    help: str
    parts: tuple[Part, ...]
    sums: bool = True


def _attempts(labels: dict[str, str], value: str = "1") -> Part:
    return Part("attempts", "stop", value, labels)


_PHASES = ("compute", "transfer", "deserialize", "disk")


def _phases(label: dict[str, str]) -> tuple[Part, ...]:
    return tuple(
        _attempts({**label, "phase": f"'{phase}'"}, f"{phase}_seconds") for phase in _PHASES
    )


_BY_PREFIX = {"prefix": _prefix()}
_BY_WORKER = {"worker": _worker()}
_OUTCOME = {"outcome": "coalesce(outcome, 'unknown')"}

#: What a worker reports of itself; what the scheduler sees of others.
_SAMPLES = """(
    from worker_samples where seen_by = 'worker'
    union all by name from worker_samples where seen_by is distinct from 'worker'
        and worker not in (select worker from worker_samples where seen_by = 'worker')
)"""

_CPU = """(
    select s.time, s.cpu_seconds, p.address as worker
    from process_samples s join processes p using (process) where p.role = 'worker'
)"""


def _samples(value: str, **labels: str) -> Part:
    return Part(_SAMPLES, "time", value, {"worker": _worker(), **labels})


COUNTERS = (
    Family(
        "dask_strata_attempts", "counter", "",
        "Attempts that ended, by prefix and outcome.",
        (_attempts(_BY_PREFIX | _OUTCOME),),
    ),
    Family(
        "dask_strata_phase_seconds", "counter", "seconds",
        "Seconds of the phases of attempts that ended, by prefix.",
        _phases(_BY_PREFIX),
    ),
    Family(
        "dask_strata_task_cpu_seconds", "counter", "seconds",
        "CPU seconds of the threads of attempts that ended, by prefix.",
        (_attempts(_BY_PREFIX, "cpu_seconds"),),
    ),
    Family(
        "dask_strata_result_bytes", "counter", "bytes",
        "Sizes of the results of attempts that ended, by prefix.",
        (_attempts(_BY_PREFIX, "case when outcome = 'memory' then nbytes end"),),
    ),
    Family(
        "dask_strata_worker_attempts", "counter", "",
        "Attempts that ended, by worker and outcome.",
        (_attempts(_BY_WORKER | _OUTCOME),),
    ),
    Family(
        "dask_strata_worker_phase_seconds", "counter", "seconds",
        "Seconds of the phases of attempts that ended, by worker.",
        _phases(_BY_WORKER),
    ),
    Family(
        "dask_strata_received_bytes", "counter", "bytes",
        "Bytes of results that a worker received from others.",
        (Part("transfers", "stop", "total_bytes",
              {"worker": _worker("destination", "(client)")}),),
    ),
    Family(
        "dask_strata_sent_bytes", "counter", "bytes",
        "Bytes of results that a worker sent to others.",
        (Part("transfers", "stop", "total_bytes", {"worker": _worker("source")}),),
    ),
    Family(
        "dask_strata_spilled_bytes", "counter", "bytes",
        "Bytes of results that a worker wrote to disk (spill) and read again (unspill).",
        (Part("spills", "time", "nbytes",
              {"worker": _worker(), "action": "coalesce(action, 'unknown')"}),),
    ),
    Family(
        "dask_strata_worker_cpu_seconds", "counter", "seconds",
        "CPU seconds of the process of a worker since it began.",
        (Part(_CPU, "time", "cpu_seconds", _BY_WORKER),),
        sums=False,
    ),
)  # fmt: skip

GAUGES = (
    Family(
        "dask_strata_worker_memory_bytes", "gauge", "bytes",
        "Memory of a worker: resident, results (managed), the rest (unmanaged), and on disk.",
        tuple(
            _samples(f"{kind}_bytes", kind=f"'{kind}'")
            for kind in ("rss", "managed", "unmanaged", "spilled")
        ),
        sums=False,
    ),
    Family(
        "dask_strata_worker_cpu_ratio", "gauge", "ratio",
        "CPU use of the process of a worker; 1 is one core.",
        (_samples("cpu_percent / 100"),),
        sums=False,
    ),
    Family(
        "dask_strata_worker_tasks", "gauge", "",
        "Tasks of a worker: executing, ready to execute, and results in memory.",
        tuple(
            _samples(column, state=f"'{column}'")
            for column in ("executing", "ready", "in_memory")
        ),
        sums=False,
    ),
)  # fmt: skip

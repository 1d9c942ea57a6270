"""Processes of a run as OTLP's resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_strata.export.json_text import dumps
from dask_strata.export.telemetry.otlp.ids import attributes

if TYPE_CHECKING:
    from dask_strata.run import Run

_PROCESSES = """
    select role, address, name, process, host, pid, nthreads, memory_limit_bytes, python,
           distributed
    from processes where role in ('scheduler', 'worker', 'imported') order by process
"""

_WORKERS = """
    select worker, any_value(name) as name, any_value(process) as process,
           any_value(host) as host, any_value(nthreads) as nthreads
    from workers where worker is not null group by worker order by worker
"""


class Resources:
    """The resource of each process, as the start of the part of a request with its spans.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._run_id = run.manifest.run_id
        self._version = run.manifest.version
        processes = {row["process"]: row for row in run.rows(_PROCESSES)}
        by_role = {row["role"]: row for row in reversed(processes.values())}
        scheduler = by_role.get("scheduler", by_role.get("imported", {}))
        #: The part with spans of the scheduler: the run and its submissions.
        self.scheduler = self._head("dask-scheduler", scheduler)
        self._workers: dict[str | None, str] = {}
        for row in run.rows(_WORKERS):
            known = {name: value for name, value in row.items() if value is not None}
            facts = processes.get(row["process"], {}) | known
            self._workers[row["worker"]] = self._head("dask-worker", facts, row["worker"])

    def worker(self, address: str | None) -> str:
        """Return the start of the part with spans of a worker."""
        if address not in self._workers:
            self._workers[address] = self._head("dask-worker", {}, address)
        return self._workers[address]

    def _head(self, service: str, facts: dict[str, Any], address: str | None = None) -> str:
        resource = attributes(
            {
                "service.name": service,
                "service.instance.id": facts.get("process") or address,
                "host.name": facts.get("host"),
                "process.pid": facts.get("pid"),
                "process.runtime.version": facts.get("python"),
                "dask.address": address or facts.get("address"),
                "dask.name": facts.get("name"),
                "dask.threads": facts.get("nthreads"),
                "dask.memory_limit_bytes": facts.get("memory_limit_bytes"),
                "dask.distributed.version": facts.get("distributed"),
                "dask_strata.run_id": self._run_id,
            }
        )
        scope = dumps({"name": "dask-strata", "version": self._version})
        return (
            f'{{"resource":{{"attributes":{dumps(resource)}}},'
            f'"scopeSpans":[{{"scope":{scope},"spans":['
        )

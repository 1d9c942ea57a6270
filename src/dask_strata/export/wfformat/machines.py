"""The hosts of workers, as WfFormat describes machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.run import Run

_HOSTS = """
    select worker, any_value(host) as host from workers
    where worker is not null and host is not null group by worker order by worker
"""

_FACTS = """
    select p.host, j.name, min(j.value) as value
    from job j join processes p using (process)
    where p.host is not null and j.value is not null and j.name in (
        'os.name', 'os.kernel', 'os.architecture', 'memory.total', 'cpu.logical-cores',
        'cpu.max-khz', 'cpu.vendor')
    group by all order by all
"""

_SYSTEMS = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}


def hosts_of_workers(run: Run) -> dict[str, str]:
    """Return the name of the host of each worker of which it is known."""
    return {row["worker"]: row["host"] for row in run.rows(_HOSTS)}


def machines(run: Run, hosts: list[str]) -> list[dict[str, Any]]:
    """Return WfFormat's description of some hosts, by the facts on record."""
    facts: dict[str, dict[str, str]] = {}
    for row in run.rows(_FACTS):
        facts.setdefault(row["host"], {})[row["name"]] = row["value"]
    return [_machine(host, facts.get(host, {})) for host in hosts]


def _machine(host: str, facts: dict[str, str]) -> dict[str, Any]:
    khz = _positive(facts.get("cpu.max-khz"))
    cpu = {
        "coreCount": _positive(facts.get("cpu.logical-cores")),
        "speedInMHz": None if khz is None else khz // 1000 or None,
        "vendor": facts.get("cpu.vendor"),
    }
    described = {
        "system": _SYSTEMS.get(facts.get("os.name", "")),
        "architecture": facts.get("os.architecture"),
        "nodeName": host,
        "release": facts.get("os.kernel"),
        "memoryInBytes": _positive(facts.get("memory.total")),
        "cpu": {name: value for name, value in cpu.items() if value},
    }
    return {name: value for name, value in described.items() if value}


def _positive(text: str | None) -> int | None:
    """Return a recorded number; None if it is unknown, or left out."""
    if text is None or not text.isascii() or not text.isdecimal():
        return None
    return int(text[:18]) or None

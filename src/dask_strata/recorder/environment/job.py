"""The job layer: what started this process, on what machine, with which limits.

Each collector is a small function that yields facts; what cannot be known is not there. A
collector that breaks loses nothing of the others and leaves an ``error.<collector>`` fact.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.recorder.environment import batch_systems, devices, machine, process
from dask_strata.recorder.environment.host_view import Collector, Fact, HostView, failure
from dask_strata.recorder.pipeline.redact import is_secret_name, redact_text
from dask_strata.schema import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["COLLECTORS", "Fact", "job_facts"]

COLLECTORS: dict[str, Collector] = {
    **batch_systems.COLLECTORS,
    **machine.COLLECTORS,
    **devices.COLLECTORS,
    **process.COLLECTORS,
}


def job_facts(
    environ: Mapping[str, str] | None = None,
    *,
    proc: Path = Path("/proc"),
    sys_root: Path = Path("/sys"),
) -> list[Fact]:
    """Return what can be known about the job and the machine of this process; never raises.

    Parameters
    ----------
    environ
        Environment variables; those of this process by default.
    proc, sys_root
        Where the kernel shows processes and devices.

    Returns
    -------
    list of Fact
        In a fixed order; names may repeat, as with several batch_systems. Secrets are redacted.
    """
    place = HostView(dict(os.environ if environ is None else environ), proc, sys_root)
    found: list[Fact] = []
    for name, collector in COLLECTORS.items():
        found.extend(_clean(fact) for fact in _guarded(name, collector, place) if fact.value)
    return list(dict.fromkeys(found))


def _guarded(name: str, collector: Collector, place: HostView) -> Iterator[Fact]:
    try:
        yield from collector(place)
    except Exception as error:  # noqa: BLE001 - whatever broke here must not lose the others
        yield failure(name, error)


def _clean(fact: Fact) -> Fact:
    """Return a fact without secrets, whose text can be written as UTF-8."""
    variable = fact.source if fact.source.isidentifier() else ""  # else a path or command
    if is_secret_name(fact.name) or is_secret_name(variable):
        return fact._replace(value=REDACTED)
    return Fact(*(redact_text(text.encode("utf-8", "backslashreplace").decode()) for text in fact))

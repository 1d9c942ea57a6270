"""Facts about the job: launcher, machine, devices and limits of this process.

Each collector is a small function that yields facts; unknown facts are left out. A collector
that fails leaves a fact ``error.<collector>``, and the others continue.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.recorder.environment import batch_systems, devices, kubernetes, machine, process
from dask_strata.recorder.environment.host_view import Collector, Fact, HostView, failure
from dask_strata.recorder.pipeline.redact import is_secret_name, redact_text
from dask_strata.schema import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["COLLECTORS", "Fact", "job_facts"]

COLLECTORS: dict[str, Collector] = {
    **batch_systems.COLLECTORS,
    **kubernetes.COLLECTORS,
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
    """Return the facts about the job and the machine of this process; never raises.

    Parameters
    ----------
    environ : mapping, optional
        Environment variables; those of this process by default.
    proc, sys_root : Path, optional
        Folders in which the kernel lists processes and devices.

    Returns
    -------
    list of Fact
        In a fixed order; names may repeat, for example with two launchers. Secrets are redacted.
    """
    view = HostView(dict(os.environ if environ is None else environ), proc, sys_root)
    found: list[Fact] = []
    for name, collector in COLLECTORS.items():
        found.extend(_clean(fact) for fact in _guarded(name, collector, view) if fact.value)
    return list(dict.fromkeys(found))


def _guarded(name: str, collector: Collector, view: HostView) -> Iterator[Fact]:
    try:
        yield from collector(view)
    except Exception as error:  # noqa: BLE001 - one failed collector must not stop the others
        yield failure(name, error)


def _clean(fact: Fact) -> Fact:
    """Return a fact without secrets and without characters that UTF-8 cannot encode."""
    variable = fact.source if fact.source.isidentifier() else ""  # otherwise a path or a command
    if is_secret_name(fact.name) or is_secret_name(variable):
        return fact._replace(value=REDACTED)
    return Fact(*(redact_text(text.encode("utf-8", "backslashreplace").decode()) for text in fact))

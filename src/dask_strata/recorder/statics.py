"""The static facts of a process as rows: job, configuration, packages."""

from __future__ import annotations

import socket
from pathlib import Path

from dask_strata.recorder.engine import Engine


def host_id() -> str:
    """Return what is the same for all processes of one machine, and no other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def add_statics(engine: Engine, *, machine: bool) -> None:
    """Add what is known of this process and, if asked for, of its machine.

    Takes some tenths of a second: call it on the recorder's thread.
    """
    from dask_strata.recorder.job import job_facts
    from dask_strata.recorder.settings import effective_settings, installed_packages

    for fact in job_facts():
        engine.add("job", name=fact.name, value=fact.value, source=fact.source)
    if engine.settings.settings:
        for setting in effective_settings():
            engine.add("config", name=setting.name, value=setting.value, source=setting.source)
        for name, version in installed_packages():
            engine.add("packages", name=name, version=version)

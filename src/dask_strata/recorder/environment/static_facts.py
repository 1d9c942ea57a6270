"""The static facts of a process as rows: job, configuration, packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_strata.config import understood
from dask_strata.recorder.pipeline.anonymize import left_out
from dask_strata.recorder.pipeline.engine import Engine

#: Fact of a process: a setting of the scheduler's version that the process's does not know.
UNKNOWN_SETTING = "dask-strata.unknown-setting"

#: Fact of a process: what the settings leave out of its record.
LEFT_OUT_FACT = "dask-strata.left-out"


def add_statics(engine: Engine, spec: Mapping[str, Any] | None = None) -> None:
    """Add what is known of this process and its machine; on the recorder's thread.

    Parameters
    ----------
    engine : Engine
        The process's recorder.
    spec : mapping, optional
        What the scheduler's recorder asked for.
    """
    from dask_strata.recorder.environment.dask_config import effective_settings, installed_packages
    from dask_strata.recorder.environment.job import job_facts

    for fact in job_facts():
        engine.add("job", name=fact.name, value=fact.value, source=fact.source)
    for name in understood(spec["settings"])[1] if spec else ():
        engine.add("job", name=UNKNOWN_SETTING, value=name, source="scheduler")
    if names := left_out(engine.settings):
        engine.add("job", name=LEFT_OUT_FACT, value=", ".join(names), source="dask-strata")
    if engine.settings.settings:
        for setting in effective_settings():
            engine.add("config", name=setting.name, value=setting.value, source=setting.source)
        for name, version in installed_packages():
            engine.add("packages", name=name, version=version)

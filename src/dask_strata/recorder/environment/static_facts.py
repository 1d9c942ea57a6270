"""The static facts of a process as rows of `job`, `config` and `packages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_strata.config import understood
from dask_strata.recorder.pipeline.anonymize import left_out
from dask_strata.recorder.pipeline.engine import Engine

#: Name of a fact: a setting from the scheduler that this process's version does not have.
UNKNOWN_SETTING = "dask-strata.unknown-setting"

#: Name of a fact: the classes of facts that the settings leave out of the record.
LEFT_OUT_FACT = "dask-strata.left-out"


def add_static_facts(engine: Engine, spec: Mapping[str, Any] | None = None) -> None:
    """Add facts about the job, configuration and packages of this process to its record.

    Do not call it on Dask's event loop: reading them takes up to some seconds.

    Parameters
    ----------
    engine : Engine
        The process's recorder.
    spec : mapping, optional
        Specification from the scheduler's recorder, with its settings.
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

"""The static facts of a process as rows: job, configuration, packages."""

from __future__ import annotations

from dask_strata.recorder.engine import Engine


def add_statics(engine: Engine) -> None:
    """Add what is known of this process and its machine; on the recorder's thread."""
    from dask_strata.recorder.job import job_facts
    from dask_strata.recorder.settings import effective_settings, installed_packages

    for fact in job_facts():
        engine.add("job", name=fact.name, value=fact.value, source=fact.source)
    if engine.settings.settings:
        for setting in effective_settings():
            engine.add("config", name=setting.name, value=setting.value, source=setting.source)
        for name, version in installed_packages():
            engine.add("packages", name=name, version=version)

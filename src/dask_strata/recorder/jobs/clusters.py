"""Clusters of this process whose scheduler is recorded: the workers that they were asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

#: Batch systems by the name that dask-jobqueue gives to their part of its configuration.
_SYSTEMS = {"slurm": "slurm", "pbs": "pbs", "moab": "pbs", "lsf": "lsf"}


def clusters_of(scheduler: Any) -> list[Any]:
    """Return the `SpecCluster` objects of this process with a scheduler, mostly one or none."""
    module = sys.modules.get("distributed.deploy.spec")
    if module is None:
        return []
    with contextlib.suppress(RuntimeError):  # another thread creates a cluster
        clusters = list(module.SpecCluster._instances)  # noqa: SLF001  there is no public list
        return [each for each in clusters if getattr(each, "scheduler", None) is scheduler]
    return []


def jobs_of(cluster: Any) -> Iterator[tuple[str, str, str]]:
    """Yield batch system, job id and worker name of each job that dask-jobqueue has submitted.

    Parameters
    ----------
    cluster : distributed.SpecCluster
        The cluster.
    """
    for worker in list(cluster.workers.values()):
        system = _SYSTEMS.get(_config_name(worker))
        job = getattr(worker, "job_id", None)
        if system is not None and job is not None:
            yield system, str(job), str(getattr(worker, "name", ""))


def _config_name(worker: Any) -> str:
    """Return dask-jobqueue's name of the batch system, also if the user configures another one."""
    for cls in type(worker).__mro__:
        name = vars(cls).get("config_name")
        if isinstance(name, str) and name in _SYSTEMS:
            return name
    return ""


def requested_workers(cluster: Any) -> Iterator[str]:
    """Yield the names of the workers that a cluster was asked for, present or not.

    Parameters
    ----------
    cluster : distributed.SpecCluster
        The cluster.
    """
    for name, spec in list(cluster.worker_spec.items()):
        if "group" in spec:  # several workers in one job
            for suffix in spec["group"]:
                yield f"{name}{suffix}"
        else:
            yield str(spec.get("options", {}).get("name", name))

"""Workers that a cluster object in this process planned, and that it no longer wants.

`Cluster.close`, scaling down and adaptive clusters end workers through a batch system or over SSH.
The scheduler only sees a lost connection then, and Dask calls the removal unexpected.
"""

from __future__ import annotations

import sys
from typing import Any

from distributed.core import Status

CLOSE, SCALE_DOWN = "cluster-close", "cluster-scale-down"


class ClusterPlan:
    """Knows for each worker of a scheduler whether the cluster object has asked for its end.

    Call its methods on the scheduler's event loop.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._planned: dict[str, str] = {}

    def added(self, worker: str, name: Any) -> None:
        """Note whether the cluster had planned a worker that connects."""
        self._planned.pop(worker, None)
        cluster = self._cluster()
        if cluster is not None and str(name) in _plan(cluster):
            self._planned[worker] = str(name)

    def removed(self, worker: str) -> str | None:
        """Return why the cluster ended a worker; None if it did not, or if that is unknown."""
        name, cluster = self._planned.pop(worker, None), self._cluster()
        if name is None or cluster is None or name in _plan(cluster):
            return None
        return CLOSE if cluster.status in (Status.closing, Status.closed) else SCALE_DOWN

    def _cluster(self) -> Any:
        """Return the cluster object of the scheduler, if it is in this process."""
        spec = sys.modules.get("distributed.deploy.spec")
        clusters = list(getattr(getattr(spec, "SpecCluster", None), "_instances", ()))
        return next((c for c in clusters if getattr(c, "scheduler", None) is self._scheduler), None)


def _plan(cluster: Any) -> set[str]:
    return {str(name) for name in getattr(cluster, "plan", ())}

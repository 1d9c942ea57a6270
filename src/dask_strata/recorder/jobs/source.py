"""States of the cluster's batch jobs over time, asked for on a thread of its own."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from dask_strata.recorder.environment.batch_systems import batch_systems
from dask_strata.recorder.environment.host_view import HostView
from dask_strata.recorder.jobs.clusters import clusters_of, jobs_of, requested_workers
from dask_strata.recorder.jobs.commands import Deadline
from dask_strata.recorder.jobs.lsf import lsf_states
from dask_strata.recorder.jobs.pbs import pbs_states, short_id
from dask_strata.recorder.jobs.slurm import slurm_states
from dask_strata.recorder.pipeline import foreign_io
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.schema.values import REQUESTED

#: The batch systems that are asked, with the form of their job ids.
_STATES: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "slurm": slurm_states,
    "pbs": pbs_states,
    "lsf": lsf_states,
}
_IDS = {
    "slurm": re.compile(r"[0-9]{1,12}"),
    "pbs": re.compile(r"[0-9]{1,12}(?:\[[0-9]{0,9}\])?"),
    "lsf": re.compile(r"[0-9]{1,12}(?:\[[0-9]{1,9}\])?"),
}

#: Shortest and longest pause between two rounds: each is twice the one before, and the shortest
#: again after a change, which is a new job, a worker that left, or another state. The commands load
#: a server that many users share, and Slurm forgets an ended job after 5 min by default.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 10.0, 60.0

#: How long a requested worker is missing before it is named.
_MISSING_SECONDS = 2.0

#: Time limit of a round, and of the last one, for which the end of the recording waits.
_ROUND_SECONDS, _LAST_SECONDS = 5.0, 2.0

#: Pause before jobs that are about to end are asked for once more, in the last round.
_COMPLETING_SECONDS = 0.2

#: Most jobs of a cluster that are asked for.
_MAX_JOBS = 1000

#: Length of a text, such as the list of nodes of a job.
_TEXT = 4096

#: Columns that do not make a row a new state.
_IGNORED = frozenset({"used_seconds", "source"})

_Job = tuple[str, str]


class JobSource(Source):
    """Makes rows of ``job_states``, and names workers that a cluster was asked for and lacks.

    Known jobs are those of workers, which report them, of this process, and of dask-jobqueue's
    clusters in this process. Without any, no command runs.

    Parameters
    ----------
    engine : Engine
        Gets the rows.
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, engine: Engine, scheduler: Any) -> None:
        self._engine, self._scheduler = engine, scheduler
        #: Name of the worker for which each job was submitted, None if unknown.
        self._jobs: dict[_Job, str | None] = {}
        self._ended: set[_Job] = set()
        self._last: dict[_Job, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._changed = self._too_many = False
        self._pause = _SHORTEST_SECONDS
        self._next_round = 0.0
        self._round: threading.Thread | None = None
        self._missing: dict[str, float] = {}
        self._named: set[str] = set()
        self._add_own()

    def _add_own(self) -> None:
        view = HostView(os.environ, Path("/proc"), Path("/sys"))
        for system, variable in batch_systems(view):
            self.add_job(system, os.environ[variable])

    def add_job(self, system: object, job: object, worker: str | None = None) -> None:
        """Add a job, unless it is known or its id does not look like one. Thread-safe.

        Parameters
        ----------
        system, job : object
            Batch system, such as slurm, and id of the job, from a message of a worker.
        worker : str, optional
            Name of the worker for which it was submitted.
        """
        if not isinstance(system, str) or not isinstance(job, str) or system not in _STATES:
            return
        if system == "pbs":
            job = short_id(job)
        if _IDS[system].fullmatch(job) is None:
            return
        with self._lock:
            known = (system, job)
            if known in self._jobs:
                self._jobs[known] = self._jobs[known] or worker
            elif len(self._jobs) < _MAX_JOBS:
                self._jobs[known] = worker
                self._changed = True
            elif not self._too_many:
                self._too_many = True
                reason = f"the states of {_MAX_JOBS:,} batch jobs are recorded, and there are more"
                self._engine.add("losses", time=now_ns(), what="batch jobs", reason=reason)

    def worker_left(self) -> None:
        """Ask soon for the states of jobs: the end of a job may have ended a worker."""
        self._changed = True

    def sample(self) -> None:
        """Look at the clusters of this process, and start a round if it is due."""
        self._look_at_clusters()
        now = time.monotonic()
        if self._changed:
            self._changed = False
            self._pause = _SHORTEST_SECONDS
            self._next_round = min(self._next_round, now + _SHORTEST_SECONDS)
        if now < self._next_round or len(self._jobs) == len(self._ended):
            return
        if self._round is not None and self._round.is_alive():
            return
        self._next_round = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_SECONDS)
        name = f"dask-strata-{self._engine.process}-jobs"
        self._round = threading.Thread(target=self._run_round, name=name, daemon=True)
        self._round.start()

    def _look_at_clusters(self) -> None:
        try:
            for cluster in clusters_of(self._scheduler):
                for system, job, worker in jobs_of(cluster):
                    self.add_job(system, job, worker)
                self._name_missing(set(requested_workers(cluster)))
        except RuntimeError:  # the event loop changes a collection meanwhile; look again later
            return

    def _name_missing(self, requested: set[str]) -> None:
        """Add a row for each requested worker that has been missing for more than a moment."""
        now = time.monotonic()
        present = {str(ws.name) for ws in list(self._scheduler.workers.values())}
        self._named |= present  # a worker that was present is not one that never arrived
        missing = requested - self._named
        self._missing = {name: self._missing.get(name, now) for name in missing}
        for name, since in self._missing.items():
            if now - since >= _MISSING_SECONDS:
                self._named.add(name)
                self._engine.add("worker_events", time=now_ns(), name=name, action=REQUESTED)

    def _run_round(self) -> None:
        self._engine.call(lambda: self._ask(Deadline(_ROUND_SECONDS), final=False), "jobs")

    def finish(self) -> None:
        """Ask once more for the final states; the end of the recording waits 2 s at most."""
        self._look_at_clusters()
        deadline = Deadline(_LAST_SECONDS)
        if self._round is not None:
            self._round.join(deadline.left)
        if not self._jobs:
            return
        self._ask(deadline, final=True)
        while self._completing() and deadline.left > _COMPLETING_SECONDS:
            time.sleep(_COMPLETING_SECONDS)
            self._ask(deadline, final=False)

    def _completing(self) -> bool:
        return any(row["state"] == "COMPLETING" for row in list(self._last.values()))

    def _ask(self, deadline: Deadline, *, final: bool) -> None:
        with self._lock:
            jobs = [job for job in self._jobs if final or job not in self._ended]
        for system, states in _STATES.items():
            of_system = [job for other, job in jobs if other == system]
            if of_system:
                with foreign_io.operation():  # commands read files of any size
                    found = states(of_system, deadline, final=final)
                self._add_rows(of_system, found)

    def _add_rows(self, jobs: Collection[str], rows: list[dict[str, Any]]) -> None:
        for row in rows:
            known = (row["system"], row["job"])
            if row["job"] not in jobs:
                continue
            changed = _state(row) != _state(self._last.get(known, {}))
            self._last[known] = row
            if changed or not row["ended"]:  # the used time of an open job
                self._engine.add("job_states", time=now_ns(), **self._clean(known, row))
            if row["ended"]:
                self._ended.add(known)
            self._changed |= changed

    def _clean(self, known: _Job, row: dict[str, Any]) -> dict[str, Any]:
        texts = {k: redact_text(clip(v, _TEXT)) for k, v in row.items() if isinstance(v, str)}
        return {**row, **texts, "worker_name": self._jobs[known]}


def _state(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _IGNORED}

"""Tasks that wait for a lock, a semaphore or an event that other tasks hold."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import waited_at
from dask_strata.analysis.diagnosis.samples import Waited
from dask_strata.analysis.diagnosis.waits import waits_on_path
from dask_strata.analysis.words import duration, percent

#: Modules whose functions acquire locks, as they are at the start of `calls`.
_LOCKS = (
    "threading.py",
    "queue.py",
    "multiprocessing/",
    "distributed/lock.py",
    "distributed/semaphore.py",
    "distributed/multi_lock.py",
    "distributed/event.py",
    "distributed/queues.py",
    "distributed/variable.py",
    "filelock/",
    "fasteners/",
    "portalocker/",
    "contextlib.py",
)

#: What makes waiting for other tasks no lock.
_JOINS = (":join", ":_wait_for_tstate_lock", ":result")


def is_lock(waited: Waited) -> bool:
    """Return whether samples show a wait for a lock of the user's code.

    Parameters
    ----------
    waited : Waited
        Samples of one place.
    """
    if waited.waiting != "lock":
        return False
    if waited.calls is None:
        return True
    return waited.calls.startswith(_LOCKS) and not waited.calls.endswith(_JOINS)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which tasks waited for a lock.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waits = waits_on_path(evidence, is_lock)
    if waits is None:
        return
    prefix = waits.runners[0].prefix
    whole = sum(evidence.segments[i].seconds for i in waits.claims)
    kind = f" ({waits.main.calls})" if waits.main.calls else ""
    yield Finding(
        "lock",
        f"a lock lets one task run at a time: `{prefix}` waited for "
        f"it{waited_at(waits.main, evidence.run.script)}",
        "threads of tasks on the critical path waited "
        f"{percent(sum(waits.claims.values()) / whole)} of {duration(whole)} to acquire "
        f"it{kind}",
        "hold the lock for the shared step alone, use one lock a resource instead of one for "
        "all, or a Semaphore with more leases",
        "query RUN \"from task_samples where waiting = 'lock'\"",
        claims=waits.claims,
    )

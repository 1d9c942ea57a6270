"""Threads of one worker that wait for Python's global interpreter lock."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.critical_path.occupants import Occupant
from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import waited_at
from dask_strata.analysis.diagnosis.samples import Runner, Waited
from dask_strata.analysis.diagnosis.waits import LEAST_SHARE, waits_on_path
from dask_strata.analysis.words import duration, percent


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which tasks waited for the GIL.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waits = waits_on_path(evidence, is_gil)
    frozen = {
        index: segment.seconds * _gain(evidence, segment.worker, segment.occupant)
        for index, segment in enumerate(evidence.segments)
        if segment.cause == "blocked event loop" and _competes(evidence, segment.occupant)
    }
    claims = {i: seconds for i, seconds in frozen.items() if seconds}
    uses = evidence.whole(claims)
    if waits is not None:
        for runner, (index, seconds) in zip(waits.runners, waits.claims.items(), strict=True):
            claims[index] = seconds * _gain(evidence, runner.worker, runner)
            uses[index] = seconds
    if not claims:
        return
    prefix = evidence.main_prefix_of(claims)
    place = "" if waits is None else waited_at(waits.main, evidence.run.script)
    whole = sum(evidence.segments[i].seconds for i in claims)
    share = sum(uses.values()) / whole
    yield Finding(
        "gil",
        f"threads competed for Python's GIL: `{prefix}`{place} holds it, and a worker executes "
        "Python code of one thread at a time",
        f"threads of tasks on the critical path waited {percent(share)} of {duration(whole)} "
        "for the GIL",
        "use more processes with fewer threads: LocalCluster(n_workers=…, "
        "threads_per_worker=1), dask worker --nworkers … --nthreads 1; or functions that "
        "release the GIL",
        "query RUN \"from task_samples where waiting = 'gil'\"",
        claims=claims,
        uses=uses,
    )


def is_gil(waited: Waited) -> bool:
    """Return whether samples show a wait for the GIL.

    Parameters
    ----------
    waited : Waited
        Samples of one place.
    """
    return waited.waiting == "gil"


def _gain(evidence: Evidence, worker: str | None, ran: Occupant | Runner | None) -> float:
    """Return the share of waits for the GIL that more processes would save, 0 to 1."""
    stats = evidence.prefixes.get(ran.prefix or "") if ran is not None else None
    cpu_share = 1.0
    if stats is not None and stats["cpu_seconds"] is not None and ran is not None:
        runner = Runner(ran.attempt or 0, None, ran.prefix, worker)
        held = stats["seconds"] * (1 - evidence.samples.share(runner, is_gil))
        cpu_share = stats["cpu_seconds"] / held if held > stats["cpu_seconds"] else 1.0
    return evidence.machine.gain_of_processes(worker, cpu_share)


def _competes(evidence: Evidence, occupant: Occupant | None) -> bool:
    """Return whether other executions waited for the GIL while an occupant held it."""
    if occupant is not None and occupant.kind == "gil":
        return True
    if occupant is None or occupant.kind != "task" or occupant.attempt is None:
        return False
    runner = Runner(occupant.attempt, occupant.name, occupant.prefix, occupant.worker)
    return evidence.samples.share(runner, is_gil) >= LEAST_SHARE

"""One trial: a fresh cluster, the workflow, the faults of a seed, and the verdict."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.chaos import clock, disk, network
from tests.chaos.cluster import HANG_SECONDS, Cluster, Hosts, TrialError
from tests.chaos.injections import Injector
from tests.chaos.plan import CLOCK, DISK, NETWORK, Plan
from tests.chaos.verdict import Verdict, judge

#: How often Dask alone is asked for an odd outcome: it is not the same at each time.
ALONE = 3


@dataclass
class Result:
    """What became of a trial.

    Attributes
    ----------
    plan : Plan
        What was to happen.
    injected : list of str
        What was injected, in words.
    outcome : str
        The workflow's: right, ended by us, or what went wrong.
    harmed : list of str
        What happened to the workflow that would not have without us.
    verdict : Verdict
        What is wrong with the record.
    seconds : float
        How long it took.
    """

    plan: Plan
    injected: list[str]
    outcome: str
    harmed: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        """All that should not be."""
        return [f"harmed: {text}" for text in self.harmed] + self.verdict.problems

    def as_json(self) -> str:
        """Return it as one line."""
        known: dict[str, Any] = {
            "seed": self.plan.seed,
            "plan": str(self.plan),
            "injected": self.injected,
            "outcome": self.outcome,
            "harmed": self.harmed,
            **vars(self.verdict),
            "seconds": round(self.seconds, 1),
        }
        return json.dumps(known)


@cache
def impossible() -> dict[str, str]:
    """Return the faults that cannot be injected on this machine, and why."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="strata-chaos-") as folder:
        no_disk, no_network = disk.why_not(Path(folder)), network.why_not()
    if no_disk:
        found |= dict.fromkeys(DISK, no_disk)
    if no_network:
        found |= dict.fromkeys(NETWORK, no_network)
    if clock.library() is None:
        found |= dict.fromkeys(CLOCK, "libfaketime is not installed (package faketime)")
    return found


def possible(plan: Plan) -> Plan:
    """Return a plan without what cannot be injected here."""
    return replace(plan, injections=tuple(i for i in plan.injections if i.kind not in impossible()))


def hold(
    plan: Plan, folder: Path, *, slack_seconds: float = 0.4, mutant: str | None = None
) -> Result:
    """Hold a trial in an empty folder; where the outcome is odd, ask Dask alone for its own.

    Parameters
    ----------
    plan : Plan
        What is to happen.
    folder : Path
        Not there yet, or empty.
    slack_seconds : float
        See `judge`.
    mutant : str, optional
        See `mutants`.

    Raises
    ------
    TrialError
        The cluster could not even be started.
    """
    began = time.monotonic()
    plan = possible(plan)
    record = "attach" if plan.attach and not mutant else "preload"
    result = _hold(plan, folder, record, slack_seconds, mutant)
    for number in range(ALONE):
        if not result.harmed:
            break
        alone = folder.with_name(f"{folder.name}-alone-{number}")
        # What Dask does by itself under these faults is none of our doing.
        if _kind(_hold(plan, alone, "nothing", slack_seconds).harmed) == _kind(result.harmed):
            result.harmed = []
    result.seconds = time.monotonic() - began
    return result


def _kind(texts: list[str]) -> list[str]:
    return [text.partition(":")[0] for text in texts]


def _hold(
    plan: Plan, folder: Path, record: str, slack_seconds: float, mutant: str | None = None
) -> Result:
    (folder / "runs").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        own_clock = clock.Clock(folder / "clock") if plan.has(CLOCK) else None
        line = stack.enter_context(network.network()) if plan.has(NETWORK) else None
        if plan.has(DISK):
            stack.enter_context(disk.small_disk(folder / "runs"))
        hosts = Hosts(line, plan.hidden and line is not None, own_clock)
        cluster = Cluster(folder, record, hosts, mutant)
        injector = Injector(cluster, own_clock)
        killed: list[str] = []
        try:
            outcome = _go_through(plan, cluster, injector)
        finally:
            killed = cluster.close()
    result = Result(plan, injector.done, outcome)
    result.harmed = [f"did not end when told to: {who}" for who in killed if who != "client"]
    if outcome not in ("right", "ended by us"):
        result.harmed.append(f"the workflow: {outcome}")
    result.harmed += list(_ours_in(cluster.log()))
    if record != "nothing":
        result.verdict = judge(plan, cluster, slack_seconds=slack_seconds)
    return result


def _go_through(plan: Plan, cluster: Cluster, injector: Injector) -> str:
    def began() -> bool:
        if cluster.client.poll() is not None:
            raise TrialError(f"the client could not begin: see {cluster.folder}")
        return any(f.what == "known" for f in cluster.facts())

    cluster.wait(began, "the workflow")
    for injection in plan.injections:
        time.sleep(injection.wait)
        injector.inject(injection)
        cluster.keep_staffed()
    if plan.has(("kill-scheduler", "kill-client")):
        time.sleep(0.5)
        return "ended by us"
    cluster.tell("end")

    def ended() -> bool:
        cluster.keep_staffed()
        return cluster.client.poll() is not None

    try:
        cluster.wait(ended, "the end of the workflow")
    except TrialError:
        return f"hangs: {HANG_SECONDS} s"
    said = [f.text for f in cluster.facts() if f.what == "outcome"]
    if not said or cluster.client.returncode:
        return f"crash: the client ended with {cluster.client.returncode}, and said {said}"
    return said[0]


def _ours_in(log: str) -> Iterator[str]:
    """Find errors of ours in what Dask logged: a plugin that raises, a handler that fails."""
    for line in log.splitlines():
        if "/src/dask_strata/" in line and line.lstrip().startswith("File"):
            yield f"a traceback of ours: {line.strip()}"
            return


@contextlib.contextmanager
def trial_folder(keep: Path | None = None) -> Iterator[Path]:
    """Make a folder for a trial; it is removed when the block ends, but not if that fails."""
    parent = Path(tempfile.mkdtemp(prefix="strata-chaos-", dir=keep))
    yield parent / "trial"
    if keep is None:
        shutil.rmtree(parent, ignore_errors=True)

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

#: Number of trials without a recorder after an unexpected outcome: Dask itself may cause it, but
#: not each time.
ALONE = 3


@dataclass
class Result:
    """Result of a trial.

    Attributes
    ----------
    plan : Plan
        The plan.
    injected : list of str
        Injected faults, in words.
    outcome : str
        Outcome of the workflow: ``right``, ``ended by the trial``, or a failure.
    harmed : list of str
        Failures of the workflow that do not happen without a recorder.
    verdict : Verdict
        Defects of the record.
    seconds : float
        Duration.
    """

    plan: Plan
    injected: list[str]
    outcome: str
    harmed: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        """All failures and defects."""
        return [f"harmed: {text}" for text in self.harmed] + self.verdict.problems

    def as_json(self) -> str:
        """Return it as one line."""
        facts: dict[str, Any] = {
            "seed": self.plan.seed,
            "plan": str(self.plan),
            "injected": self.injected,
            "outcome": self.outcome,
            "harmed": self.harmed,
            **vars(self.verdict),
            "seconds": round(self.seconds, 1),
        }
        return json.dumps(facts)


@cache
def impossible() -> dict[str, str]:
    """Return the faults that cannot be injected on this machine, with the reason."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="strata-chaos-") as folder:
        no_disk, no_network = disk.obstacle(Path(folder)), network.obstacle()
    if no_disk:
        found |= dict.fromkeys(DISK, no_disk)
    if no_network:
        found |= dict.fromkeys(NETWORK, no_network)
    if clock.library() is None:
        found |= dict.fromkeys(CLOCK, "libfaketime is not installed (package faketime)")
    return found


def possible(plan: Plan) -> Plan:
    """Return a plan without the faults that cannot be injected on this machine."""
    return replace(plan, injections=tuple(i for i in plan.injections if i.kind not in impossible()))


def run_trial(
    plan: Plan, folder: Path, *, slack_seconds: float = 0.4, mutant: str | None = None
) -> Result:
    """Run a trial; after an unexpected outcome, repeat it without a recorder to compare.

    Parameters
    ----------
    plan : Plan
        The plan.
    folder : Path
        Folder for all files: empty, or missing.
    slack_seconds : float
        See `judge`.
    mutant : str, optional
        See `mutants`.

    Raises
    ------
    TrialError
        The cluster could not be started.
    """
    began = time.monotonic()
    plan = possible(plan)
    record = "attach" if plan.attach and not mutant else "preload"
    result = _run(plan, folder, record, slack_seconds, mutant)
    for number in range(ALONE):
        if not result.harmed:
            break
        alone = folder.with_name(f"{folder.name}-alone-{number}")
        # A failure that Dask has under these faults without a recorder does not count.
        if _kind(_run(plan, alone, "nothing", slack_seconds).harmed) == _kind(result.harmed):
            result.harmed = []
    result.seconds = time.monotonic() - began
    return result


def _kind(texts: list[str]) -> list[str]:
    return [text.partition(":")[0] for text in texts]


def _run(
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
    result.harmed = [f"did not end after SIGTERM: {name}" for name in killed if name != "client"]
    if outcome not in ("right", "ended by the trial"):
        result.harmed.append(f"the workflow: {outcome}")
    result.harmed += list(_own_errors(cluster.log()))
    if record != "nothing":
        result.verdict = judge(plan, cluster, slack_seconds=slack_seconds)
    return result


def _go_through(plan: Plan, cluster: Cluster, injector: Injector) -> str:
    def began() -> bool:
        if cluster.client.poll() is not None:
            raise TrialError(f"the client could not start: see {cluster.folder}")
        return any(f.kind == "known" for f in cluster.facts())

    cluster.wait(began, "the first result")
    for injection in plan.injections:
        time.sleep(injection.wait)
        injector.inject(injection)
        cluster.keep_staffed()
    if plan.has(("kill-scheduler", "kill-client")):
        time.sleep(0.5)
        return "ended by the trial"
    cluster.order("end")

    def ended() -> bool:
        cluster.keep_staffed()
        return cluster.client.poll() is not None

    try:
        cluster.wait(ended, "the end of the workflow")
    except TrialError:
        return f"hangs: {HANG_SECONDS} s"
    outcomes = [f.text for f in cluster.facts() if f.kind == "outcome"]
    if not outcomes or cluster.client.returncode:
        return f"crash: the client ended with {cluster.client.returncode}, outcome {outcomes}"
    return outcomes[0]


def _own_errors(log: str) -> Iterator[str]:
    """Find tracebacks of dask-strata in the logs: a plugin or a handler that raised."""
    for line in log.splitlines():
        if "/src/dask_strata/" in line and line.lstrip().startswith("File"):
            yield f"a traceback of dask-strata: {line.strip()}"
            return


@contextlib.contextmanager
def trial_folder(keep: Path | None = None) -> Iterator[Path]:
    """Create a folder for a trial; it is removed at the end of the block unless that raises."""
    parent = Path(tempfile.mkdtemp(prefix="strata-chaos-", dir=keep))
    yield parent / "trial"
    if keep is None:
        shutil.rmtree(parent, ignore_errors=True)

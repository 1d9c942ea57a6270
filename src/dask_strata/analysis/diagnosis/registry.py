"""The rules in the order in which they are evaluated: the more specific cause is first.

A second of the makespan counts for the first rule that claims it. Other packages add rules with an
entry point of the group ``dask_strata.insights``: a callable that takes an `Evidence` and yields
findings. They are evaluated after those here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.data import (
    metadata,
    network,
    re_reads,
    slow_storage,
    small_reads,
    transfers,
)
from dask_strata.analysis.diagnosis.rules.failure import exception, retries
from dask_strata.analysis.diagnosis.rules.granularity import (
    large_definitions,
    large_graph,
    large_results,
    large_scatter,
    tiny_tasks,
)
from dask_strata.analysis.diagnosis.rules.machine import (
    clocks_apart,
    cpu_starvation,
    different_versions,
    imports,
    slow_worker,
)
from dask_strata.analysis.diagnosis.rules.memory import (
    garbage_collection,
    lost_workers,
    paused,
    spill,
    unmanaged_memory,
)
from dask_strata.analysis.diagnosis.rules.parallelism import (
    gil,
    late_client,
    lock,
    placement,
    restrictions,
    serial_chain,
    skew,
    straggler,
    too_few_tasks,
)
from dask_strata.analysis.diagnosis.rules.scheduling import adaptive, blocked_loop, stealing

Rule = Callable[[Evidence], Iterable[Finding]]

#: Group of entry points of other packages.
GROUP = "dask_strata.insights"

_BUILT_IN = (
    exception,
    retries,
    unmanaged_memory,
    lost_workers,
    spill,
    paused,
    large_definitions,
    large_scatter,
    large_results,
    large_graph,
    different_versions,
    clocks_apart,
    garbage_collection,
    tiny_tasks,
    restrictions,
    adaptive,
    imports,
    stealing,
    gil,
    blocked_loop,
    transfers,
    lock,
    metadata,
    small_reads,
    re_reads,
    slow_storage,
    network,
    slow_worker,
    cpu_starvation,
    skew,
    straggler,
    late_client,
    serial_chain,
    placement,
    too_few_tasks,
)


#: Causes that the rules above find: each has a page in the documentation.
_CAUSES = frozenset(
    (
        "adaptive",
        "blocked-loop",
        "clocks-apart",
        "cpu-starvation",
        "different-versions",
        "exception",
        "gc",
        "gil",
        "imports",
        "killed-task",
        "killed-worker",
        "large-definitions",
        "large-graph",
        "large-results",
        "large-scatter",
        "late-client",
        "lock",
        "lost-worker",
        "metadata",
        "network",
        "paused",
        "placement",
        "re-reads",
        "recomputation",
        "repeated-transfers",
        "restrictions",
        "retries",
        "serial-chain",
        "skew",
        "slow-storage",
        "slow-worker",
        "small-reads",
        "small-writes",
        "spill",
        "stealing",
        "straggler",
        "tiny-tasks",
        "too-few-tasks",
        "transfers",
        "unmanaged-memory",
    )
)


def rules() -> Iterator[tuple[str, Rule, bool]]:
    """Yield the name and function of each rule, and whether it is one of ours, in their order."""
    for module in _BUILT_IN:
        yield module.__name__.rpartition(".")[2].replace("_", "-"), module.find, True
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        yield point.name, _loading(point.load), False


def causes() -> frozenset[str]:
    """Return the names of the causes that our rules find, and those of the rules of others."""
    return _CAUSES | {name for name, _, ours in rules() if not ours}


def _loading(load: Callable[[], Rule]) -> Rule:
    def find(evidence: Evidence) -> Iterable[Finding]:
        return load()(evidence)

    return find

"""Faults at seeded times: the workflow behaves as without a recorder, and the record is right.

`benchmarks/chaos.py` runs many more seeds, and repeats a single one.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

from dask_strata.store.manifest import find_runs
from tests.chaos.plan import KINDS, plan
from tests.chaos.trial import impossible, run_trial
from tests.support.cases import few
from tests.support.finalised import finalised_differences

pytestmark = pytest.mark.long

#: Together, these seeds have every kind of fault.
SEEDS = (6019, 3520, 30636, 90)

#: Other tests on the machine may delay any thread; the benchmark allows 0.4 s.
SLACK_SECONDS = 3.0

#: Of the finalised copy of each record.
KEYS_PER_BUCKET = 100


def test_every_kind_of_fault_is_injected() -> None:
    """The seeds have every kind of fault; those that this machine does not permit are listed."""
    assert {i.kind for seed in SEEDS for i in plan(seed).injections} == set(KINDS)
    for kind, reason in impossible().items():
        warnings.warn(f"NOT TESTED: {kind}: {reason}", stacklevel=1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", few(SEEDS, always={30636, 90}))
def test_record_survives(seed: int, tmp_path: Path) -> None:
    """After the faults of a seed, the workflow is unharmed and the record complete and correct.

    Finalising the record changes none of its tables.
    """
    result = run_trial(plan(seed), tmp_path / "trial", slack_seconds=SLACK_SECONDS)
    if not result.injected:
        pytest.skip(f"NOT TESTED: this machine permits none of {plan(seed)}")
    assert not result.problems, f"python benchmarks/chaos.py --replay {seed}: {result}"
    runs = find_runs(tmp_path / "trial" / "runs")
    assert runs
    for number, run in enumerate(runs):
        copy = Path(shutil.copytree(run, tmp_path / f"copy-{number}" / "run"))
        assert finalised_differences(copy, copy.parent, KEYS_PER_BUCKET) == [], run

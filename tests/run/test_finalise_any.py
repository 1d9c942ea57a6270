"""Whatever rows a run has: finalising it in buckets changes none of its tables."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.any_runs import AnyRun, any_runs
from tests.support.finalised import finalised_differences

#: Finalising a run and computing its tables take some seconds.
SLOW = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)


def assert_equal(run: AnyRun, keys_per_bucket: int) -> None:
    """Assert that the tables of a finalised run are those that are derived from segments."""
    scratch = Path(tempfile.mkdtemp(prefix="strata-any-"))
    try:
        folder = run.write(scratch / "segments")
        assert finalised_differences(folder, scratch, keys_per_bucket) == []
    finally:
        shutil.rmtree(scratch)


@pytest.mark.long
@settings(SLOW, max_examples=2)
@given(any_runs(), st.integers(1, 6))
def test_buckets_change_no_table(run: AnyRun, keys_per_bucket: int) -> None:
    """Repeated lives, retries, keys equal in text, rows of several workers, null keys."""
    assert_equal(run, keys_per_bucket)


@pytest.mark.release
@pytest.mark.long
@pytest.mark.timeout(900)
@settings(SLOW, max_examples=15)
@given(any_runs(), st.integers(1, 6))
def test_buckets_change_no_table_of_many_runs(run: AnyRun, keys_per_bucket: int) -> None:
    """The same with more runs."""
    assert_equal(run, keys_per_bucket)

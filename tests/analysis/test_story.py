"""Stories of tasks whose keys have the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.story import story
from dask_strata.errors import UnknownTaskError
from dask_strata.schema import wire_key
from tests.analysis.one_worker import W, one_worker
from tests.support.synthetic import life


def test_facts_are_the_columns_of_tasks(tmp_path: Path) -> None:
    """The facts, which are also in the JSON, have no columns that the schema does not have."""
    run = open_run(one_worker(tmp_path / "r", life("x", 1, 2, W)))
    assert list(run.task("x").facts) == run.tasks.schema.names
    assert list(story(run.task("x")).facts) == run.tasks.schema.names


def test_the_same_text_of_two_keys_is_two_tasks(tmp_path: Path) -> None:
    """`('x', 0)` as text and as tuple are two tasks; an ambiguous key is an error."""
    tuple_key = wire_key(("x", 0))
    rows = life("('x', 0)", 1, 2, W) + life(tuple_key, 3, 4, W)
    run = open_run(one_worker(tmp_path / "r", rows))
    assert len(run.tasks) == 2
    assert run.task(("x", 0)).key_type == "tuple"
    with pytest.raises(UnknownTaskError, match="More than one"):
        run.task("('x', 0)")
    one, other = (run.task("('x', 0)", key_type=k) for k in ("str", "tuple"))
    assert len(story(one).events) == len(story(other).events) == 3
    assert story(one).events[0].time < story(other).events[0].time

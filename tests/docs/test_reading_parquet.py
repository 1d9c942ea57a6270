"""The examples of docs/tables.md read a finalised run without dask-strata."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pytest

from dask_strata import open_run
from dask_strata.run.finalise import finalise
from tests.support.synthetic import small_run

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
LIBRARIES = ["pandas", "polars", "duckdb", "dask"]


def examples() -> dict[str, str]:
    """Return the examples of the page by the library that they import."""
    section = PAGE.read_text(encoding="utf-8").partition("## Reading the Parquet")[2]
    found = re.findall(r"```python\n(import (\w+).*?)```", section, re.DOTALL)
    return {library: code for code, library in found}


def test_each_library_has_an_example() -> None:
    """The page has one for each, and none that the test below does not run."""
    assert list(examples()) == LIBRARIES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finalised run whose tables have several files, as the folder RUN."""
    run = small_run(tmp_path_factory.mktemp("page") / "RUN")
    finalise(run, keys_per_bucket=1)
    assert len(list((run / "parquet" / "tasks").iterdir())) == 2
    return run


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_example_gives_the_answers_of_dask_strata(
    folder: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It computes the seconds of each prefix, and lists the transitions of one task."""
    monkeypatch.chdir(folder.parent)
    found: dict[str, Any] = {}
    with dask.config.set(scheduler="synchronous"):
        exec(examples()[library], found)
    by_prefix, moves = found["by_prefix"], found["moves"]
    if library == "polars":
        by_prefix, moves = (pd.DataFrame(f.to_dict(as_series=False)) for f in (by_prefix, moves))
    if not isinstance(by_prefix, pd.Series):
        by_prefix = by_prefix.set_index("prefix")["compute_seconds"]
    assert by_prefix.to_dict() == {"a": 4.0, "b": 4.0}
    expected = open_run(folder).scheduler_transitions.to_pandas()
    expected = expected[expected["key"] == "a-1"]
    for column in ("key", "start_state", "finish_state"):
        assert moves[column].tolist() == expected[column].tolist()
    assert moves["key"].tolist() == ["a-1"] * 3
    assert [t.timestamp() for t in moves["time"]] == [t.timestamp() for t in expected["time"]]

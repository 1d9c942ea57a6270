"""The examples in docstrings run, and print the result that they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import dask_strata

#: Modules that are programs: importing them starts them.
PROGRAMS = ("__main__", "counters_child")

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(dask_strata.__path__, "dask_strata.")
    if not module.name.endswith(PROGRAMS)
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each example gives the shown result, whatever ran before it."""
    monkeypatch.chdir(tmp_path_factory.mktemp("examples"))
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS, report=False)
    assert results.failed == 0


def test_there_are_examples() -> None:
    """Public functions have examples: the test above is not empty."""
    finder = doctest.DocTestFinder()
    found = [
        test.name
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(found) > 50

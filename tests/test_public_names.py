"""The names that `import dask_strata` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dask_strata

PUBLIC = {
    "Run",
    "Snapshot",
    "StrataError",
    "Task",
    "__version__",
    "capture",
    "compact",
    "compare",
    "count",
    "dask_setup",
    "dask_teardown",
    "doctor",
    "flush",
    "follow",
    "live",
    "load_ipython_extension",
    "open_run",
    "record",
    "section",
    "track_metrics",
}


def in_new_process(code: str) -> str:
    """Return what a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_dir_shows_public_names_only() -> None:
    """Nothing that happens to be imported shows up beside them."""
    assert set(dir(dask_strata)) == set(dask_strata.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_name_resolves_by_itself(name: str) -> None:
    """Also as the first thing that a process does, whatever was imported before."""
    code = f"import dask_strata; print(dask_strata.{name} is not None)"
    assert in_new_process(code) == "True"


def test_a_function_is_not_hidden_by_a_module() -> None:
    """Importing every module of the package leaves the public functions callable."""
    code = (
        "import pkgutil, importlib, dask_strata\n"
        "for m in pkgutil.iter_modules(dask_strata.__path__):\n"
        "    if m.name != '__main__': importlib.import_module('dask_strata.' + m.name)\n"
        "print(all(callable(getattr(dask_strata, n)) for n in "
        "('record', 'open_run', 'compact', 'flush', 'follow', 'live', 'count', 'section', "
        "'track_metrics')))"
    )
    assert in_new_process(code) == "True"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dask_strata.nothing  # noqa: B018  the access is the test


def test_its_extractors_are_registered_by_the_documented_name() -> None:
    """`dask_strata.recorder.inputs.register` is public, as the entry point is."""
    from dask_strata.recorder.inputs import register

    assert callable(register)

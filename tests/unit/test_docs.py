"""The documentation says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dask_strata.cli import _VERBS
from dask_strata.report.schema_text import schema_markdown, settings_markdown

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "made"), [("tables.md", schema_markdown), ("settings.md", settings_markdown)]
)
def test_generated_pages_are_up_to_date(page: str, made) -> None:
    """The pages on tables and settings are what the schema and the settings say now."""
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made()


@pytest.mark.parametrize("verb", _VERBS)
def test_every_command_has_help_with_an_example_and_is_in_the_readme(verb: str) -> None:
    """Each command explains itself with an example, and the README knows it."""
    done = subprocess.run(
        [sys.executable, "-m", "dask_strata", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"Examples?:\n\s+dask-strata ", done.stdout)
    assert f"dask-strata {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_in_the_documentation_lead_somewhere() -> None:
    """Each relative link in the README and the docs is a file that exists."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_importing_the_package_is_cheap() -> None:
    """What is preloaded into every worker imports none of the heavy libraries."""
    heavy = ["pyarrow", "pandas", "rich", "jinja2", "bokeh", "duckdb", "polars"]
    ours = ["schema", "recorder.worker", "recorder.scheduler", "recorder.client", "recorder.nanny"]

    def imported(*modules: str) -> str:
        code = f"import sys, {', '.join(modules)}; print([m for m in {heavy} if m in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout

    assert imported("distributed", *(f"dask_strata.{m}" for m in ours)) == imported("distributed")

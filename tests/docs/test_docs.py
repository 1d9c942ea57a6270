"""The documentation says what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from dask_strata.cli.commands import VERBS
from dask_strata.report.tables import schema_markdown, settings_markdown
from dask_strata.store import limits

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "made"), [("tables.md", schema_markdown), ("settings.md", settings_markdown)]
)
def test_generated_pages_are_up_to_date(page: str, made) -> None:
    """The pages on tables and settings are what the schema and the settings say now."""
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made()


@pytest.mark.parametrize("verb", VERBS)
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
    ours = [
        "schema",
        "recorder.plugins",
        *(f"recorder.roles.{r}" for r in ("worker", "scheduler", "client", "nanny")),
    ]

    def imported(*modules: str) -> str:
        code = f"import sys, {', '.join(modules)}; print([m for m in {heavy} if m in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout

    assert imported("distributed", *(f"dask_strata.{m}" for m in ours)) == imported("distributed")


def test_the_limits_of_foreign_runs_are_as_documented() -> None:
    """Each limit that docs/hostile.md names is the one that reading has."""
    page = (ROOT / "docs" / "hostile.md").read_text(encoding="utf-8")
    for said in (
        f"a frame, unpacked | {limits.FRAME_BYTES >> 20} MiB",
        f"values of one list | {limits.FRAME_ROWS:,}",
        f"mappings in a frame | {limits.FRAME_LISTS:,}",
        f"`run.json` | {limits.MANIFEST_BYTES >> 20} MiB",
        f"index of Parquet | {limits.INDEX_BYTES >> 20} MiB",
        f"{limits.MEMORY_BYTES >> 20} MiB and {limits.MEMORY_RATIO} bytes for each byte",
        f"less than 2^{limits.COUNT.bit_length() - 1}",
    ):
        assert said in page, said
    year = datetime.fromtimestamp(limits.TIME_NS / 1e9, tz=timezone.utc).year
    assert f"1970 to {year}" in page

"""The documentation agrees with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from dask_strata.analysis.critical_path.walk import CAUSES
from dask_strata.cli.commands import VERBS
from dask_strata.cli.reference import commands_markdown
from dask_strata.report.tables import schema_markdown, settings_markdown
from dask_strata.store import limits

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dask_strata"
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

#: A file or folder of the repository in code quotes, such as `store/frames.py` or `tests/store/`.
_PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:/|\.(?:py|sql|js|j2|ipynb)))`")


@pytest.mark.parametrize(
    ("page", "generate"),
    [
        ("tables.md", schema_markdown),
        ("settings.md", settings_markdown),
        ("commands.md", commands_markdown),
    ],
)
def test_generated_pages_are_up_to_date(page: str, generate) -> None:
    """These pages are generated from the present schema, settings and help texts."""
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == generate()


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_help_with_an_example_and_is_in_the_readme(verb: str) -> None:
    """Each command has an example in its help, and is in the README."""
    done = subprocess.run(
        [sys.executable, "-m", "dask_strata", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"Examples?:\n\s+dask-strata ", done.stdout)
    assert f"dask-strata {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_in_the_documentation_lead_somewhere() -> None:
    """Each relative link in the documentation leads to a file that exists."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_in_the_documentation_exist(page: str) -> None:
    """Each file and folder that a page names exists, below the package or the repository."""
    named = set(_PATH.findall((ROOT / page).read_text(encoding="utf-8")))
    places = (PACKAGE, ROOT, ROOT / "docs", ROOT / "tests" / "chaos", PACKAGE / "recorder")
    assert named
    missing = [name for name in sorted(named) if not any((p / name).exists() for p in places)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_in_the_documentation_exist(page: Path) -> None:
    """Each test and each file of tests that a page names exists."""
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"`(tests/[^`]*)`", text))
    assert not [name for name in sorted(files) if not (ROOT / name).exists()]
    names = set(re.findall(r"`(test_\w+)`", text))
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    assert not [name for name in sorted(names) if f"def {name}(" not in tests]


def test_the_causes_of_the_critical_path_are_documented() -> None:
    """The table in docs/report.md has each cause, in the order of the code."""
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    table = page.partition("| cause | means |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()] == list(CAUSES)


def test_importing_the_package_is_cheap() -> None:
    """The modules that are loaded into every worker import no heavy library."""
    heavy = ["pyarrow", "pandas", "rich", "jinja2", "bokeh", "duckdb", "polars"]
    loaded = [
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

    assert imported("distributed", *(f"dask_strata.{m}" for m in loaded)) == imported("distributed")


def test_the_limits_of_foreign_runs_are_as_documented() -> None:
    """Each limit in docs/hostile.md is the limit that reading applies."""
    page = (ROOT / "docs" / "hostile.md").read_text(encoding="utf-8")
    for line in (
        f"a frame, unpacked | {limits.FRAME_BYTES >> 20} MiB",
        f"values of one list | {limits.FRAME_ROWS:,}",
        f"mappings in a frame | {limits.FRAME_LISTS:,}",
        f"counted for every row | {limits.COLUMN_BYTES >> 30} GiB",
        f"`run.json` | {limits.MANIFEST_BYTES >> 20} MiB",
        f"index of Parquet | {limits.INDEX_BYTES >> 20} MiB",
        f"members of a bundle | {limits.ZIP_MEMBERS:,}",
        f"directory of a bundle | {limits.ZIP_DIRECTORY_BYTES >> 20} MiB",
        f"summary beside it | {limits.SUMMARY_BYTES >> 20} MiB",
        f"{limits.MEMORY_BYTES >> 20} MiB and {limits.MEMORY_RATIO} bytes for each byte",
        f"less than 2^{limits.COUNT.bit_length() - 1}",
    ):
        assert line in page, line
    year = datetime.fromtimestamp(limits.TIME_NS / 1e9, tz=timezone.utc).year
    assert f"1970 to {year}" in page


def test_each_extra_is_on_the_page_about_installing() -> None:
    """The page has each extra of the package, except the one for fuzzing."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    rows = page.partition("| extra | for |")[2]
    cells = "".join(row.split(" | ")[0] for row in rows.splitlines())
    named = set(re.findall(r"`(\w+)`", cells))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert named == set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE)) - {"fuzz"}

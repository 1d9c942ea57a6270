"""Citation, classifiers, recipe, workflows and forms agree, and are valid by their schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from trove_classifiers import classifiers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
NOTES = ROOT / ".ci" / "release_notes.py"

#: Names on conda-forge that are not those on PyPI.
ON_CONDA = {"dask": "dask-core", "duckdb": "python-duckdb"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def test_classifiers_exist(project: dict[str, Any]) -> None:
    """PyPI refuses a package with an unknown one."""
    assert set(project["classifiers"]) <= classifiers


def test_the_recipe_has_the_dependencies_of_the_package(project: dict[str, Any]) -> None:
    """With the same lower limits."""
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    wanted = {
        f"{ON_CONDA.get(r.name, r.name)} {r.specifier}"
        for r in map(Requirement, project["dependencies"])
    }
    assert set(recipe["requirements"]["run"]) == {*wanted, f"python {project['requires-python']}"}
    points = recipe["build"]["python"]["entry_points"]
    assert dict(p.split(" = ") for p in points) == project["scripts"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda p: p.name
)
def test_workflows_are_valid(path: Path) -> None:
    """By the schema of GitHub's workflows."""
    command = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [command, "--builtin-schema", "vendor.github-workflows", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_forms_have_what_github_needs() -> None:
    """Each form has a name, a description, and fields of known types with unique ids."""
    forms = [p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir() if p.stem != "config"]
    assert forms
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"]
        assert form["description"]
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(ids) == len(set(ids)) > 0
        for field in form["body"]:
            assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
            assert field["attributes"]["value" if field["type"] == "markdown" else "label"]


@pytest.mark.long
def test_the_citation_is_valid() -> None:
    """By the reference implementation of the Citation File Format, in an environment of its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "uv",
            "tool",
            "run",
            "cffconvert",
            "--validate",
            "-i",
            "CITATION.cff",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid according to schema version 1.2.0" in done.stdout + done.stderr


def notes(root: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script of the release for a copy of the project."""
    script = root / ".ci" / NOTES.name
    return subprocess.run(
        [sys.executable, script, version], capture_output=True, text=True, check=False
    )


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    """A tag whose version is not in every place, or not in the changelog, is refused."""
    for name in ("pyproject.toml", "CITATION.cff", "conda/recipe.yaml", ".ci/release_notes.py"):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 0.1.0 (2026-12-01)\n\n- First.\n\n## 0.0.1\n\n- Old.\n")
    done = notes(tmp_path, "0.1.0")
    assert (done.returncode, done.stdout) == (0, "- First.\n")
    done = notes(tmp_path, "0.2.0")
    assert done.returncode == 1
    assert done.stderr.count("not 0.2.0") == 3
    assert "CHANGELOG.md has no section for 0.2.0" in done.stderr


def test_the_places_of_the_version_agree(project: dict[str, Any]) -> None:
    """The release would only lack its section of the changelog."""
    done = notes(ROOT, project["version"])
    assert re.fullmatch(r"(CHANGELOG.md has no section for .*\n)?", done.stderr)

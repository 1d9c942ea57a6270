"""Print the changelog of a version; fail unless every place has that version.

Usage: python .ci/release_notes.py 0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Where the version stands, and the pattern of its line.
PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "conda/recipe.yaml": r'^  version: "(.+)"$',
}


def section(changelog: str, version: str) -> str:
    """Return the text of a version's section; empty if there is none."""
    found = re.search(
        rf"^## \[?{re.escape(version)}\]?[^\n]*\n(.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    return found[1].strip() if found else ""


def problems(root: Path, version: str) -> list[str]:
    """Return the places that have another version, and whether the changelog lacks it."""
    found = []
    for name, pattern in PLACES.items():
        line = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if line is None or line[1] != version:
            found.append(f"{name} has the version {line[1] if line else None}, not {version}.")
    if not section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version):
        found.append(f"CHANGELOG.md has no section for {version}: rename Unreleased.")
    return found


def main() -> None:
    """Print the section, or the problems."""
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and the version
        sys.exit(__doc__)
    if found := problems(ROOT, sys.argv[1]):
        sys.exit("\n".join(found))
    text = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), sys.argv[1])
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()

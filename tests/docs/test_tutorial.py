"""The commands of the tutorial work, and print what the page shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_commands_of_the_tutorial_print_what_it_shows() -> None:
    """Each command succeeds; its words, without numbers and names, are like those on the page."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "tutorial.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_each_command_of_the_tutorial_has_its_output() -> None:
    """The page has the outputs of its commands: none was added without running it."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = page.split("```console\n")[1:]
    assert len(blocks) >= 8
    for block in blocks:
        last = block.split("```")[0].split("$ ")[-1]
        assert "\n" in last.strip(), last

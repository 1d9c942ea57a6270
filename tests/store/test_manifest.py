"""The manifest: a folder without a valid one is refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.errors import NewerRunError, NotARunError
from dask_strata.store.manifest import Manifest
from tests.support.synthetic import small_run


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda f: (f / "run.json").unlink(), "no run.json"),
        (lambda f: (f / "run.json").write_text("{"), "damaged"),
        (lambda f: (f / "run.json").write_text("[1]"), "damaged"),
        (lambda f: (f / "run.json").write_bytes(b"\xff\xfe\0"), "cannot be read"),
        (lambda f: (f / "run.json").write_text("[" * 100_000), "damaged"),
    ],
)
def test_a_folder_without_a_valid_manifest_is_refused_with_the_reason(
    tmp_path: Path, damage, reason: str
) -> None:
    """A folder without a manifest, or with a damaged one, is refused with the reason."""
    folder = small_run(tmp_path / "r")
    damage(folder)
    with pytest.raises(NotARunError, match=reason):
        open_run(folder)


def test_a_newer_run_is_refused_with_the_command_to_upgrade(tmp_path: Path) -> None:
    """A run in a later format is refused, and the hint is the command to upgrade."""
    folder = small_run(tmp_path / "r")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "format": 99, "later": True}))
    with pytest.raises(NewerRunError, match="format 99") as caught:
        open_run(folder)
    assert "pip install" in caught.value.hint


def test_the_run_id_is_the_field_run(tmp_path: Path) -> None:
    """`run.json` has the run id as its first field, `run`, and reads back the same."""
    manifest = Manifest("0a1b2c3d", "script", 7, "0.1.0", scheduler={"pid": 1})
    manifest.write(tmp_path)
    facts = json.loads((tmp_path / "run.json").read_text())
    assert list(facts)[:3] == ["run", "name", "created_ns"]
    assert "run_id" not in facts
    assert facts["run"] == "0a1b2c3d"
    assert Manifest.read(tmp_path) == manifest


def test_a_manifest_without_a_run_id_is_refused(tmp_path: Path) -> None:
    """A manifest must have the field `run`; a field `run_id` does not replace it."""
    folder = small_run(tmp_path / "r")
    facts = json.loads((folder / "run.json").read_text())
    facts["run_id"] = facts.pop("run")
    (folder / "run.json").write_text(json.dumps(facts))
    with pytest.raises(NotARunError, match="damaged"):
        open_run(folder)

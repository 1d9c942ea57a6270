"""Bundles for tests, and the temporary folders that reading them makes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import dask_strata
from dask_strata.run.finalise import finalise
from tests.support.synthetic import small_run

#: Sets fields of a member before it is written.
Change = Callable[[zipfile.ZipInfo], None]


def small_bundle(folder: Path, name: str = "small") -> Path:
    """Make a bundle of a finalised run of two tasks."""
    run = small_run(folder / f"{name}-run")
    finalise(run)
    path = folder / f"{name}.strata.zip"
    dask_strata.open_run(run).export(path, to="bundle")
    return path


def members_of(bundle: bytes) -> dict[str, bytes]:
    """Return the contents of a bundle, by name."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_of(members: list[tuple[zipfile.ZipInfo | str, bytes]], **kwargs: int) -> bytes:
    """Return a zip file with members, as Python writes it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", **kwargs) as archive:  # type: ignore[arg-type]
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def copies(temporary: Path) -> list[str]:
    """Return the temporary copies of bundles that exist."""
    return sorted(path.name for path in temporary.glob("dask-strata-bundle-*"))

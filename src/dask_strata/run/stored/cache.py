"""Derived tables by a better definition than that of a finalised run: computed once, then kept.

They are kept in the run's folder, or in the user's cache folder if that cannot be written. The name
of their folder is the checksum of the run's index: tables of another state of the run are not used.
"""

from __future__ import annotations

import secrets
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dask_strata.config import read_settings
from dask_strata.errors import InterruptedQueryError, StrataError
from dask_strata.run.derived import versions
from dask_strata.store.compact import DerivedFiles
from dask_strata.store.copies.mirror import cache_folder, digest, remove_old_copies
from dask_strata.store.index import Index, index_bytes
from dask_strata.store.limits import INDEX_BYTES
from dask_strata.store.manifest import INDEX, Manifest
from dask_strata.store.parquet import Part, open_part
from dask_strata.store.safe_files import FOLDER as FOLDER_KIND
from dask_strata.store.safe_files import is_folder, kind_of, read_inside, share_as
from dask_strata.store.zipped.copy import is_copy

#: Folder of these tables in the run's folder.
FOLDER = "derived"

#: Computes derived tables into a folder.
Compute = Callable[[Path], Mapping[str, DerivedFiles]]


def cached(part: Part) -> Part | None:
    """Return the kept tables of a run that have their present definitions; None if there are none.

    Parameters
    ----------
    part : Part
        The Parquet of the finalised run.
    """
    state = _state(part)
    for base, *names in _homes(part):
        if is_folder(base.joinpath(*names, state)):
            run_id = Manifest.read(part.run).run_id
            found = open_part(base, run_id, "Parquet", *names, state)
            current = {n: d for n, d in found.derived.items() if d.version == versions().get(n)}
            if current:
                return replace(found, derived=current)
    return None


def keep(part: Part, compute: Compute) -> Part | None:
    """Compute derived tables and keep them; return None if no folder can be written.

    Parameters
    ----------
    part : Part
        The Parquet of the finalised run.
    compute : callable
        Computes the tables into a folder.

    Raises
    ------
    InterruptedQueryError
        The computation was interrupted; nothing is kept then.
    """
    for base, *names in _homes(part):
        home = base.joinpath(*names)
        new = home / f".{secrets.token_hex(4)}"
        try:
            new.mkdir(parents=True)
        except OSError:
            continue
        try:
            found = compute(new)
            checksums = {name: each.checksums for name, each in found.items()}
            derived = {name: each.derived for name, each in found.items()}
            run_id = Manifest.read(part.run).run_id
            index = Index({}, checksums=checksums, run_id=run_id, derived=derived)
            (new / INDEX).write_bytes(index_bytes(index))
            if base == part.run:
                share_as(part.run, home, *new.rglob("*"), new)
            _replace(new, home / _state(part))
            if base != part.run:
                (home.parent / f".{FOLDER}.lock").touch()
                remove_old_copies(cache_folder(), read_settings().cache_size)
            return cached(part)
        except InterruptedQueryError:
            raise
        except (OSError, StrataError):
            continue  # a full disk: another one may have room
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return None


def _replace(new: Path, target: Path) -> None:
    """Put a folder in the place of the one before, and of those of other states of the run."""
    for other in target.parent.iterdir():
        if not other.name.startswith("."):
            shutil.rmtree(other, ignore_errors=True)
    with suppress(OSError):  # another process was faster: its tables are the same
        new.rename(target)


def forget(run: Path) -> None:
    """Remove the tables that are kept in the folder of a run: they are of another state of it."""
    if is_folder(run / FOLDER):
        shutil.rmtree(run / FOLDER, ignore_errors=True)


def _homes(part: Part) -> list[tuple[Path, str] | tuple[Path, str, str]]:
    """Return the folders that may have such tables, the best first: a folder, and names in it."""
    name = f"{digest(Manifest.read(part.run).run_id)}-{_state(part)}"
    homes: list[tuple[Path, str] | tuple[Path, str, str]] = [(cache_folder(), name, FOLDER)]
    # A link in the place of the folder could lead anywhere; the copy of a bundle is temporary.
    if not is_copy(part.run) and kind_of(part.run / FOLDER) in {None, FOLDER_KIND}:
        homes.insert(0, (part.run, FOLDER))
    return homes


def _state(part: Part) -> str:
    data = read_inside(part.run, *part.home, INDEX, limit=INDEX_BYTES)
    return f"{zlib.crc32(data):08x}"

"""Uploading a run: in bundles while it grows, and whole at its end.

At the end each file of the run is one object of the same name, and the bundles are removed: the
place of a finished run is a run's folder, which any tool can copy.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dask_strata.errors import StrataError
from dask_strata.store.copies.bundle import BUNDLES, FULL_BYTES, bundle_name, encode_bundle
from dask_strata.store.copies.growth import FOLDERS, Position, is_segment, read_growth, run_files
from dask_strata.store.copies.place import Object, RemotePlace
from dask_strata.store.limits import INDEX_BYTES, MANIFEST_BYTES
from dask_strata.store.manifest import INDEX, MANIFEST, Manifest
from dask_strata.store.safe_files import read_inside

#: Ending of the file beside a spooled run with the URL that the run is uploaded to.
_DESTINATION = ".url"

#: Begin of the name of a folder that is made for spooled runs.
SPOOL_PREFIX = "dask-strata-"


def begin_upload(folder: Path, place: RemotePlace) -> GrowingUpload:
    """Write `run.json` of a run that starts, so that its place is known to be writable.

    Parameters
    ----------
    folder : Path
        The run's folder.
    place : RemotePlace
        The run's place.

    Raises
    ------
    StrataError
        The place cannot be written.
    """
    place.write(MANIFEST, read_inside(folder, MANIFEST, limit=MANIFEST_BYTES))
    return GrowingUpload(folder, place)


def require_writable(place: RemotePlace) -> None:
    """Write an empty object and remove it.

    Raises
    ------
    StrataError
        The place cannot be written.
    """
    name = f".dask-strata-{secrets.token_hex(8)}"
    place.write(name, b"")
    with suppress(StrataError):  # some may write and not remove
        place.remove([name])


class GrowingUpload:
    """The upload of a run while it is recorded.

    Parameters
    ----------
    folder : Path
        The run's folder.
    place : RemotePlace
        The run's place.
    """

    def __init__(self, folder: Path, place: RemotePlace) -> None:
        self._folder, self._place = folder, place
        self._seen: dict[str, Position] = {}
        self._number = 0
        self._waiting: tuple[bytes, dict[str, Position]] | None = None

    def upload_new(self) -> bool:
        """Upload one bundle of new bytes; return False if there were none.

        A bundle that could not be written is kept, and written by the next call.

        Raises
        ------
        StrataError
            The place cannot be written.
        """
        if self._waiting is None:
            parts = read_growth(self._folder, self._seen, FULL_BYTES)
            if not parts:
                return False
            self._waiting = encode_bundle(parts), {part.name: part.after for part in parts}
        data, seen = self._waiting
        self._place.write(bundle_name(self._number), data)
        self._waiting = None
        self._seen.update(seen)
        self._number += 1
        return True


@dataclass(frozen=True)
class Upload:
    """Result of an upload.

    Attributes
    ----------
    files : int
        Files that the place has now.
    size_bytes : int
        Their size.
    uploaded : int
        Files that this call uploaded; the place had the others.
    """

    files: int
    size_bytes: int
    uploaded: int


def upload_run(folder: Path, place: RemotePlace, others: Mapping[str, bytes]) -> Upload:
    """Upload each file of a run as one object, compare their sizes, and remove other objects.

    The call can be interrupted and repeated: files that the place has are not uploaded again.

    Parameters
    ----------
    folder : Path
        Folder of a run that no process writes to.
    place : RemotePlace
        The run's place.
    others : mapping of str to bytes
        Further objects, by name.

    Raises
    ------
    NotARunError
        The folder is not a run.
    StrataError
        The place cannot be written, has another run, or differs afterwards.
    """
    present = place.objects()
    _refuse_another_run(folder, place, present)
    names = list(run_files(folder))
    kept = _unchanged(folder, place, names, present)
    new = [name for name in names if name not in kept]
    for name in new:
        place.upload(name, folder / name)
    for name, data in others.items():
        place.write(name, data)
    sizes = {name: (folder / name).lstat().st_size for name in run_files(folder)}
    found = place.objects()
    for name, size in sizes.items():
        if name not in found or found[name].size != size:
            raise StrataError(
                f"{place.shown}/{name} differs in size from {folder / name} after the upload.",
                hint="Upload the run again when no process writes to it.",
            )
    place.remove([name for name in found if _is_of_run(name) and name not in sizes])
    return Upload(len(sizes), sum(sizes.values()), len(new))


def _refuse_another_run(folder: Path, place: RemotePlace, present: Mapping[str, Object]) -> None:
    run_id = Manifest.read(folder).run_id
    if MANIFEST not in present:
        return
    try:
        found = json.loads(place.read(MANIFEST, 0, MANIFEST_BYTES))
        same = Manifest.from_json(found).run_id == run_id
    except (ValueError, TypeError, AttributeError, RecursionError, FileNotFoundError):
        same = False
    if not same:
        raise StrataError(
            f"{place.shown} has another run: nothing was uploaded.", hint="Choose another place."
        )


def _unchanged(
    folder: Path, place: RemotePlace, names: list[str], present: Mapping[str, Object]
) -> set[str]:
    """Return the names of files that the place has.

    A segment of the same size is the same, as segments only grow. An index has the checksums of
    the files beside it. Other files are written once.
    """
    same_size = {n for n in names if n in present and present[n].size == _size(folder / n)}
    kept = {name for name in same_size if is_segment(name)}
    stale = [n.rpartition("/")[0] for n in names if n.endswith(f"/{INDEX}")]
    for home in list(stale):
        with suppress(FileNotFoundError):
            index = place.read(f"{home}/{INDEX}", 0, INDEX_BYTES)
            if index == read_inside(folder, *home.split("/"), INDEX, limit=INDEX_BYTES):
                stale.remove(home)
    of_stale = tuple(f"{home}/" for home in stale)
    kept |= {n for n in same_size if not n.startswith(of_stale or "\0") and n != MANIFEST}
    return kept


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _is_of_run(name: str) -> bool:
    return name.partition("/")[0] in (BUNDLES, *FOLDERS)


def note_destination(folder: Path, url: str) -> None:
    """Note beside a spooled run where it is uploaded to, for `dask-strata upload`.

    Raises
    ------
    OSError
        The note cannot be written.
    """
    note = folder.with_name(folder.name + _DESTINATION)
    note.touch(mode=0o600)
    note.write_text(url, encoding="utf-8")


def noted_destination(folder: Path) -> str | None:
    """Return the URL that a spooled run is uploaded to; None if the run is not spooled."""
    try:
        return folder.with_name(folder.name + _DESTINATION).read_text(encoding="utf-8") or None
    except (OSError, UnicodeDecodeError):
        return None


def remove_spool(folder: Path) -> None:
    """Remove a spooled run after its upload, and the folder that was made for it.

    The user may have moved the run: another folder, and the files in it, stay.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.with_name(folder.name + _DESTINATION).unlink()
    if not folder.parent.name.startswith(SPOOL_PREFIX):
        return
    with suppress(OSError):
        if not any(path.is_dir() for path in folder.parent.iterdir()):
            for note in folder.parent.glob(".*"):  # of `dask-strata record`
                note.unlink()
            folder.parent.rmdir()

"""Where a copied run comes from: a hidden file in its folder until the copy is complete."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dask_strata.store.limits import MANIFEST_BYTES
from dask_strata.store.safe_files import read_inside, writable_inside

_FILE = ".origin.json"


@dataclass(frozen=True)
class Origin:
    """The run that an incomplete copy is made from.

    Attributes
    ----------
    run : str
        Id of the run.
    address : str
        Address of the scheduler that has it.
    host : str
        Name of the scheduler's machine.
    folder : str
        Path of the run there.
    """

    run: str
    address: str
    host: str
    folder: str

    def write(self, copy: Path) -> None:
        """Note the origin in the folder of the copy.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        with writable_inside(copy, _FILE) as file:
            file.truncate()
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, copy: Path) -> Origin | None:
        """Return the origin of an incomplete copy; None if the run is complete, or no copy."""
        with suppress(OSError, ValueError, TypeError):
            origin = cls(**json.loads(read_inside(copy, _FILE, limit=MANIFEST_BYTES)))
            if all(isinstance(value, str) for value in asdict(origin).values()):
                return origin
        return None


def mark_complete(copy: Path) -> None:
    """Remove the note of an incomplete copy."""
    with suppress(OSError):
        (copy / _FILE).unlink()

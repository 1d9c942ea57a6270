"""What `check` reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Attributes
    ----------
    severity : str
        ok (complete), note (worth knowing, nothing is missing) or missing.
    process : str
        Process, or part of the record, that it is about.
    text : str
        What was found.
    counted : bool
        Whether a counter of Dask's agrees with the rows on record.
    """

    severity: Literal["ok", "note", "missing"]
    process: str
    text: str
    counted: bool = False

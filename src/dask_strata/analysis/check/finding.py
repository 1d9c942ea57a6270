"""A finding: one result of `check` about the completeness of the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes
    ----------
    severity : str
        ok (complete), note (nothing is missing), cut (the process was cut off, but each task is
        complete on record) or missing.
    process : str
        The process, or the part of the record, that the finding is about.
    text : str
        The finding, to follow the process in a sentence.
    counted : bool
        Whether the number of recorded events equals one of Dask's own counters.
    """

    severity: Literal["ok", "note", "cut", "missing"]
    process: str
    text: str
    counted: bool = False

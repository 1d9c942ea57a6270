"""One thing that was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    ``severity`` is ok (counted, and it is all there), note (worth knowing, nothing is
    missing) or missing.
    """

    severity: Literal["ok", "note", "missing"]
    process: str
    text: str

"""What came of adding files to a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: Called with the bytes that were read, and those that there are.
Progress = Callable[[int, int], None]

#: What a row of `losses` is about if PyDarshan was not there. Once it was, `check` looks whether
#: anything is missing still.
COUNTERS = "counters of Darshan's logs"


@dataclass
class Added:
    """What came of adding files to a run.

    Attributes
    ----------
    files : int
        Files of which rows are in the run now.
    rows : int
        These rows.
    again : int
        Files that were in it before.
    noted : int
        Rows about the import itself: files that were read or refused.
    said : list of str
        What there is to say.
    troubles : list of str
        What could not be read, and why.
    unknown : list of str
        Files of a kind that nobody here knows.
    """

    files: int = 0
    rows: int = 0
    again: int = 0
    noted: int = 0
    said: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def absorb(self, other: Added) -> None:
        """Add what came of other files."""
        for name in ("files", "rows", "again", "noted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("said", "troubles", "unknown"):
            getattr(self, name).extend(getattr(other, name))

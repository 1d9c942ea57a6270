"""What a column and a table are, and the columns that many tables have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "time", "seconds", "bytes", "int", "float", "bool", "text", "long", "key", "intervals"
]

#: Fields of one interval of a task's startstops: what was done, from when to when (on the
#: scheduler's clock as the worker estimated it, see ``clock_offsets``), and the address
#: that a transfer came from.
INTERVAL = ("action", "start", "stop", "source")

#: What stands for a secret that was not recorded, and for the user part of an address.
REDACTED = "(redacted)"
NO_USER = "***@"

#: What stands for what was left out on purpose, see the setting ``leave-out``.
LEFT_OUT = "(left out)"

#: What a column may tell of: a host or a path (all of it is the name of one), source code, a
#: failure, whatever a user wrote, or nothing of these. Any other text is searched for names.
Tells = Literal["", "host", "path", "code", "error", "text", "nothing"]


@dataclass(frozen=True)
class Column:
    """A column: its name, kind, meaning, unit where the name does not say it, what it may tell."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    tells: Tells = ""


@dataclass(frozen=True)
class Table:
    """A table: what a row is, the cell of the metadata map it belongs to, its columns.

    ``derived`` tables are not recorded: they are computed from the others on reading.
    ``imported`` ones have rows in imported runs only, ``added`` ones of files that others wrote
    and that were imported into the run. ``prov`` is the role of a row in the
    W3C PROV model.
    """

    name: str
    row: str
    step: int
    layer: str
    level: str
    columns: tuple[Column, ...]
    prov: Literal["entity", "activity", "agent", "relation"] = "entity"
    derived: bool = False
    imported: bool = False
    added: bool = False
    events: bool = True

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns with the ones that each recorded row has: process, seq."""
        if self.derived:
            return self.columns
        return (*self.columns, PROCESS, SEQ) if self.events else (*self.columns, PROCESS)

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError if there is none."""
        for column in self.all_columns:
            if column.name == name:
                return column
        raise KeyError(name)


PROCESS = Column("process", "text", "process that saw this, leads to `processes`")
SEQ = Column("seq", "int", "order of this row among those of its process; the line, if imported")

TIME = Column("time", "time", "when, on the clock of the process that saw it")
KEY = Column("key", "key", "the task")
STIMULUS = Column("stimulus_id", "text", "Dask's name of the event that caused this")
WORKER = Column("worker", "text", "address of the worker")
START = Column("start", "time", "when it began")
STOP = Column("stop", "time", "when it ended")


#: Where a row was imported from; null in all rows that were recorded.
ORIGIN = (
    Column("file", "text", "file that this row was imported from; null if it was recorded"),
    Column("line", "int", "line of that file, from 1; of the row's first line, if it has several"),
    Column("salvaged", "bool", "true if put together from a damaged event: see `check`"),
)


def col(name: str, kind: Kind, meaning: str, unit: str = "", *, tells: Tells = "") -> Column:
    """Return a column."""
    return Column(name, kind, meaning, unit, tells)

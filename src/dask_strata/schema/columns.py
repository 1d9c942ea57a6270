"""Definitions of a column and of a table, and the columns that many tables share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "time", "seconds", "bytes", "int", "float", "bool", "text", "long", "key", "intervals"
]

#: Fields of one interval of a task's startstops: the action, its start and stop (on the
#: scheduler's clock as the worker estimated it, see ``clock_offsets``), and the address
#: that a transfer came from.
INTERVAL = ("action", "start", "stop", "source")

#: Placeholders for a secret, and for the user part of an address.
REDACTED = "(redacted)"
NO_USER = "***@"

#: Placeholder for a fact that the setting ``leave-out`` excludes.
LEFT_OUT = "(left out)"

#: Private content of a column, which the setting ``leave-out`` removes or replaces: "host" and
#: "path" are the name of one as a whole, "code" is source code, "error" is a failure's text,
#: "text" is any text of the user, "nothing" is never private. Names are searched for in a column
#: with "".
Sensitivity = Literal["", "host", "path", "code", "error", "text", "nothing"]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        Its name.
    kind : Kind
        Its type, see `dask_strata.schema`.
    meaning : str
        Its content, for the documentation.
    unit : str, optional
        Its unit, if the name does not end with it.
    sensitivity : Sensitivity, optional
        Its private content.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    sensitivity: Sensitivity = ""


@dataclass(frozen=True)
class Table:
    """A table of a run.

    Parameters
    ----------
    name : str
        Its name.
    row : str
        The object that one row describes, for the documentation.
    step, layer, level : int, str, str
        Its cell of the metadata map.
    columns : tuple of Column
        Its own columns.
    prov : str, optional
        Role of a row in the W3C PROV model.
    derived : bool, optional
        Whether it is computed from other tables on reading, and not recorded.
    imported : bool, optional
        Whether it has rows in imported runs only.
    added : bool, optional
        Whether its rows come from other tools' files that were imported into a recorded run.
    events : bool, optional
        Whether its rows have an order, the column ``seq``.
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
        """The table's own columns, and ``process`` and ``seq`` if it is recorded.

        >>> table = Table("facts", "fact", 1, "job", "job", (Column("name", "text", "its name"),))
        >>> [column.name for column in table.all_columns]
        ['name', 'process', 'seq']
        """
        if self.derived:
            return self.columns
        return (*self.columns, PROCESS, SEQ) if self.events else (*self.columns, PROCESS)

    def column(self, name: str) -> Column:
        """Return the column of a name.

        Raises
        ------
        KeyError
            There is no such column.
        """
        for column in self.all_columns:
            if column.name == name:
                return column
        raise KeyError(name)


PROCESS = Column("process", "text", "process that recorded this row, leads to `processes`")
SEQ = Column("seq", "int", "order of this row in its process; line of the file, if imported")

TIME = Column("time", "time", "time on the clock of the process that recorded the row")
KEY = Column("key", "key", "the task")
STIMULUS = Column("stimulus_id", "text", "Dask's id of the event that caused this")
WORKER = Column("worker", "text", "address of the worker")
START = Column("start", "time", "when it began")
STOP = Column("stop", "time", "when it ended")


#: Place in an imported file; null in all rows that were recorded.
ORIGIN = (
    Column("file", "text", "file that this row was imported from; null if it was recorded"),
    Column("line", "int", "first line of this row in that file, from 1"),
    Column("salvaged", "bool", "whether it was reassembled from a damaged event, see `check`"),
)


def col(
    name: str, kind: Kind, meaning: str, unit: str = "", *, sensitivity: Sensitivity = ""
) -> Column:
    """Return a `Column`; short, for the definitions of tables."""
    return Column(name, kind, meaning, unit, sensitivity)
